//! What stands in the place of a name in a text.

/// A place to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A variable of the file: every use draws anew.
    Variable(u16),
    /// A runtime variable: drawn once a request.
    Request(u16),
    /// A runtime variable of body lines: drawn once a repetition.
    Line(u16),
    /// What an earlier answer of the same user left; nothing before that.
    Registered(u16),
}

//! The slots of a template, each in the place of a name.

/// A place to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A variable of the file: every use draws a new value.
    Variable(u16),
    /// A runtime variable of the request: drawn once per request.
    Request(u16),
    /// A runtime variable of body lines: drawn once per repetition.
    Line(u16),
    /// A value that an earlier answer of the same user registered; empty before that.
    Registered(u16),
}

//! Texts with `$[[name]]` in them, compiled once to pieces and slots so that rendering only copies.

use crate::slot::Slot;
use crate::variable::Draws;

/// A compiled text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Template {
    text: Box<[u8]>,
    pieces: Box<[Piece]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A range of `text`.
    Static(u32, u32),
    Slot(Slot),
}

/// Why a text cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("`$[[` has no `]]`")]
    Unclosed,
    /// A name that means nothing where it stands.
    #[error("{0}")]
    Name(String),
}

// === impl Template ===

impl Template {
    /// Compiles a text. `resolve` says what a name stands for; a name that resolves to `None` stays as it is
    /// written.
    ///
    /// # Errors
    /// The first name that `resolve` refuses, or a `$[[` that is never closed.
    pub(crate) fn compile(
        text: &str,
        resolve: &mut dyn FnMut(&str) -> Result<Option<Slot>, TemplateError>,
    ) -> Result<Template, TemplateError> {
        let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
        let mut rest = text;
        let mut push = |part: &str, pieces: &mut Vec<Piece>| {
            if !part.is_empty() {
                let start = bytes.len() as u32;
                bytes.extend_from_slice(part.as_bytes());
                pieces.push(Piece::Static(start, bytes.len() as u32));
            }
        };
        while let Some(start) = rest.find("$[[") {
            let Some(length) = rest[start..].find("]]") else {
                return Err(TemplateError::Unclosed);
            };
            let name = rest[start + 3..start + length].trim();
            let end = start + length + 2;
            match resolve(name)? {
                Some(slot) => {
                    push(&rest[..start], &mut pieces);
                    pieces.push(Piece::Slot(slot));
                }
                None => push(&rest[..end], &mut pieces),
            }
            rest = &rest[end..];
        }
        push(rest, &mut pieces);
        Ok(Template {
            text: bytes.into(),
            pieces: pieces.into(),
        })
    }

    /// The slots, in order, with repetitions.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Slot(slot) => Some(*slot),
            Piece::Static(..) => None,
        })
    }

    /// The text, if it has no slots.
    pub(crate) fn fixed(&self) -> Option<&[u8]> {
        self.slots().next().is_none().then_some(&*self.text)
    }

    /// Whether the rendered text is known to end with `end`.
    pub(crate) fn ends_with(&self, end: &[u8]) -> bool {
        match self.pieces.last() {
            Some(Piece::Static(from, to)) => self.text[*from as usize..*to as usize].ends_with(end),
            _ => false,
        }
    }

    /// Appends the text with a value in every slot.
    pub(crate) fn render(&self, draws: &mut Draws, out: &mut Vec<u8>) {
        self.render_with(out, |slot, out| draws.put(slot, out));
    }

    /// Appends the text, with what `put` appends for each slot.
    #[inline]
    pub(crate) fn render_with(&self, out: &mut Vec<u8>, mut put: impl FnMut(Slot, &mut Vec<u8>)) {
        for piece in &self.pieces {
            match *piece {
                Piece::Static(from, to) => out.extend_from_slice(&self.text[from as usize..to as usize]),
                Piece::Slot(slot) => put(slot, out),
            }
        }
    }
}

//! Texts with `$[[name]]` in them, compiled once to pieces and slots, so that rendering only copies.

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

/// What stands in the place of a name.
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

// === impl Template ===

impl Template {
    /// Compiles a text; `resolve` says what a name stands for.
    ///
    /// # Errors
    /// The first name that `resolve` refuses, or a `$[[` that is never closed, in words.
    pub(crate) fn compile(
        text: &str,
        resolve: &mut dyn FnMut(&str) -> Result<Slot, String>,
    ) -> Result<Template, String> {
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
                return Err("`$[[` has no `]]`".to_owned());
            };
            push(&rest[..start], &mut pieces);
            let name = rest[start + 3..start + length].trim();
            pieces.push(Piece::Slot(resolve(name)?));
            rest = &rest[start + length + 2..];
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

    /// Whether the rendered text will end like this, as far as it is known beforehand.
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

    /// Appends the text with what `put` appends for each slot.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::request::{Body, needs};
    use crate::variable::{Kind, Sequence, Variable, Words};

    fn variables() -> Arc<[Variable]> {
        let mut words = Words::default();
        words.add("wörd".as_bytes());
        [
            ("id", Kind::Sequence(Sequence::new(7, 11))),
            ("word", Kind::Words(words)),
            ("seven", Kind::Range { from: 7, to: 7 }),
        ]
        .map(|(name, kind)| Variable {
            name: name.to_owned(),
            kind,
        })
        .into()
    }

    /// `once` is a runtime variable of the request, `line` one of body lines; both draw from `id`.
    fn resolve(name: &str) -> Result<Slot, String> {
        match name {
            "id" => Ok(Slot::Variable(0)),
            "word" => Ok(Slot::Variable(1)),
            "seven" => Ok(Slot::Variable(2)),
            "once" => Ok(Slot::Request(0)),
            "line" => Ok(Slot::Line(0)),
            other => Err(format!("no {other}")),
        }
    }

    /// The slow and obvious renderer: replaces the first name that is left, until none is.
    fn obvious(text: &str, repeat: u32) -> String {
        let mut drawn = 0_u64;
        let mut next = || {
            drawn += 1;
            7 + (drawn - 1) % 5
        };
        let once = next();
        let mut out = String::new();
        for _ in 0..repeat {
            let line = next();
            let mut text = text.to_owned();
            while let Some(start) = text.find("$[[") {
                let end = start + text[start..].find("]]").unwrap();
                let value = match text[start + 3..end].trim() {
                    "id" => next().to_string(),
                    "word" => "wörd".to_owned(),
                    "seven" => "7".to_owned(),
                    "once" => once.to_string(),
                    _ => line.to_string(),
                };
                text.replace_range(start..end + 2, &value);
            }
            out += &text;
        }
        out
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        let compile = |text: &str| Template::compile(text, &mut resolve);
        assert_eq!(compile("a $[[nobody]]"), Err("no nobody".to_owned()));
        assert_eq!(compile("a $[[id"), Err("`$[[` has no `]]`".to_owned()));
        let plain = compile("$ [[ ]] $[").unwrap();
        assert_eq!(plain.fixed(), Some(&b"$ [[ ]] $["[..]));
    }

    proptest! {
        #[test]
        fn rendering_is_what_the_obvious_renderer_says(
            parts in prop::collection::vec(
                prop_oneof![
                    "[a-zé$\\[\\n]{0,6}".prop_map(|text| text.replace("$[[", "")),
                    prop::sample::select(vec!["$[[id]]", "$[[ word ]]", "$[[seven]]", "$[[once]]", "$[[line]]"])
                        .prop_map(str::to_owned),
                ],
                0..12,
            ),
            repeat in 1_u32..5,
        ) {
            let text = parts.join(" ");
            prop_assume!(!text.contains("$[[[") && !text.contains("]]]"));
            let variables = variables();
            let body = Body {
                text: Template::compile(&text, &mut resolve).unwrap(),
                repeat,
                once: [0].into(),
                uniform: true,
            };
            let needs = needs(&variables, &[], &[0], Some(&body));
            let mut draws = Draws::new(Arc::clone(&variables), 1);
            draws.begin(Timestamp::UNIX_EPOCH, &needs, &[0]);
            let mut out = Vec::new();
            body.render(&mut draws, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), obvious(&text, repeat));
        }
    }
}

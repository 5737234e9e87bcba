//! Digests of documents that depend on values, not on their spelling.

use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};

use super::number;

/// Makes digests of 128 bits. The keys are random, so digests can only be compared within one comparison, and
/// nobody can write documents that collide on purpose.
pub(super) struct Digester {
    keys: [RandomState; 2],
}

/// Two hashers with different keys: with 64 bits, collisions by chance would matter among billions of
/// documents.
struct Twin([DefaultHasher; 2]);

/// The container that a value is in.
enum Frame {
    Array(Twin),
    Object { sum: u128, members: u64, key: u128 },
}

/// A position in a text.
struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

// === impl Digester ===

impl Digester {
    pub(super) fn new() -> Self {
        Self {
            keys: [RandomState::new(), RandomState::new()],
        }
    }

    /// Returns the digest of an id.
    pub(super) fn id(&self, id: &str) -> u128 {
        self.bytes(ID, id.as_bytes())
    }

    /// Returns the digest of a document: of its id (by its digest), its routing, and the value of its source.
    /// None if the source is no JSON.
    pub(super) fn document(&self, id: u128, routing: Option<&str>, source: Option<&str>) -> Option<u128> {
        let mut twin = self.twin(DOCUMENT);
        twin.add(id);
        twin.add(routing.map_or(0, |routing| self.bytes(TEXT, routing.as_bytes())));
        match source {
            Some(source) => twin.add(self.value(source)?),
            None => twin.add(0),
        }
        Some(twin.finish())
    }

    /// Returns the digest of a JSON text's value: the order of keys, white space, escapes and the spelling of
    /// numbers don't matter. None if the text is no JSON. Nesting costs memory, but no stack.
    pub(super) fn value(&self, text: &str) -> Option<u128> {
        let mut cursor = Cursor {
            text: text.as_bytes(),
            at: 0,
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut scratch = Vec::new();
        loop {
            cursor.skip_space();
            let mut digest = match cursor.peek()? {
                b'{' => {
                    cursor.at += 1;
                    cursor.skip_space();
                    if !cursor.take(b'}') {
                        let key = self.key(&mut cursor, &mut scratch)?;
                        frames.push(Frame::Object {
                            sum: 0,
                            members: 0,
                            key,
                        });
                        continue;
                    }
                    self.object(0, 0)
                }
                b'[' => {
                    cursor.at += 1;
                    cursor.skip_space();
                    let twin = self.twin(ARRAY);
                    if !cursor.take(b']') {
                        frames.push(Frame::Array(twin));
                        continue;
                    }
                    twin.finish()
                }
                b'"' => self.bytes(TEXT, cursor.string(&mut scratch)?),
                _ => self.word(cursor.word(), &mut scratch)?,
            };
            // A value has ended; the containers around it may end too.
            loop {
                cursor.skip_space();
                match frames.last_mut() {
                    None => return cursor.peek().is_none().then_some(digest),
                    Some(Frame::Array(twin)) => {
                        twin.add(digest);
                        if cursor.take(b',') {
                            break;
                        }
                        cursor.take(b']').then_some(())?;
                    }
                    Some(Frame::Object { sum, members, key }) => {
                        // A sum doesn't depend on the order.
                        *sum = sum.wrapping_add(self.member(*key, digest));
                        *members += 1;
                        if cursor.take(b',') {
                            *key = self.key(&mut cursor, &mut scratch)?;
                            break;
                        }
                        cursor.take(b'}').then_some(())?;
                    }
                }
                digest = match frames.pop()? {
                    Frame::Array(twin) => twin.finish(),
                    Frame::Object { sum, members, .. } => self.object(sum, members),
                };
            }
        }
    }

    /// Returns the digest of a value without quotes or brackets.
    fn word(&self, word: &[u8], scratch: &mut Vec<u8>) -> Option<u128> {
        match word {
            b"true" | b"false" | b"null" => Some(self.bytes(WORD, word)),
            [b'-' | b'0'..=b'9', ..] => {
                scratch.clear();
                number::canonical(word, scratch);
                Some(self.bytes(NUMBER, scratch))
            }
            _ => None,
        }
    }

    fn key(&self, cursor: &mut Cursor<'_>, scratch: &mut Vec<u8>) -> Option<u128> {
        cursor.skip_space();
        let key = self.bytes(TEXT, cursor.string(scratch)?);
        cursor.skip_space();
        cursor.take(b':').then_some(key)
    }

    fn member(&self, key: u128, value: u128) -> u128 {
        let mut twin = self.twin(MEMBER);
        twin.add(key);
        twin.add(value);
        twin.finish()
    }

    fn object(&self, sum: u128, members: u64) -> u128 {
        let mut twin = self.twin(OBJECT);
        twin.add(sum);
        twin.add(members.into());
        twin.finish()
    }

    fn bytes(&self, kind: u8, bytes: &[u8]) -> u128 {
        let mut twin = self.twin(kind);
        twin.0.iter_mut().for_each(|hasher| hasher.write(bytes));
        twin.finish()
    }

    fn twin(&self, kind: u8) -> Twin {
        let mut twin = Twin([self.keys[0].build_hasher(), self.keys[1].build_hasher()]);
        twin.0.iter_mut().for_each(|hasher| hasher.write_u8(kind));
        twin
    }
}

// === impl Twin ===

impl Twin {
    fn add(&mut self, digest: u128) {
        self.0.iter_mut().for_each(|hasher| hasher.write_u128(digest));
    }

    fn finish(&self) -> u128 {
        let [high, low] = [0, 1].map(|at| u128::from(self.0[at].finish()));
        (high << 64) | low
    }
}

// === impl Cursor ===

impl<'t> Cursor<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Returns a number, or a word without quotation marks.
    fn word(&mut self) -> &'t [u8] {
        let rest = &self.text[self.at..];
        let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let word = &rest[..rest.iter().take_while(plain).count()];
        self.at += word.len();
        word
    }

    /// Returns a string's bytes with its escapes undone; they are in `scratch` if the string has escapes.
    fn string<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Option<&'s [u8]>
    where
        't: 's,
    {
        self.take(b'"').then_some(())?;
        let start = self.at;
        let rest = &self.text[start..];
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        self.at += plain;
        if self.take(b'"') {
            return Some(&rest[..plain]);
        }
        scratch.clear();
        scratch.extend_from_slice(&rest[..plain]);
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Some(scratch),
                b'\\' => self.escape(scratch)?,
                byte => scratch.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let byte = self.peek()?;
        self.at += 1;
        out.push(match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => return self.escaped_char(out),
            byte => byte,
        });
        Some(())
    }

    /// Decodes the digits after `\u`. A lone surrogate is written as if it were a character, since servers
    /// keep such texts too.
    fn escaped_char(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            } else {
                self.at = before;
            }
        }
        match char::from_u32(code) {
            Some(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            None => out.extend_from_slice(&[
                0xe0 | (code >> 12) as u8,
                0x80 | ((code >> 6) & 63) as u8,
                0x80 | (code & 63) as u8,
            ]),
        }
        Some(())
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let digit = |code: u32, byte: &u8| Some((code << 4) | char::from(*byte).to_digit(16)?);
        digits.iter().try_fold(0, digit)
    }
}

const ID: u8 = 1;
const DOCUMENT: u8 = 2;
const OBJECT: u8 = 3;
const MEMBER: u8 = 4;
const ARRAY: u8 = 5;
const TEXT: u8 = 6;
const NUMBER: u8 = 7;
const WORD: u8 = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A value with obvious equality; numbers are tenths.
    #[derive(Clone, Debug, PartialEq)]
    enum Obvious {
        Null,
        Bool(bool),
        Tenths(i32),
        Text(String),
        Array(Vec<Obvious>),
        Object(BTreeMap<String, Obvious>),
    }

    fn obvious() -> impl Strategy<Value = Obvious> {
        let leaf = prop_oneof![
            Just(Obvious::Null),
            any::<bool>().prop_map(Obvious::Bool),
            (-30..30).prop_map(Obvious::Tenths),
            "[aé\u{1F600}\"\\\\\n]{0,2}".prop_map(Obvious::Text),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Obvious::Array),
                prop::collection::btree_map("[aé\"]{0,2}", inner, 0..3).prop_map(Obvious::Object),
            ]
        })
    }

    /// Writes one of many spellings of a value, chosen by `dice`.
    fn spell(value: &Obvious, dice: &mut fastrand::Rng, out: &mut String) {
        let space = |dice: &mut fastrand::Rng, out: &mut String| {
            out.push_str(["", "", " ", "\n\t "][dice.usize(..4)]);
        };
        space(dice, out);
        match value {
            Obvious::Null => out.push_str("null"),
            Obvious::Bool(value) => out.push_str(&value.to_string()),
            Obvious::Tenths(tenths) => {
                let sign = if *tenths < 0 { "-" } else { "" };
                let (whole, tenth) = (tenths.abs() / 10, tenths.abs() % 10);
                out.push_str(&match dice.usize(..3) {
                    0 if tenth == 0 => format!("{sign}{whole}"),
                    0 | 1 => format!("{sign}{whole}.{tenth}0"),
                    _ => format!("{sign}{}E-1", tenths.abs()),
                });
            }
            Obvious::Text(text) => spell_text(text, dice, out),
            Obvious::Array(values) => {
                out.push('[');
                for (at, value) in values.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    spell(value, dice, out);
                }
                space(dice, out);
                out.push(']');
            }
            Obvious::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                dice.shuffle(&mut members);
                out.push('{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    space(dice, out);
                    spell_text(key, dice, out);
                    space(dice, out);
                    out.push(':');
                    spell(value, dice, out);
                }
                space(dice, out);
                out.push('}');
            }
        }
        space(dice, out);
    }

    fn spell_text(text: &str, dice: &mut fastrand::Rng, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            let escaped = || -> String {
                let mut units = [0; 2];
                let units = char.encode_utf16(&mut units);
                units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
            };
            match char {
                _ if dice.bool() => out.push_str(&escaped()),
                '\n' => out.push_str("\\n"),
                '"' | '\\' => {
                    out.push('\\');
                    out.push(char);
                }
                char => out.push(char),
            }
        }
        out.push('"');
    }

    fn spelt(value: &Obvious, seed: u64) -> String {
        let mut out = String::new();
        spell(value, &mut fastrand::Rng::with_seed(seed), &mut out);
        out
    }

    proptest! {
        #[test]
        fn digests_are_equal_just_when_values_are(one in obvious(), other in obvious(), seeds in any::<(u64, u64, u64)>()) {
            let digester = Digester::new();
            let digest = |value: &Obvious, seed| {
                let text = spelt(value, seed);
                // Other parsers accept the spelling as JSON too.
                assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
                digester.value(&text).unwrap_or_else(|| panic!("{text}"))
            };
            prop_assert_eq!(digest(&one, seeds.0), digest(&one, seeds.1));
            prop_assert_eq!(one == other, digest(&one, seeds.0) == digest(&other, seeds.2));
        }
    }

    #[test]
    fn what_is_no_json_has_no_digest_and_nesting_needs_no_stack() {
        let digester = Digester::new();
        for text in [
            "",
            "{",
            "[1",
            "{\"a\"}",
            "{\"a\":1,}",
            "nul",
            "1 2",
            "\"a",
            "\"\\u12",
            "]",
            "[1,]",
        ] {
            assert_eq!(digester.value(text), None, "{text}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_ne!(digester.value(&deep(1_000_000)), None);
        assert_ne!(digester.value(&deep(3)), digester.value(&deep(4)));
        // Lone surrogates, which are not valid Unicode.
        assert_ne!(digester.value(r#""\ud800""#), digester.value(r#""\ud801""#));
        assert_ne!(digester.value(r#""\ud800\ud800""#), digester.value(r#""\ud800""#));
    }

    #[test]
    fn id_routing_and_source_all_count() {
        let digester = Digester::new();
        let (one, other) = (digester.id("1"), digester.id("2"));
        let mut digests = vec![
            digester.document(one, None, Some("{}")),
            digester.document(other, None, Some("{}")),
            digester.document(one, Some(""), Some("{}")),
            digester.document(one, Some("r"), Some("{}")),
            digester.document(one, None, None),
            digester.document(one, None, Some("{\"a\":1}")),
        ];
        assert!(digests.iter().all(Option::is_some));
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 6);
        assert_eq!(digester.document(one, None, Some("{")), None);
    }
}

//! A strict reader of JSON values, which accepts only text that every server version certainly accepts.
//!
//! The servers' parser (Jackson) is laxer in places (comments, NaN) and stricter in others (duplicate keys,
//! broken surrogates, depth, long texts). They all accept what this reader accepts: it refuses when in doubt.

/// Reads the JSON tokens of one line; every method returns `None` when the text is not certainly accepted.
pub(crate) struct Strict<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
    /// The longest string, in bytes.
    string_bytes_max: usize,
    /// The keys of the open objects, innermost last.
    keys: Vec<&'a [u8]>,
}

const DEPTH_MAX: u32 = 64;
const KEY_BYTES_MAX: usize = 10_000;
/// OpenSearch refuses texts of more than 50,000,000 characters (`XContentConstraints`), which its operators
/// may lower, and some releases of the parser took 5,000,000 by themselves.
const STRING_BYTES_MAX: usize = 4 << 20;

// === impl Strict ===

impl<'a> Strict<'a> {
    /// Makes a reader of `text`, which must be UTF-8.
    pub(crate) fn new(text: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(text).ok()?;
        Some(Self {
            text,
            at: 0,
            depth: 0,
            string_bytes_max: STRING_BYTES_MAX,
            keys: Vec::new(),
        })
    }

    /// Makes a reader like [`Strict::new`] for text whose strings may be of any length: what a server parses
    /// for one document alone.
    pub(crate) fn of_document(text: &'a [u8]) -> Option<Self> {
        Some(Self {
            string_bytes_max: usize::MAX,
            ..Self::new(text)?
        })
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Option<()> {
        if self.peek().is_none() { Some(()) } else { None }
    }

    /// Returns the next token's first byte.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Reads an object. `member` is called with each key and must read its value.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let first_key = self.keys.len();
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                self.peek()?;
                let key = self.string()?;
                if key.contains(&b'\\') || key.len() > KEY_BYTES_MAX {
                    return None;
                }
                self.keys.push(key);
                self.peek()?;
                self.take(b':')?;
                member(self, key)?;
                if self.comma_or(b'}')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        let keys = &mut self.keys[first_key..];
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        self.keys.truncate(first_key);
        Some(())
    }

    /// Reads any value.
    pub(crate) fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(|strict, _| strict.value()),
            b'[' => self.array(),
            b'"' => self.string().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Option<bool> {
        match self.peek()? {
            b't' => self.word(b"true").map(|()| true),
            _ => self.word(b"false").map(|()| false),
        }
    }

    /// Reads a string; returns it as it stands between its quotes.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        self.take(b'"')?;
        let start = self.at;
        loop {
            match *self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.escape()?,
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        let string = &self.text[start..self.at - 1];
        if string.len() > self.string_bytes_max {
            return None;
        }
        Some(string)
    }

    fn array(&mut self) -> Option<()> {
        self.take(b'[')?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                self.value()?;
                if self.comma_or(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Reads a comma or the closing bracket; returns true at the bracket, false after a comma.
    fn comma_or(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(false),
            _ if byte == close => Some(true),
            _ => None,
        }
    }

    fn escape(&mut self) -> Option<()> {
        match *self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 2;
                Some(())
            }
            b'u' => {
                let unit = self.unit()?;
                match unit {
                    0xd800..=0xdbff => match self.unit()? {
                        0xdc00..=0xdfff => Some(()),
                        _ => None,
                    },
                    0xdc00..=0xdfff => None,
                    _ => Some(()),
                }
            }
            _ => None,
        }
    }

    /// Reads `\uXXXX`.
    fn unit(&mut self) -> Option<u16> {
        let text = self.text.get(self.at..self.at + 6)?;
        if !text.starts_with(b"\\u") || !text[2..].iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.at += 6;
        u16::from_str_radix(std::str::from_utf8(&text[2..]).ok()?, 16).ok()
    }

    /// Reads a number that fits a long or a double with room to spare.
    fn number(&mut self) -> Option<()> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole == 0 || whole > 18 || (whole > 1 && self.text[self.at - whole] == b'0') {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !(1..=30).contains(&self.digits()) {
                return None;
            }
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            if !(1..=2).contains(&self.digits()) {
                return None;
            }
        }
        Some(())
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        if !self.text[self.at..].starts_with(word) {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        if *self.text.get(self.at)? != byte {
            return None;
        }
        self.at += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let strict = Strict::new(text.as_bytes());
        strict.is_some_and(|mut strict| strict.value().and_then(|()| strict.end()).is_some())
    }

    #[test]
    fn takes_plain_json() {
        for text in [
            "{}",
            " { \"a\" : [ 1 , -2.5e10 , true , null , \"x\\n\\u00e9\\ud83d\\ude00\" ] , \"b\" : { \"a\" : 0 } } ",
            "[]",
            "\"é\"",
        ] {
            assert!(accepts(text), "{text}");
        }
    }

    #[test]
    fn refuses_what_some_server_may_refuse() {
        for text in [
            "",
            "{",
            "{}}",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{\"a\":1,\"a\":2}",
            "{\"b\":{\"a\":1,\"c\":1,\"a\":2}}",
            "{a:1}",
            "{'a':1}",
            "01",
            "-",
            "1.",
            ".5",
            "1e999",
            "1e",
            "NaN",
            "nul",
            "\"\\ud800\"",
            "\"\\udc00\\ud800\"",
            "\"\\x\"",
            "\"\t\"",
            "[1,]",
            "[1 2]",
            "{\"\\u0061\":1}",
            "1234567890123456789",
            "{} // x",
        ] {
            assert!(!accepts(text), "{text}");
        }
        assert!(!accepts(&"[".repeat(100)));
    }
}

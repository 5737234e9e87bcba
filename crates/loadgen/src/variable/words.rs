//! Lists of values, and replacements of text in values.

/// Values stored one after another in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// Texts, and the texts that replace them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replacements(Vec<(String, String)>);

// === impl Words ===

impl Words {
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the value at this place in the list.
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    pub(crate) fn pick(&self, rng: &mut fastrand::Rng) -> &[u8] {
        self.get(rng.usize(0..self.ends.len()))
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the value that `write` appends.
    pub(crate) fn add_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
    }
}

// === impl Replacements ===

impl Replacements {
    /// Creates replacements. If two texts match at one place, the longer one wins.
    ///
    /// # Panics
    /// If one of the texts to be replaced is empty.
    pub(crate) fn new(mut pairs: Vec<(String, String)>) -> Self {
        assert!(
            pairs.iter().all(|(from, _)| !from.is_empty()),
            "an empty text is everywhere"
        );
        pairs.sort_by(|one, two| two.0.len().cmp(&one.0.len()).then(one.0.cmp(&two.0)));
        Replacements(pairs)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces in one pass: replaced text is not looked at again.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match self.0.iter().find(|(from, _)| rest.starts_with(from)) {
                Some((from, to)) => {
                    out.push_str(to);
                    rest = &rest[from.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_goes_once_over_the_text_and_prefers_the_longer() {
        let pairs = [("a", "b"), ("ab", "X"), ("\"", "\\\"")];
        let pairs = pairs.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(Replacements::new(pairs.into()).apply("abaé\""), "Xbé\\\"");
    }
}

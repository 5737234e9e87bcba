//! Finds the end of a head, and refuses line breaks that peers could read differently.

/// Searches for the empty line that ends a head. The scan remembers how far it got, so that slow heads cost
/// no more than fast ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadScan {
    checked: usize,
    line_start: usize,
}

/// The faults that no head may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// A carriage return without line feed, or the reverse.
    BareLineBreak,
    /// A line that begins with white space: obsolete line folding (or an attempt to hide a header).
    Folded,
}

// === impl HeadScan ===

impl HeadScan {
    /// Returns the length of the head that `bytes` begin with, including its final empty line; `None` when
    /// more bytes are needed. `bytes` must begin with the bytes of earlier calls.
    ///
    /// # Errors
    /// As soon as the bytes cannot become an acceptable head.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadFault> {
        loop {
            let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[self.checked..]) else {
                self.checked = bytes.len();
                return Ok(None);
            };
            let at = self.checked + found;
            if bytes[at] == b'\n' {
                return Err(HeadFault::BareLineBreak);
            }
            match bytes.get(at + 1) {
                None => {
                    self.checked = at;
                    return Ok(None);
                }
                Some(b'\n') => {}
                Some(_) => return Err(HeadFault::BareLineBreak),
            }
            if self.line_start > 0 && matches!(bytes[self.line_start], b' ' | b'\t') {
                return Err(HeadFault::Folded);
            }
            let empty = at == self.line_start;
            self.checked = at + 2;
            self.line_start = at + 2;
            if empty {
                return Ok(Some(at + 2));
            }
        }
    }

    /// Returns whether the first line is complete (then a head that is too long has too long headers, not a
    /// too long request line).
    pub fn past_first_line(&self) -> bool {
        self.line_start > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8]) -> Result<Option<usize>, HeadFault> {
        let mut line_start = 0;
        for at in 0..bytes.len() {
            match bytes[at] {
                b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(HeadFault::BareLineBreak),
                b'\n' => {
                    let line = &bytes[line_start..at - 1];
                    if line_start > 0 && line.first().is_some_and(|byte| b" \t".contains(byte)) {
                        return Err(HeadFault::Folded);
                    }
                    if line.is_empty() {
                        return Ok(Some(at + 1));
                    }
                    line_start = at + 1;
                }
                _ if at > 0 && bytes[at - 1] == b'\r' => return Err(HeadFault::BareLineBreak),
                _ => {}
            }
        }
        Ok(None)
    }

    proptest! {
        #[test]
        fn scanning_in_pieces_finds_what_a_naive_scan_finds(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b'a')], 0..24),
            cuts in proptest::collection::vec(0usize..24, 0..4),
        ) {
            let expected = naive(&bytes);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut scan = HeadScan::default();
            let mut got = Ok(None);
            for cut in cuts {
                got = scan.find(&bytes[..cut]);
                if got != Ok(None) { break; }
            }
            prop_assert_eq!(got, expected);
        }
    }
}

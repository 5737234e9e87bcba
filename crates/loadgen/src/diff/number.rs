//! Normalises numbers in JSON, so that equal values have equal texts.

/// Appends a number's value in its one canonical form: `1`, `1.0` and `10e-1` become the same text, and
/// unequal numbers never do. The result is exact for any number of digits: no floating point is involved.
///
/// `text` is a JSON number. A number with an exponent beyond 64 bits is kept as it is written.
pub(super) fn canonical(text: &[u8], out: &mut Vec<u8>) {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (digits, power) = match digits.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&digits[..at], exponent(&digits[at + 1..])),
        None => (digits, Some(0)),
    };
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    let all = || whole.iter().chain(fraction);
    let zero = |digit: &&u8| **digit == b'0';
    let leading = all().take_while(zero).count();
    let kept = whole.len() + fraction.len() - leading;
    if kept == 0 {
        out.push(b'0');
        return;
    }
    let trailing = all().rev().take_while(zero).count();
    let fraction_digits = i64::try_from(fraction.len()).ok();
    let power = power
        .zip(fraction_digits)
        .and_then(|(power, digits)| power.checked_sub(digits))
        .and_then(|power| power.checked_add(i64::try_from(trailing).ok()?));
    let Some(power) = power else {
        out.extend_from_slice(text);
        return;
    };
    if negative {
        out.push(b'-');
    }
    out.extend(all().skip(leading).take(kept - trailing));
    out.push(b'e');
    out.extend_from_slice(power.to_string().as_bytes());
}

fn exponent(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let mut out = Vec::new();
        canonical(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn spellings_of_one_value_are_one_text() {
        for same in [
            &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"][..],
            &["-120", "-1.2e2", "-120.0", "-12E1"],
            &["0", "-0", "0.0", "0e5", "-0.00E-7"],
            &["0.001", "1e-3", "10E-4"],
        ] {
            assert!(same.iter().all(|text| of(text) == of(same[0])), "{same:?}");
        }
    }

    #[test]
    fn values_that_a_float_would_round_together_stay_apart() {
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000000000001"),
            ("1", "-1"),
            ("1e400", "1e401"),
            ("10", "1"),
        ] {
            assert_ne!(of(one), of(other));
        }
        assert_eq!(of("1e99999999999999999999"), "1e99999999999999999999");
    }
}

//! Formats numbers, sizes and times for people.

/// `1,234,567`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1,234,567`, `12.3`.
pub(crate) fn decimal(value: f64) -> String {
    if value == 0.0 || value >= 100.0 {
        number(value.round() as u64)
    } else {
        format!("{value:.2}")
    }
}

/// `1.50 GiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut at = 0;
    while value >= 1024.0 && at + 1 < units.len() {
        value /= 1024.0;
        at += 1;
    }
    if at == 0 {
        format!("{value:.0} B")
    } else {
        format!("{value:.2} {}", units[at])
    }
}

/// `850 µs`, `12.3 ms`, `1.25 s`.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 100.0 => format!("{ms:.2} ms"),
        ms if ms < 1e4 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(
            (number(0), number(999), number(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        assert_eq!(
            (bytes(512.0), bytes(1_610_612_736.0)),
            ("512 B".into(), "1.50 GiB".into())
        );
        assert_eq!(
            (time(0.85), time(12.345), time(1_250.0), time(61_000.0)),
            (
                "850 µs".into(),
                "12.35 ms".into(),
                "1250 ms".into(),
                "61.00 s".into()
            )
        );
    }
}

//! The figures, beside their targets.

use super::proxy::ProxyKind;
use super::rounds::{Figure, Measured, Row};

/// The most memory that Tidegate may have resident, in MiB (except for the bodies of the largest case).
pub(super) const PEAK_MIB_MAX: f64 = 256.0;

pub(super) fn print(machine: &str, measured: &[Measured]) -> String {
    let mut lines = vec![
        [
            "case",
            "proxy",
            "CPU s / M docs (min..max)",
            "docs/s",
            "p50 ms",
            "p99 ms",
            "max ms",
            "peak MiB",
            "misrouted",
            "targets",
        ]
        .map(str::to_owned),
    ];
    for one in measured {
        for row in &one.rows {
            lines.push([
                one.case.name.to_owned(),
                format!("{:?}", row.proxy).to_lowercase(),
                format!("{:.2} ({:.2}..{:.2})", row.cpu.median, row.cpu.min, row.cpu.max),
                thousands(row.docs_a_second.median),
                ms(row.p50_ms),
                ms(row.p99_ms),
                ms(row.max_ms),
                format!("{:.0}", row.peak_mib),
                if one.case.ids {
                    format!("{:.1} %", row.misrouted * 100.0)
                } else {
                    "–".to_owned()
                },
                targets(one, row, measured),
            ]);
        }
    }
    let mut text = align(&lines);
    text.push('\n');
    for one in measured {
        text += &format!(
            "{}: {}; {} connections\n",
            one.case.name, one.case.about, one.case.connections
        );
    }
    text + machine
}

/// Returns each target with its mark.
fn targets(one: &Measured, row: &Row, all: &[Measured]) -> String {
    if row.proxy != ProxyKind::Tidegate {
        return String::new();
    }
    let mut marks = Vec::new();
    if let Some(target) = one.case.target {
        marks.push(format!("CPU ≤ {target:.1}: {}", mark(row.cpu.median <= target)));
    }
    let of = |measured: &Measured, kind| {
        let row = measured.rows.iter().find(|row| row.proxy == kind);
        row.map(|row| row.cpu.median)
    };
    if let (Some(most), Some(haproxy)) = (one.case.of_haproxy, of(one, ProxyKind::Haproxy)) {
        marks.push(part(row.cpu.median / haproxy, most, "HAProxy's"));
    }
    if let Some((name, most)) = one.case.of_case
        && let Some(other) = all.iter().find(|other| other.case.name == name)
        && let Some(other) = of(other, ProxyKind::Tidegate)
    {
        marks.push(part(row.cpu.median / other, most, &format!("{name}'s")));
    }
    marks.push(format!(
        "≤ {PEAK_MIB_MAX:.0} MiB: {}",
        mark(row.peak_mib <= PEAK_MIB_MAX)
    ));
    marks.join(", ")
}

/// Formats a cost as a fraction of another, with the most that it may be.
pub(super) fn part(got: f64, most: f64, whose: &str) -> String {
    format!("{got:.2} of {whose}, ≤ {most:.2}: {}", mark(got <= most))
}

pub(super) fn mark(kept: bool) -> &'static str {
    if kept { "ok" } else { "MISSED" }
}

fn ms(figure: Figure) -> String {
    format!("{:.1}", figure.median)
}

pub(super) fn thousands(number: f64) -> String {
    format!("{:.0} k", number / 1e3)
}

/// Formats a Markdown table that is also readable in a terminal.
pub(super) fn align<const N: usize>(lines: &[[String; N]]) -> String {
    let mut widths = [3; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(widths) {
            text += &format!("| {cell:<width$} ");
        }
        text += "|\n";
        if at == 0 {
            text += &widths.map(|width| format!("|{}", "-".repeat(width + 2))).concat();
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["a", "bcde"], ["xyz12", "f"]].map(|line| line.map(str::to_owned));
        assert_eq!(
            super::align(&lines),
            "| a     | bcde |\n|-------|------|\n| xyz12 | f    |\n"
        );
    }
}

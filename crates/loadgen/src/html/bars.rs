//! Bars side by side, and intervals, drawn as SVG.

use std::fmt::Write as _;

use super::chart::{round_up, short};
use super::escape;

/// Groups of bars.
pub(crate) struct Bars<'c> {
    pub(crate) title: &'c str,
    /// The bars of each group, by name and colour.
    pub(crate) kinds: Vec<(&'c str, &'c str)>,
    /// The label below each group, and its bars.
    pub(crate) groups: Vec<(String, Vec<Bar>)>,
}

/// A bar.
#[derive(Clone, Copy)]
pub(crate) struct Bar {
    /// The kind of the bar, as an index into `kinds`.
    pub(crate) kind: usize,
    pub(crate) value: f64,
}

/// A value and the interval around it.
pub(crate) struct Whiskers<'c> {
    pub(crate) name: String,
    pub(crate) colour: &'c str,
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

// === impl Bars ===

impl Bars<'_> {
    /// Draws the bars; `label` formats values.
    pub(crate) fn svg(&self, label: &dyn Fn(f64) -> String) -> String {
        let values = self.groups.iter().flat_map(|(_, bars)| bars).map(|bar| bar.value);
        let top = round_up(values.fold(0.0, f64::max)).max(1e-6);
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut out = format!("<figure><figcaption>{}", escape(self.title));
        for (name, colour) in &self.kinds {
            // Writing to a string can't fail.
            let _ = write!(out, "<i style=\"color:{colour}\">{}</i>", escape(name));
        }
        let _ = write!(
            out,
            "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">"
        );
        for at in 0..=4 {
            let value = top * f64::from(at) / 4.0;
            let (y, right) = (y(value), WIDTH - RIGHT);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(label(value))
            );
        }
        let room = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        for (at, (name, bars)) in self.groups.iter().enumerate() {
            let left = LEFT + room * at as f64;
            let width = (room * 0.8 / self.kinds.len().max(1) as f64).min(BAR_WIDTH_MAX);
            let begin = left + (room - width * bars.len() as f64) / 2.0;
            for (place, bar) in bars.iter().enumerate() {
                let (name, colour) = self.kinds.get(bar.kind).copied().unwrap_or(("", ""));
                let (x, y) = (begin + width * place as f64, y(bar.value));
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{colour}\">\
                     <title>{}: {}</title></rect>",
                    x + 1.0,
                    (width - 2.0).max(1.0),
                    HEIGHT - BOTTOM - y,
                    escape(name),
                    label(bar.value)
                );
            }
            let (x, y) = (left + room / 2.0, HEIGHT - 8.0);
            let _ = write!(
                out,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                escape(name)
            );
        }
        out + "</svg></figure>"
    }
}

/// Draws values with their intervals, one per row, around a line at zero. All are percentages.
pub(crate) fn whiskers(title: &str, rows: &[Whiskers<'_>]) -> String {
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.interval.unwrap_or((row.value, row.value));
        [low.abs(), high.abs()]
    });
    // With two rounds an interval may be wider than anything worth showing.
    let end = round_up(ends.fold(1.0, f64::max).min(PERCENT_MAX));
    let x = |value: f64| NAMES + (value.clamp(-end, end) + end) / (2.0 * end) * (WIDTH - NAMES - RIGHT);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut out = format!("<figure><figcaption>{}</figcaption>", escape(title));
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">",
        bottom + BOTTOM
    );
    for at in -2..=2 {
        let value = end * f64::from(at) / 2.0;
        let (x, class) = (x(value), ["grid", "zero"][usize::from(at == 0)]);
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            if at == 0 {
                "0 %".to_owned()
            } else {
                format!("{value:+} %")
            }
        );
    }
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        let (low, high) = row.interval.unwrap_or((row.value, row.value));
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.1}\">{}</text>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <circle cx=\"{:.1}\" cy=\"{y}\" r=\"6\" fill=\"{colour}\"><title>{:+.1} % ({low:+.1} to {high:+.1})</title></circle>",
            y + 4.0,
            escape(&row.name),
            x(low),
            x(high),
            x(row.value),
            row.value,
            colour = row.colour,
        );
    }
    out + "</svg></figure>"
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 28.0;
const BAR_WIDTH_MAX: f64 = 48.0;
const NAMES: f64 = 250.0;
const ROW: f64 = 30.0;
const PERCENT_MAX: f64 = 200.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_at_all_and_endless_intervals_are_drawn_all_the_same() {
        let none = Bars {
            title: "<none>",
            kinds: vec![],
            groups: vec![],
        };
        let drawn = none.svg(&|value| value.to_string());
        assert!(
            drawn.contains("&lt;none&gt;") && !drawn.contains("NaN"),
            "{drawn}"
        );
        let row = Whiskers {
            name: "a".to_owned(),
            colour: "red",
            value: 1e300,
            interval: Some((-1e300, f64::INFINITY)),
        };
        let drawn = whiskers("t", &[row]);
        assert!(!drawn.contains("NaN"), "{drawn}");
    }
}

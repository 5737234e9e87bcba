//! Bars side by side, and intervals, drawn as SVG.

use svg::Node as _;
use svg::node::element::{Rectangle, Title};

use super::figure::{LEFT, RIGHT, TOP, WIDTH, figure, line, picture, point, round_up, scale, tenths, text};

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
        let mut picture = picture(HEIGHT);
        scale(&mut picture, top, y, label);
        let room = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        for (at, (name, bars)) in self.groups.iter().enumerate() {
            let left = LEFT + room * at as f64;
            let width = (room * 0.8 / self.kinds.len().max(1) as f64).min(BAR_WIDTH_MAX);
            let begin = left + (room - width * bars.len() as f64) / 2.0;
            for (place, bar) in bars.iter().enumerate() {
                let (name, colour) = self.kinds.get(bar.kind).copied().unwrap_or(("", ""));
                let (x, y) = (begin + width * place as f64, y(bar.value));
                let tooltip = Title::new(format!("{name}: {}", label(bar.value)));
                let drawn = Rectangle::new().set("x", tenths(x + 1.0)).set("y", tenths(y));
                let drawn = drawn.set("width", tenths((width - 2.0).max(1.0)));
                let drawn = drawn.set("height", tenths(HEIGHT - BOTTOM - y)).set("rx", 2);
                picture.append(drawn.set("fill", colour).add(tooltip));
            }
            picture.append(text((left + room / 2.0, HEIGHT - 8.0), "middle", name));
        }
        figure(self.title, self.kinds.iter().copied(), &picture)
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
    let mut picture = picture(bottom + BOTTOM);
    for at in -2..=2 {
        let value = end * f64::from(at) / 2.0;
        let (x, class, name) = match at {
            0 => (x(value), "zero", "0 %".to_owned()),
            _ => (x(value), "grid", format!("{value:+} %")),
        };
        picture.append(line((x, TOP), (x, bottom)).set("class", class));
        picture.append(text((x, bottom + 18.0), "middle", &name));
    }
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        let (low, high) = row.interval.unwrap_or((row.value, row.value));
        let tooltip = format!("{:+.1} % ({low:+.1} to {high:+.1})", row.value);
        let interval = line((x(low), y), (x(high), y)).set("stroke-width", 3);
        picture.append(text((0.0, y + 4.0), "start", &row.name));
        picture.append(interval.set("stroke", row.colour));
        picture.append(point((x(row.value), y), 6.0, row.colour, &tooltip));
    }
    figure(title, std::iter::empty(), &picture)
}

const HEIGHT: f64 = 240.0;
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

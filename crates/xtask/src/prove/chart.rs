//! Draws a set of rows: throughput and cluster CPU as ratios to the direct way, with their intervals.

use svg::node::element::{Line, Rectangle, Text};
use svg::{Document, Node as _};

use super::row::{Measured, Ratio};

const ROW: f64 = 24.0;
const NAMES: f64 = 300.0;
const WIDTH: f64 = 300.0;
const GAP: f64 = 60.0;

/// Returns an SVG with two columns of bars on logarithmic scales, so that 2 and ½ are equally far from 1.
pub(super) fn of(measured: &Measured) -> String {
    let height = 60.0 + ROW * measured.rows.len() as f64;
    let whole = NAMES + 2.0 * (WIDTH + GAP);
    let title = format!("{}: Tidegate to direct", measured.title);
    let paper = Rectangle::new().set("width", whole).set("height", height);
    let mut svg = Document::new().set("viewBox", (0, 0, whole, height));
    svg.assign("font-family", "sans-serif");
    svg.assign("font-size", 13);
    svg.append(paper.set("fill", "#fff"));
    svg.append(text(10.0, 20.0, title).set("font-weight", "bold"));
    let speed = Column {
        left: NAMES,
        title: "documents a second",
        from: 0.5,
        to: 16.0,
        colour: "#2a7f9e",
    };
    let cpu = Column {
        left: NAMES + WIDTH + GAP,
        title: "cluster CPU for a document",
        from: 0.0625,
        to: 2.0,
        colour: "#b8652a",
    };
    for column in [&speed, &cpu] {
        column.head(&mut svg, height);
    }
    for (at, row) in measured.rows.iter().enumerate() {
        let y = 56.0 + ROW * at as f64;
        svg.append(text(10.0, y + 13.0, row.name.clone()));
        speed.bar(&mut svg, y, &row.speed);
        cpu.bar(&mut svg, y, &row.cpu);
    }
    format!("{svg}\n")
}

fn text(x: f64, y: f64, text: String) -> Text {
    Text::new(text).set("x", tenths(x)).set("y", y)
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str) -> Line {
    let line = Line::new().set("x1", tenths(from.0)).set("y1", from.1);
    let line = line.set("x2", tenths(to.0)).set("y2", to.1);
    line.set("stroke", colour)
}

fn tenths(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

struct Column {
    left: f64,
    title: &'static str,
    from: f64,
    to: f64,
    colour: &'static str,
}

impl Column {
    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.max(f64::MIN_POSITIVE) / self.from).log2() / (self.to / self.from).log2();
        self.left + share.clamp(0.0, 1.0) * WIDTH
    }

    fn head(&self, svg: &mut Document, height: f64) {
        svg.append(text(self.left, 36.0, self.title.to_owned()));
        let mut at = self.from;
        while at <= self.to {
            let (x, colour) = (self.x(at), if at == 1.0 { "#333" } else { "#ddd" });
            let label = text(x, 50.0, ((at * 100.0).round() / 100.0).to_string());
            svg.append(line((x, 52.0), (x, height), colour));
            svg.append(label.set("font-size", 10).set("text-anchor", "middle"));
            at *= 2.0;
        }
    }

    fn bar(&self, svg: &mut Document, y: f64, ratio: &Ratio) {
        if !ratio.value.is_finite() {
            return;
        }
        let (one, end) = (self.x(1.0), self.x(ratio.value));
        let bar = Rectangle::new().set("x", tenths(one.min(end))).set("y", y);
        let bar = bar.set("width", tenths((one - end).abs().max(1.0)));
        svg.append(bar.set("height", 16).set("fill", self.colour));
        let mut right = one.max(end);
        if let Some((low, high)) = ratio.interval {
            let (low, high, middle) = (self.x(low), self.x(high), y + 8.0);
            right = right.max(high);
            svg.append(line((low, middle), (high, middle), "#000"));
        }
        let value = text(right + 4.0, y + 13.0, format!("{:.2}", ratio.value));
        svg.append(value.set("font-size", 12));
    }
}

//! Draws a set of rows: throughput and cluster CPU as ratios to the direct way, with their intervals.

use std::fmt::Write as _;

use super::row::{Measured, Ratio};

const ROW: f64 = 24.0;
const NAMES: f64 = 300.0;
const WIDTH: f64 = 300.0;
const GAP: f64 = 60.0;

/// Returns an SVG with two columns of bars on logarithmic scales, so that 2 and ½ are equally far from 1.
pub(super) fn of(measured: &Measured) -> String {
    let height = 60.0 + ROW * measured.rows.len() as f64;
    let whole = NAMES + 2.0 * (WIDTH + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{whole}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-weight=\"bold\">{}: Tidegate to direct</text>\n",
        measured.title
    );
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
        let _ = writeln!(svg, "<text x=\"10\" y=\"{}\">{}</text>", y + 13.0, row.name);
        speed.bar(&mut svg, y, &row.speed);
        cpu.bar(&mut svg, y, &row.cpu);
    }
    svg.push_str("</svg>\n");
    svg
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

    fn head(&self, svg: &mut String, height: f64) {
        let _ = writeln!(svg, "<text x=\"{}\" y=\"36\">{}</text>", self.left, self.title);
        let mut at = self.from;
        while at <= self.to {
            let (x, line) = (self.x(at), if at == 1.0 { "#333" } else { "#ddd" });
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"52\" x2=\"{x:.1}\" y2=\"{height}\" stroke=\"{line}\"/>\
                 <text x=\"{x:.1}\" y=\"50\" font-size=\"10\" text-anchor=\"middle\">{}</text>",
                (at * 100.0).round() / 100.0
            );
            at *= 2.0;
        }
    }

    fn bar(&self, svg: &mut String, y: f64, ratio: &Ratio) {
        if !ratio.value.is_finite() {
            return;
        }
        let (one, end) = (self.x(1.0), self.x(ratio.value));
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"16\" fill=\"{}\"/>",
            one.min(end),
            (one - end).abs().max(1.0),
            self.colour
        );
        let mut right = one.max(end);
        if let Some((low, high)) = ratio.interval {
            let (low, high, middle) = (self.x(low), self.x(high), y + 8.0);
            right = right.max(high);
            let _ = write!(
                svg,
                "<line x1=\"{low:.1}\" y1=\"{middle}\" x2=\"{high:.1}\" y2=\"{middle}\" stroke=\"#000\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" font-size=\"12\">{:.2}</text>",
            right + 4.0,
            y + 13.0,
            ratio.value
        );
    }
}

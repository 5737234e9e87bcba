//! A line chart, drawn as SVG.

use std::fmt::Write as _;

use super::escape;

/// A chart.
pub(super) struct Chart<'c> {
    pub(super) title: &'c str,
    pub(super) lines: Vec<Line<'c>>,
    /// The labels below the chart, and their positions.
    pub(super) marks: Vec<(f64, String)>,
}

/// A line of a chart.
pub(super) struct Line<'c> {
    pub(super) name: &'c str,
    pub(super) colour: &'c str,
    pub(super) points: Vec<(f64, f64)>,
}

// === impl Chart ===

impl<'c> Chart<'c> {
    /// Creates a chart over seconds.
    pub(super) fn over_time(title: &'c str, lines: Vec<Line<'c>>) -> Self {
        let points = lines.iter().flat_map(|line| &line.points);
        let end = points.map(|(at, _)| *at).fold(1.0, f64::max);
        let step = round_up(end / 8.0).max(1.0);
        let marks = (0..).map(|at| f64::from(at) * step).take_while(|at| *at <= end);
        Chart {
            title,
            lines,
            marks: marks.map(|at| (at, format!("{at:.0} s"))).collect(),
        }
    }

    /// Draws the chart; `label` formats values.
    pub(super) fn svg(&self, label: &dyn Fn(f64) -> String) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_end = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let y_end = round_up(points().map(|(_, y)| *y).fold(0.0, f64::max)).max(1e-6);
        let x = |value: f64| LEFT + value / x_end * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_end * (HEIGHT - TOP - BOTTOM);
        let mut out = format!("<figure><figcaption>{}", escape(self.title));
        for line in &self.lines {
            // Writing to a string can't fail.
            let _ = write!(
                out,
                "<i style=\"color:{}\">{}</i>",
                line.colour,
                escape(line.name)
            );
        }
        let _ = write!(
            out,
            "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">"
        );
        for at in 0..=4 {
            let value = y_end * f64::from(at) / 4.0;
            let (x, y, right) = (LEFT - 6.0, y(value), WIDTH - RIGHT);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let _ = write!(
                out,
                "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                short(label(value))
            );
        }
        for (at, mark) in &self.marks {
            let (x, y) = (x(*at), HEIGHT - 6.0);
            let _ = write!(
                out,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                escape(mark)
            );
        }
        for line in &self.lines {
            let points = line
                .points
                .iter()
                .map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)));
            let points: Vec<String> = points.collect();
            // Each point gets a tooltip for the pointer; of very many points, none could be hit.
            for (at, value) in line
                .points
                .iter()
                .filter(|_| line.points.len() <= POINTS_SHOWN_MAX)
            {
                out += &circle((x(*at), y(*value)), line, &label(*value));
            }
            let _ = write!(
                out,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" points=\"{}\"/>",
                line.colour,
                points.join(" ")
            );
        }
        out + "</svg></figure>"
    }
}

/// Draws a point of a line, with its value as a tooltip.
fn circle((x, y): (f64, f64), line: &Line<'_>, value: &str) -> String {
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{}\"><title>{}: {value}</title></circle>",
        line.colour,
        escape(line.name),
    )
}

/// Shortens a label of an axis: `50`, not `50.00`, and a plain zero without a unit.
pub(super) fn short(label: String) -> String {
    let label = label.replace(".00", "");
    match label.split_once(' ') {
        Some(("0", _)) => "0".to_owned(),
        _ => label,
    }
}

/// Rounds up to the next of 1, 2, 2.5, 5 times a power of ten.
pub(super) fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps
        .into_iter()
        .find(|step| value <= step * power * (1.0 + 1e-9));
    step.unwrap_or(10.0) * power
}

const POINTS_SHOWN_MAX: usize = 240;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 26.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_values() {
        let ends = [0.0, 0.013, 1.0, 1.1, 2.3, 26.0, 99.0, 100.0].map(round_up);
        let wanted = [0.0, 0.02, 1.0, 2.0, 2.5, 50.0, 100.0, 100.0];
        assert!(
            ends.iter()
                .zip(wanted)
                .all(|(end, wanted)| (end - wanted).abs() < 1e-9),
            "{ends:?}"
        );
    }

    #[test]
    fn labels_of_axes_are_short() {
        let labels =
            ["0 µs", "50.00 ms", "12,500", "0", "2.50 s", "100 ms"].map(|label| short(label.to_owned()));
        assert_eq!(labels, ["0", "50 ms", "12,500", "0", "2.50 s", "100 ms"]);
    }

    #[test]
    fn a_chart_without_points_is_drawn_all_the_same() {
        let chart = Chart::over_time("<none>", vec![]).svg(&|value| value.to_string());
        assert!(
            chart.contains("&lt;none&gt;") && !chart.contains("NaN"),
            "{chart}"
        );
    }
}

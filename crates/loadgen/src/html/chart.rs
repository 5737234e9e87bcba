//! A line chart, drawn as SVG.

use svg::Node as _;
use svg::node::element::Polyline;

use super::figure::{LEFT, RIGHT, TOP, WIDTH, figure, picture, point, round_up, scale, text};

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
        let mut picture = picture(HEIGHT);
        scale(&mut picture, y_end, y, label);
        for (at, mark) in &self.marks {
            picture.append(text((x(*at), HEIGHT - 6.0), "middle", mark));
        }
        for line in &self.lines {
            // Each point gets a tooltip for the pointer; of very many points, none could be hit.
            if line.points.len() <= POINTS_SHOWN_MAX {
                for (at, value) in &line.points {
                    let tooltip = format!("{}: {}", line.name, label(*value));
                    picture.append(point((x(*at), y(*value)), 2.5, line.colour, &tooltip));
                }
            }
            let points = line.points.iter();
            let points = points.map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)));
            let drawn = Polyline::new().set("points", points.collect::<Vec<String>>());
            let drawn = drawn.set("fill", "none").set("stroke", line.colour);
            picture.append(drawn.set("stroke-width", 1.8).set("stroke-linejoin", "round"));
        }
        let colours = self.lines.iter().map(|line| (line.name, line.colour));
        figure(self.title, colours, &picture)
    }
}

const POINTS_SHOWN_MAX: usize = 240;
const HEIGHT: f64 = 240.0;
const BOTTOM: f64 = 26.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_without_points_is_drawn_all_the_same() {
        let chart = Chart::over_time("<none>", vec![]).svg(&|value| value.to_string());
        assert!(
            chart.contains("&lt;none&gt;") && !chart.contains("NaN"),
            "{chart}"
        );
    }
}

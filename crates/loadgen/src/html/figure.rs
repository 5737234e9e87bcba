//! What all pictures have in common: a title with the names of the colours, and a scale.

use svg::Node as _;
use svg::node::element::{Circle, Element, Line, Text, Title};

use super::escape;

/// Returns a picture below its title and the names of its colours.
pub(super) fn figure<'c>(
    title: &str,
    colours: impl Iterator<Item = (&'c str, &'c str)>,
    picture: &Element,
) -> String {
    let names: String = colours
        .map(|(name, colour)| format!("<i style=\"color:{colour}\">{}</i>", escape(name)))
        .collect();
    format!(
        "<figure><figcaption>{}{names}</figcaption>{picture}</figure>",
        escape(title)
    )
}

/// Returns an empty picture of this height.
pub(super) fn picture(height: f64) -> Element {
    let mut picture = Element::new("svg");
    picture.assign("viewBox", (0, 0, WIDTH, height));
    picture.assign("role", "img");
    picture
}

/// Draws lines from 0 to `end`, with the values that they stand for; `y` places a value.
pub(super) fn scale(picture: &mut Element, end: f64, y: impl Fn(f64) -> f64, label: &dyn Fn(f64) -> String) {
    for at in 0..=4 {
        let value = end * f64::from(at) / 4.0;
        let y = y(value);
        picture.append(line((LEFT, y), (WIDTH - RIGHT, y)).set("class", "grid"));
        picture.append(text((LEFT - 6.0, y + 4.0), "end", &short(label(value))));
    }
}

pub(super) fn line(from: (f64, f64), to: (f64, f64)) -> Line {
    let line = Line::new().set("x1", tenths(from.0)).set("y1", tenths(from.1));
    line.set("x2", tenths(to.0)).set("y2", tenths(to.1))
}

/// Writes a text that starts, has its middle or ends (`anchor`) at a place.
pub(super) fn text((x, y): (f64, f64), anchor: &str, text: &str) -> Text {
    let text = Text::new(text).set("x", tenths(x)).set("y", tenths(y));
    text.set("text-anchor", anchor)
}

/// Draws a point with a tooltip.
pub(super) fn point((x, y): (f64, f64), radius: f64, colour: &str, tooltip: &str) -> Circle {
    let point = Circle::new().set("cx", tenths(x)).set("cy", tenths(y));
    point
        .set("r", radius)
        .set("fill", colour)
        .add(Title::new(tooltip))
}

/// Rounds a length: no screen shows less than a tenth.
pub(super) fn tenths(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// Shortens a label of an axis: `50`, not `50.00`, and a plain zero without a unit.
fn short(label: String) -> String {
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

pub(super) const WIDTH: f64 = 900.0;
pub(super) const LEFT: f64 = 76.0;
pub(super) const RIGHT: f64 = 24.0;
pub(super) const TOP: f64 = 14.0;

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
}

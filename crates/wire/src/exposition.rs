//! Prometheus' text format 0.0.4, written in one place for all pages that are scraped: the gateway's admin
//! port and loadgen's page.

use std::fmt::{Display, Write as _};

/// A metric that every thing of one kind has: its name without the program's prefix, its kind, its help, and
/// the value for one thing. A thing with the value `None` has no sample.
pub type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<f64>);

/// A page of metrics that is being written.
#[derive(Debug)]
pub struct Exposition<'o>(&'o mut String);

// === impl Exposition ===

impl<'o> Exposition<'o> {
    /// Makes a writer that continues a page.
    pub fn new(page: &'o mut String) -> Self {
        Self(page)
    }

    /// Writes one metric, under its full name. Each sample has its labels as they stand between the braces.
    pub fn metric<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    /// Writes metrics whose names begin with `prefix`, each with a sample for each of `things`.
    pub fn table<T>(&mut self, prefix: &str, metrics: &[Metric<T>], things: &[(String, &T)]) {
        for (name, kind, help, of) in metrics {
            let samples = things.iter();
            let samples = samples.filter_map(|(labels, thing)| Some((labels.clone(), of(thing)?)));
            self.metric(&format!("{prefix}{name}"), kind, help, samples);
        }
    }

    /// Adds a sample to the metric that was written last.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }
}

/// Escapes the value of a label.
pub fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_samples() {
        let mut page = String::new();
        let mut out = Exposition::new(&mut page);
        out.metric("up", "gauge", "Whether it runs.", [(String::new(), 1)]);
        let of: fn(&u8) -> Option<f64> = |value| (*value > 0).then(|| f64::from(*value));
        let labels = format!("of=\"{}\"", escape("a\"b"));
        out.table(
            "tidegate_",
            &[("size", "counter", "How large.", of)],
            &[(labels, &7), (String::new(), &0)],
        );
        assert_eq!(
            page,
            "# HELP up Whether it runs.\n# TYPE up gauge\nup 1\n\
             # HELP tidegate_size How large.\n# TYPE tidegate_size counter\ntidegate_size{of=\"a\\\"b\"} 7\n"
        );
    }
}

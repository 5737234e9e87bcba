//! The distribution of values.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The distribution of values, in milliseconds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

// === impl Spread ===

impl Spread {
    pub(crate) fn of(values: &Histogram<u64>, per_ms: f64) -> Option<Spread> {
        let at = |quantile: f64| values.value_at_quantile(quantile) as f64 / per_ms;
        (!values.is_empty()).then(|| Spread {
            count: values.len(),
            min: values.min() as f64 / per_ms,
            mean: values.mean() / per_ms,
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: values.max() as f64 / per_ms,
        })
    }
}

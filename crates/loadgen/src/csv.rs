//! The run, second by second, as comma-separated values.

use std::io::{self, Write};

use crate::progress::Progress;
use crate::report::Report;

impl Report {
    /// Writes a line for each second: the rates of that second, and latencies in milliseconds.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "at_s,answers_per_s,documents_per_s,errors,invalid,failed_documents,sent_bytes_per_s,received_bytes_per_s,\
             mean_ms,p50_ms,p90_ms,p99_ms,p99_9_ms,max_ms"
        )?;
        self.timeline
            .iter()
            .try_for_each(|second| write_second(second, out))
    }
}

fn write_second(second: &Progress, out: &mut dyn Write) -> io::Result<()> {
    let last = &second.last;
    write!(
        out,
        "{:.3},{:.1},{:.1},{},{},{},{:.0},{:.0}",
        second.at_s,
        second.rate(last.answers),
        second.rate(last.documents),
        last.errors,
        last.invalid,
        last.failed_documents,
        second.rate(last.sent_bytes),
        second.rate(last.received_bytes),
    )?;
    match &second.latency_ms {
        Some(ms) => writeln!(
            out,
            ",{:.4},{:.4},{:.4},{:.4},{:.4},{:.4}",
            ms.mean, ms.p50, ms.p90, ms.p99, ms.p99_9, ms.max
        ),
        None => writeln!(out, ",,,,,,"),
    }
}

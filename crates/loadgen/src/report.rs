//! The report of a run: figures for people ([`Report`]'s `Display`) and for programs (it serialises).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::file::Load;
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::spread::Spread;
use crate::tally::Tally;
use crate::units::{bytes, decimal, number, time};
use crate::verified::Verified;

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Number of users that sent.
    pub users: usize,
    /// Figures of all requests together.
    #[serde(flatten)]
    pub total: Figures,
    /// Figures of each request of the file, in its order.
    pub by_request: Vec<(String, Figures)>,
    /// Requests of the schedule that were never sent, since all users were busy until the end. No latency
    /// includes them.
    pub unsent: u64,
    /// Progress in each second.
    pub timeline: Vec<Progress>,
    /// The outcome of the verification, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The accepted documents, if they were noted.
    #[serde(skip)]
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// Figures of one request of the file, or of all requests.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Requests that were answered.
    pub answers: u64,
    /// Answers per second.
    pub answers_per_s: f64,
    /// Bytes of bodies sent, as transferred.
    pub sent_bytes: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// Requests that got no answer.
    pub errors: u64,
    /// Requests that got no answer, by what went wrong.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Answers that failed their request's assertions; without assertions, those with a status of 400 or more
    /// or with documents that failed.
    pub invalid: u64,
    /// Invalid answers, by what was wrong with them.
    pub invalid_by_kind: BTreeMap<String, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The fate of the documents in bulk requests; none without such requests.
    pub documents: Option<Documents>,
    /// Time from the first byte sent (on a schedule: from when it was to be sent) to the last byte read; none
    /// if there were no answers.
    pub latency_ms: Option<Spread>,
    /// On a schedule: time from the first byte sent to the last byte read.
    pub service_ms: Option<Spread>,
    /// On a schedule: how much later than intended requests were sent.
    pub behind_ms: Option<Spread>,
    /// The time that servers report for bulk requests; none if they report none.
    pub took_ms: Option<Spread>,
}

/// The fate of the documents in bulk requests.
#[derive(Debug, Clone, Serialize)]
pub struct Documents {
    /// Documents whose items have no error.
    pub accepted: u64,
    /// Accepted documents per second.
    pub accepted_per_s: f64,
    /// Documents whose items have an error, although the request as a whole succeeded.
    pub failed: u64,
    /// Documents whose requests were refused as a whole.
    pub refused: u64,
    /// Documents whose fate is unknown: no answer came, or the answer does not mention them.
    pub unknown: u64,
    /// Items by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed items by the type of their error.
    pub errors: BTreeMap<String, u64>,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(
        load: &Load,
        tallies: &[Tally],
        took: Duration,
        users: usize,
        timeline: Vec<Progress>,
    ) -> Report {
        let seconds = took.as_secs_f64();
        let mut total = Tally::new();
        tallies.iter().for_each(|tally| total.add(tally));
        let by_request = load
            .request_names()
            .zip(tallies)
            .map(|(name, tally)| (name.to_owned(), Figures::new(tally, seconds)))
            .collect();
        Report {
            seconds,
            users,
            total: Figures::new(&total, seconds),
            by_request,
            unsent: 0,
            timeline,
            verified: None,
            ledger: None,
        }
    }
}

// === impl Figures ===

impl Figures {
    fn new(tally: &Tally, seconds: f64) -> Figures {
        let items = &tally.items;
        let documents = Documents {
            accepted: items.succeeded,
            accepted_per_s: per_second(items.succeeded, seconds),
            failed: items.failed,
            refused: items.refused,
            unknown: items.unknown,
            statuses: items.statuses.clone(),
            errors: items.errors.clone(),
        };
        let any = items.succeeded + items.failed + items.refused + items.unknown > 0;
        Figures {
            answers: tally.answers(),
            answers_per_s: per_second(tally.answers(), seconds),
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            errors: tally.failures(),
            errors_by_kind: tally.errors.clone(),
            invalid: tally.invalid,
            invalid_by_kind: tally.complaints.clone(),
            statuses: tally.statuses.clone(),
            documents: any.then_some(documents),
            latency_ms: Spread::of(&tally.latency_ns, 1e6),
            service_ms: Spread::of(&tally.service_ns, 1e6),
            behind_ms: Spread::of(&tally.behind_ns, 1e6),
            took_ms: Spread::of(&tally.took_ms, 1.0),
        }
    }
}

// === Display ===

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        writeln!(
            out,
            "{} requests in {:.2} s, {} sent, {} received",
            number(total.answers + total.errors),
            self.seconds,
            bytes(total.sent_bytes as f64),
            bytes(total.received_bytes as f64),
        )?;
        writeln!(out)?;
        let row = |out: &mut fmt::Formatter<'_>, name: &str, value: String| {
            writeln!(out, "{:<22}{value:>16}", format!("{name}:"))
        };
        row(out, "Requests/s", decimal(total.answers_per_s))?;
        if self.seconds > 0.0 {
            row(out, "Sent/s", bytes(total.sent_bytes as f64 / self.seconds))?;
            row(
                out,
                "Received/s",
                bytes(total.received_bytes as f64 / self.seconds),
            )?;
        }
        if let Some(latency) = &total.latency_ms {
            row(out, "Fastest request", time(latency.min))?;
            row(out, "Slowest request", time(latency.max))?;
        }
        if self.unsent > 0 {
            row(out, "Not sent in time", number(self.unsent))?;
            writeln!(
                out,
                "  all users were busy; no latency counts these, so it is worse than it looks"
            )?;
        }
        row(out, "Errors (no answer)", number(total.errors))?;
        for (kind, count) in &total.errors_by_kind {
            writeln!(out, "  {} × {kind}", number(*count))?;
        }
        row(out, "Invalid answers", number(total.invalid))?;
        for (kind, count) in &total.invalid_by_kind {
            writeln!(out, "  {} × {kind}", number(*count))?;
        }
        for (status, count) in &total.statuses {
            row(out, &format!("Status {status}"), number(*count))?;
        }
        if let Some(documents) = &total.documents {
            write_documents(out, documents)?;
        }
        write_spreads(out, self)?;
        match &self.verified {
            Some(verified) => write!(out, "\n{verified}"),
            None => Ok(()),
        }
    }
}

fn write_documents(out: &mut fmt::Formatter<'_>, documents: &Documents) -> fmt::Result {
    writeln!(out)?;
    let row = |out: &mut fmt::Formatter<'_>, name: &str, value: String| {
        writeln!(out, "{:<22}{value:>16}", format!("{name}:"))
    };
    row(out, "Documents/s", decimal(documents.accepted_per_s))?;
    row(out, "Documents accepted", number(documents.accepted))?;
    row(out, "Documents failed", number(documents.failed))?;
    for (kind, count) in &documents.errors {
        writeln!(out, "  {} × {kind}", number(*count))?;
    }
    if documents.refused > 0 {
        row(out, "Documents refused", number(documents.refused))?;
    }
    if documents.unknown > 0 {
        row(out, "Fate unknown", number(documents.unknown))?;
    }
    for (status, count) in &documents.statuses {
        row(out, &format!("Item status {status}"), number(*count))?;
    }
    Ok(())
}

fn write_spreads(out: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let mut rows: Vec<(&str, &Spread)> = Vec::new();
    rows.extend(
        report
            .total
            .latency_ms
            .as_ref()
            .map(|spread| ("all requests", spread)),
    );
    if report.by_request.len() > 1 {
        rows.extend(
            report.by_request.iter().filter_map(|(name, figures)| {
                figures.latency_ms.as_ref().map(|spread| (name.as_str(), spread))
            }),
        );
    }
    rows.extend(
        report
            .total
            .took_ms
            .as_ref()
            .map(|spread| ("took (by servers)", spread)),
    );
    let total = &report.total;
    rows.extend(
        total
            .service_ms
            .as_ref()
            .map(|spread| ("from its sending only", spread)),
    );
    rows.extend(
        total
            .behind_ms
            .as_ref()
            .map(|spread| ("sent behind schedule", spread)),
    );
    let Some(width) = rows
        .iter()
        .map(|(name, _)| name.chars().count().min(NAME_WIDTH))
        .max()
    else {
        return Ok(());
    };
    writeln!(out)?;
    writeln!(
        out,
        "{:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "Latency", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"
    )?;
    for (name, spread) in rows {
        let name: String = name.chars().take(NAME_WIDTH).collect();
        write!(out, "{name:<width$}")?;
        for value in [
            spread.mean,
            spread.p50,
            spread.p90,
            spread.p99,
            spread.p99_9,
            spread.p99_99,
            spread.max,
        ] {
            write!(out, " {:>9}", time(value))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

const NAME_WIDTH: usize = 40;

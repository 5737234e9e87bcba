//! The report as one file for a browser: tables, and charts drawn as SVG. The page loads nothing from
//! anywhere.

mod bars;
mod chart;
mod figure;

use std::fmt::Write as _;
use std::io::{self, Write};

pub(crate) use self::bars::{Bar, Bars, Whiskers, whiskers};
use self::chart::{Chart, Line};
use crate::progress::Progress;
use crate::report::Report;
use crate::spread::Spread;
use crate::units::{bytes, decimal, number, time};

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_html(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let body = tiles(self) + &charts(self) + &tables(self);
        out.write_all(page(title, &body).as_bytes())
    }
}

/// Returns a whole page.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>\
         <h1>{title}</h1>{body}</main></body></html>\n"
    )
}

/// Returns the most important figures as tiles.
fn tiles(report: &Report) -> String {
    let total = &report.total;
    let mut tiles = vec![("requests/s", decimal(total.answers_per_s), false)];
    if let Some(documents) = &total.documents {
        tiles.push(("documents/s", decimal(documents.accepted_per_s), false));
        tiles.push(("documents accepted", number(documents.accepted), false));
        let lost = documents.failed + documents.refused + documents.unknown;
        tiles.push(("documents not accepted", number(lost), lost > 0));
    }
    if let Some(latency) = &total.latency_ms {
        tiles.push(("median", time(latency.p50), false));
        tiles.push(("99 of 100 within", time(latency.p99), false));
    }
    if report.unsent > 0 {
        tiles.push(("requests not sent in time", number(report.unsent), true));
    }
    tiles.push(("errors", number(total.errors), total.errors > 0));
    tiles.push(("invalid answers", number(total.invalid), total.invalid > 0));
    let mut out = String::from("<section class=\"tiles\">");
    for (name, value, bad) in tiles {
        let class = if bad { " class=\"bad\"" } else { "" };
        // Writing to a string can't fail.
        let _ = write!(out, "<div{class}><b>{value}</b><span>{name}</span></div>");
    }
    out + "</section>"
}

fn charts(report: &Report) -> String {
    // The last stretch may be so short that its rates say nothing.
    let whole = |second: &&Progress| second.span_s >= 0.5 || report.timeline.len() == 1;
    let seconds: Vec<&Progress> = report.timeline.iter().filter(whole).collect();
    let line = |name, colour, value: &dyn Fn(&Progress) -> Option<f64>| Line {
        name,
        colour,
        points: seconds
            .iter()
            .filter_map(|second| Some((second.at_s, value(second)?)))
            .collect(),
    };
    let mut out = String::new();
    if report.total.documents.is_some() {
        let accepted = line("accepted", BLUE, &|second| {
            Some(second.rate(second.last.documents))
        });
        let failed = line("failed", RED, &|second| {
            Some(second.rate(second.last.failed_documents))
        });
        out += &Chart::over_time("Documents a second", vec![accepted, failed]).svg(&decimal);
    }
    let answers = line("answers", BLUE, &|second| Some(second.rate(second.last.answers)));
    let errors = line("errors", RED, &|second| Some(second.rate(second.last.errors)));
    out += &Chart::over_time("Requests a second", vec![answers, errors]).svg(&decimal);
    let latency = |name, colour, pick: fn(&Spread) -> f64| {
        line(name, colour, &|second| second.latency_ms.as_ref().map(pick))
    };
    let lines = vec![
        latency("p50", BLUE, |spread| spread.p50),
        latency("p90", GREEN, |spread| spread.p90),
        latency("p99", AMBER, |spread| spread.p99),
        latency("max", RED, |spread| spread.max),
    ];
    out += &Chart::over_time("Latency", lines).svg(&time);
    if let Some(spread) = &report.total.latency_ms {
        out += &distribution(spread).svg(&time);
    }
    out
}

/// Draws latency by share of requests; each step is ten times rarer than the one before.
fn distribution(spread: &Spread) -> Chart<'static> {
    let steps = [
        ("50 %", spread.p50),
        ("90 %", spread.p90),
        ("99 %", spread.p99),
        ("99.9 %", spread.p99_9),
        ("99.99 %", spread.p99_99),
        ("all", spread.max),
    ];
    let points = steps
        .iter()
        .enumerate()
        .map(|(at, (_, value))| (at as f64, *value));
    Chart {
        title: "Latency by share of requests",
        lines: vec![Line {
            name: "within",
            colour: BLUE,
            points: points.collect(),
        }],
        marks: steps
            .iter()
            .enumerate()
            .map(|(at, (name, _))| (at as f64, (*name).to_owned()))
            .collect(),
    }
}

fn tables(report: &Report) -> String {
    let total = &report.total;
    let mut rows = vec![
        ("Time".to_owned(), format!("{:.2} s", report.seconds)),
        ("Users".to_owned(), number(report.users as u64)),
        ("Requests answered".to_owned(), number(total.answers)),
        ("Sent".to_owned(), bytes(total.sent_bytes as f64)),
        ("Received".to_owned(), bytes(total.received_bytes as f64)),
    ];
    let counted = |what: &str, counts: Vec<(String, u64)>| {
        let counts = counts.into_iter();
        counts
            .map(|(name, count)| (format!("{what} {name}"), number(count)))
            .collect::<Vec<_>>()
    };
    let statuses = |counts: &std::collections::BTreeMap<u16, u64>| {
        counts
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect()
    };
    let kinds = |counts: &std::collections::BTreeMap<String, u64>| {
        counts
            .iter()
            .map(|(kind, count)| (kind.clone(), *count))
            .collect()
    };
    rows.extend(counted("Status", statuses(&total.statuses)));
    rows.extend(counted("Error:", kinds(&total.errors_by_kind)));
    rows.extend(counted("Invalid:", kinds(&total.invalid_by_kind)));
    if let Some(documents) = &total.documents {
        rows.extend([
            ("Documents accepted".to_owned(), number(documents.accepted)),
            ("Documents failed".to_owned(), number(documents.failed)),
            (
                "Documents refused with their request".to_owned(),
                number(documents.refused),
            ),
            ("Documents of unknown fate".to_owned(), number(documents.unknown)),
        ]);
        rows.extend(counted("Item status", statuses(&documents.statuses)));
        rows.extend(counted("Item error:", kinds(&documents.errors)));
    }
    let mut out = String::from("<h2>Counts</h2><table>");
    for (name, value) in rows {
        let _ = write!(out, "<tr><td>{}<td>{}", escape(&name), escape(&value));
    }
    out + "</table>" + &latencies(report)
}

fn latencies(report: &Report) -> String {
    let total = &report.total;
    let mut rows: Vec<(&str, Option<&Spread>)> = vec![("all requests", total.latency_ms.as_ref())];
    if report.by_request.len() > 1 {
        let each = report.by_request.iter();
        rows.extend(each.map(|(name, figures)| (name.as_str(), figures.latency_ms.as_ref())));
    }
    rows.extend([
        ("from its sending only", total.service_ms.as_ref()),
        ("sent behind schedule", total.behind_ms.as_ref()),
        ("took, by servers", total.took_ms.as_ref()),
    ]);
    let mut out = String::from("<h2>Latency</h2><table><tr><th>");
    for head in [
        "mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max",
    ] {
        let _ = write!(out, "<th>{head}");
    }
    for (name, spread) in rows {
        let Some(ms) = spread else { continue };
        let _ = write!(out, "<tr><td>{}", escape(name));
        for value in [
            ms.mean, ms.p50, ms.p75, ms.p90, ms.p95, ms.p99, ms.p99_9, ms.p99_99, ms.max,
        ] {
            let _ = write!(out, "<td>{}", time(value));
        }
    }
    out + "</table>"
}

/// Escapes a text for use between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

pub(crate) const BLUE: &str = "#2f6fde";
pub(crate) const GREY: &str = "#8a94a6";
const GREEN: &str = "#2a9d5c";
const AMBER: &str = "#d98e04";
const RED: &str = "#d43d3d";

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c2430;--dim:#68748a;--line:#dfe4ec;--card:#fff;--page:#f5f7fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf1;--dim:#93a0b5;--line:#2c3645;--card:#1a212c;--page:#12171f}}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:24px;margin:0 0 16px}h2{font-size:17px;margin:28px 0 8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tiles b{display:block;font-size:20px;font-variant-numeric:tabular-nums}.tiles span{color:var(--dim);font-size:13px}
.bad b{color:#d43d3d}
figure{margin:16px 0 0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
figcaption{font-weight:600;display:flex;gap:14px;flex-wrap:wrap}figcaption i{font-style:normal;font-weight:400;font-size:13px}
figcaption i::before{content:'';display:inline-block;width:10px;height:10px;border-radius:3px;background:currentColor;margin-right:5px}
svg{display:block;width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}svg .grid{stroke:var(--line)}svg .zero{stroke:var(--dim)}
.verdict{font-size:17px;margin:8px 0}
table{border-collapse:collapse;width:100%;background:var(--card);font-variant-numeric:tabular-nums;font-size:14px}
td,th{border:1px solid var(--line);padding:4px 10px;text-align:right;font-weight:400}
td:first-child,th:first-child{text-align:left}th{color:var(--dim)}
";

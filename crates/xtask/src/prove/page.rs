//! The page's tables, from the latest measurement of each set.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::row::{Measured, Row};
use super::{Set, chart};

const BEGIN: &str = "<!-- measured by ./dev prove -->";
const END: &str = "<!-- until here -->";

/// Writes the measurements into the page, and the charts beside it.
pub(super) fn write() -> Result<()> {
    let root = crate::root();
    let mut text = String::new();
    for set in Set::ALL {
        let Some(measured) = Measured::read(&set.file())? else {
            continue;
        };
        let chart = format!("proof/{}.svg", set.name());
        std::fs::write(root.join("docs").join(&chart), chart::of(&measured))?;
        let _ = write!(
            text,
            "### {}\n\n{}, {} rounds.\n\n{}\n![{}]({chart})\n\n",
            measured.title,
            measured.server,
            measured.rounds,
            table(&measured),
            measured.title,
        );
    }
    let page = root.join("docs/proof.md");
    let before = std::fs::read_to_string(&page)?;
    let (head, rest) = before
        .split_once(BEGIN)
        .context("docs/proof.md has no place for it")?;
    let (_, tail) = rest.split_once(END).context("docs/proof.md has no end of it")?;
    std::fs::write(&page, format!("{head}{BEGIN}\n\n{text}{END}{tail}"))?;
    Ok(())
}

pub(super) fn table(measured: &Measured) -> String {
    let mut table = "| clients × documents | docs/s, direct | docs/s, Tidegate | throughput | cluster CPU | CPU s/M, direct | CPU s/M, Tidegate \
         | p99 ms, direct | p99 ms, Tidegate | parts a request |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in &measured.rows {
        let _ = writeln!(table, "{}", line(row));
    }
    table
}

pub(super) fn line(row: &Row) -> String {
    let parts = match row.parts_a_request {
        0.0 => "–".to_owned(),
        parts => format!("{parts:.1}"),
    };
    format!(
        "| {} | {:.0} | {:.0} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {parts} |",
        row.name,
        row.direct_per_s,
        row.gateway_per_s,
        row.speed.text(),
        row.cpu.text(),
        row.direct_cpu,
        row.gateway_cpu,
        row.direct_p99_ms,
        row.gateway_p99_ms,
    )
}

//! The outcome as one file for a browser. The page loads nothing from anywhere.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::estimate::ChangeVerdict;
use super::options::{Phase, Way};
use super::outcome::{Compared, PhaseOutcome, Row, Run, seconds};
use crate::html::{BLUE, Bar, Bars, GREY, Whiskers, escape, page, whiskers};
use crate::units::{decimal, number, time};

impl Compared {
    /// Writes the page.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_html(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut body = format!(
            "<p>{}, {} rounds of {} documents {} ids, {} a request, {} clients; {} primaries, {} replicas. A run's time \
             ends when the index counts its documents.</p>",
            escape(&self.cluster),
            self.rounds,
            number(self.documents),
            if self.ids { "with" } else { "without" },
            number(u64::from(self.batch)),
            self.clients,
            self.shards,
            self.replicas,
        );
        for phase in &self.phases {
            let _ = write!(body, "<p class=\"verdict\">{}</p>", escape(&phase.sentence()));
        }
        body += &changes(&self.phases);
        for phase in &self.phases {
            body += &bars(self, phase.phase);
        }
        for phase in &self.phases {
            body += &averages(phase);
        }
        body += &runs(&self.runs);
        out.write_all(page(title, &body).as_bytes())
    }
}

/// Draws what the gateway changes, with intervals.
fn changes(phases: &[PhaseOutcome]) -> String {
    let rows: Vec<Whiskers<'_>> = phases
        .iter()
        .flat_map(|phase| {
            let each = [
                ("docs/s until counted", &phase.counted),
                ("docs/s until acknowledged", &phase.acknowledged),
                ("CPU of the nodes", &phase.cpu),
            ];
            each.into_iter().filter_map(|(name, change)| {
                let change = change.as_ref()?;
                let clear = matches!(change.verdict, ChangeVerdict::More | ChangeVerdict::Less);
                Some(Whiskers {
                    name: format!("{}: {name}", phase.phase.name()),
                    colour: if clear { BLUE } else { GREY },
                    value: change.percent,
                    interval: change.interval,
                })
            })
        })
        .collect();
    whiskers(
        "What the gateway changes (95 % confidence; grey: within the noise)",
        &rows,
    )
}

/// Draws the documents per second of each round.
fn bars(compared: &Compared, phase: Phase) -> String {
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for run in compared.runs.iter().filter(|run| run.phase == phase) {
        let name = format!("round {}", run.round);
        let bar = Bar {
            kind: usize::from(run.way == Way::Gateway),
            value: run.counted_per_s().unwrap_or(0.0),
        };
        match groups.last_mut().filter(|(last, _)| *last == name) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((name, vec![bar])),
        }
    }
    let title = match phase {
        Phase::New => "New documents a second until counted, in the order of the runs",
        Phase::Updates => "Updates a second until counted, in the order of the runs",
    };
    let bars = Bars {
        title,
        kinds: vec![("direct", GREY), ("gateway", BLUE)],
        groups,
    };
    bars.svg(&decimal)
}

fn averages(phase: &PhaseOutcome) -> String {
    let head = match phase.phase {
        Phase::New => "New documents, averages",
        Phase::Updates => "Updates, averages",
    };
    let mut out = format!("<h2>{head}</h2><table><tr><th><th>direct<th>gateway<th>change (95 % confidence)");
    for Row {
        name,
        direct,
        gateway,
        change,
    } in phase.rows()
    {
        let _ = write!(out, "<tr><td>{name}<td>{direct}<td>{gateway}<td>{change}");
    }
    out + "</table>"
}

fn runs(runs: &[Run]) -> String {
    let mut out = String::from("<h2>Runs</h2><table><tr><th>round");
    for head in [
        "phase",
        "way",
        "counted",
        "docs/s",
        "acknowledged",
        "docs/s",
        "p50",
        "p99",
        "CPU",
        "not accepted",
    ] {
        let _ = write!(out, "<th>{head}");
    }
    let or_dash = |text: Option<String>| text.unwrap_or("–".to_owned());
    for run in runs {
        let cells = [
            run.phase.name().to_owned(),
            run.way.name().to_owned(),
            or_dash(run.counted_s.map(seconds)),
            or_dash(run.counted_per_s().map(decimal)),
            seconds(run.acknowledged_s),
            decimal(run.acknowledged_per_s()),
            or_dash(run.p50_ms.map(time)),
            or_dash(run.p99_ms.map(time)),
            or_dash(run.cpu_s.map(seconds)),
            number(run.lost),
        ];
        let _ = write!(out, "<tr><td>{}", run.round);
        for cell in cells {
            let _ = write!(out, "<td>{cell}");
        }
        if let Some(flaw) = &run.flaw {
            let _ = write!(
                out,
                "<tr class=\"bad\"><td><td colspan=\"10\"><b>left out: {}</b>",
                escape(flaw)
            );
        }
    }
    out + "</table>"
}

//! `tidegate dead-letters patch`: one change for many letters.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Which, raw};
use crate::admin::{self, Admin, Terms};
use crate::output::{counted, plain};

/// Change fields in the sources of many letters
///
/// The command sends nothing: replay the letters afterwards. A step is a JSON
/// object with one of set, remove, rename and convert, as in
/// {"convert":{"field":"price","to":"long"}}. The steps run in the order given.
/// Fields that no step names stay byte for byte. A letter that a step does not fit
/// stays as it was, and is named; the exit status is then 1, with --dry-run too.
///
/// With --dry-run, the command shows twenty letters before and after. Otherwise it
/// asks first on a terminal; elsewhere, --yes is required.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    mut_arg("dry_run", |arg| arg.help("Only print what would change: how many letters, and twenty of them"))
)]
pub(super) struct Patch {
    #[command(flatten)]
    which: Which,
    /// Step to apply; may be repeated
    #[arg(long = "step", value_name = "JSON", required = true)]
    steps: Vec<String>,
    /// Leave out letters with smaller ids: a patch that broke off names the id
    #[arg(long, value_name = "ID")]
    from: Option<u64>,
}

/// The answer to a patch, or the sum of several answers. Letters are kept as the text that the gateway sent,
/// so that numbers keep all their digits.
#[derive(Serialize, Deserialize)]
struct Patched {
    #[serde(skip_serializing_if = "Option::is_none")]
    would: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patched: Option<u64>,
    unchanged: u64,
    refused: u64,
    refusals: Vec<Refusal>,
    preview: Vec<Pair>,
    more: bool,
    #[serde(default)]
    next: Option<u64>,
    /// What makes a request mean the same letters, and none that came since; older gateways leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Refusal {
    id: u64,
    why: String,
}

#[derive(Serialize, Deserialize)]
struct Pair {
    before: Box<RawValue>,
    after: Box<RawValue>,
}

/// The parts of a letter that a preview shows.
#[derive(Deserialize)]
struct Shown {
    id: u64,
    source: Box<RawValue>,
}

/// Runs the command.
pub(super) fn run(
    patch: &Patch,
    admin: &Admin,
    query: Terms,
    json: bool,
    out: &mut impl Write,
) -> Result<bool> {
    let steps = patch.steps.iter().map(|step| raw("--step", step));
    let steps = steps.collect::<Result<Vec<_>>>()?;
    let steps: Vec<&str> = steps.iter().map(|step| step.get()).collect();
    let body = format!("{{\"patch\":[{}]}}", steps.join(","));
    let mut query = patch.which.selected(query)?;
    if patch.which.yes && !patch.which.dry_run {
        return patch.tell(&patch.apply(admin, &query, &body)?, json, out);
    }
    let mut dry = query.clone();
    dry.push(("dry_run", true.to_string()));
    let would = patch.apply(admin, &dry, &body)?;
    match would.would.unwrap_or(0) {
        _ if patch.which.dry_run => return patch.tell(&would, json, out),
        0 => return patch.tell(&would.nothing_done(), json, out),
        count => {
            let question = format!("patch {}?", counted(count, "dead letter"));
            if !admin::confirm(&question)? {
                return Ok(false);
            }
        }
    }
    query.extend(would.before.map(|before| ("before", before.to_string())));
    patch.tell(&patch.apply(admin, &query, &body)?, json, out)
}

impl Patch {
    /// Sends a patch, and again from where the gateway stopped for lack of time, until all letters are done.
    /// The same request must not be sent twice: some steps change a letter again.
    fn apply(&self, admin: &Admin, query: &Terms, body: &str) -> Result<Patched> {
        let mut query = query.clone();
        let ask = |query: &Terms, from: Option<u64>| -> Result<Patched> {
            let mut query = query.clone();
            query.extend(from.map(|from| ("from", from.to_string())));
            admin.post_json("/dead_letters/_patch", &query, body)
        };
        let mut all = ask(&query, self.from)?;
        if query.iter().all(|(name, _)| *name != "before") {
            query.extend(all.before.map(|before| ("before", before.to_string())));
        }
        while let Some(next) = all.next {
            let part = ask(&query, Some(next)).with_context(|| match all.patched {
                Some(_) => format!("letters before {next} are done; see to the others with --from {next}"),
                None => format!("letters from {next} on were not looked at"),
            });
            all.add(part?);
        }
        Ok(all)
    }

    /// Prints the result; returns whether every selected letter was there and could be patched.
    fn tell(&self, done: &Patched, json: bool, out: &mut impl Write) -> Result<bool> {
        match json {
            true => writeln!(out, "{}", serde_json::to_string_pretty(done)?)?,
            false => done.write(out)?,
        }
        // Letters that nobody looked at, or that --from leaves out, are not missing.
        let missing = !done.more && self.from.is_none() && self.which.misses(done.letters());
        Ok(done.refused == 0 && !done.more && !missing)
    }
}

impl Patched {
    /// Adds the answer to the request that went on from here.
    fn add(&mut self, part: Self) {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other.unwrap_or(0));
        self.would = sum(self.would, part.would);
        self.patched = sum(self.patched, part.patched);
        self.unchanged += part.unchanged;
        self.refused += part.refused;
        self.refusals.extend(part.refusals);
        self.preview.extend(part.preview);
        self.preview.truncate(PREVIEW_MAX);
        (self.more, self.next) = (part.more, part.next);
    }

    /// Returns the result of a patch that a dry run showed to change nothing.
    fn nothing_done(self) -> Self {
        Self {
            would: None,
            patched: Some(0),
            ..self
        }
    }

    fn letters(&self) -> u64 {
        self.would.or(self.patched).unwrap_or(0) + self.unchanged + self.refused
    }

    fn write(&self, out: &mut impl Write) -> Result<()> {
        match self.would {
            Some(count) => writeln!(out, "would patch: {count}")?,
            None => writeln!(out, "patched: {}", self.patched.unwrap_or(0))?,
        }
        for (name, count) in [("unchanged", self.unchanged), ("refused", self.refused)] {
            if count > 0 {
                writeln!(out, "{name}: {count}")?;
            }
        }
        for Refusal { id, why } in &self.refusals {
            writeln!(out, "  {id}: {}", plain(why))?;
        }
        if self.more {
            writeln!(out, "not all were looked at")?;
        }
        if self.would.is_some() {
            for pair in &self.preview {
                let before: Shown = serde_json::from_str(pair.before.get())?;
                let after: Shown = serde_json::from_str(pair.after.get())?;
                writeln!(out, "  {}: {}", before.id, plain(before.source.get()))?;
                writeln!(out, "  -> {}", plain(after.source.get()))?;
            }
        }
        Ok(())
    }
}

/// The most letters that are shown before and after.
const PREVIEW_MAX: usize = 20;

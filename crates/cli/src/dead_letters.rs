//! `tidegate dead-letters`: the documents that clusters refused, and what to do with them.

mod patch;

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write};
use std::ops::{ControlFlow, RangeInclusive};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::admin::{self, Admin, AdminArguments, Terms};
use crate::output::{counted, indented, no_json, plain, table, time};

/// List, count, show, change, replay and purge dead letters of a running gateway
///
/// A dead letter is a document that asynchronous mode accepted and a cluster
/// finally refused. The gateway keeps it, with the reason, until somebody replays
/// or purges it.
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 done, 1 there is no such letter or some were refused, 2 wrong
/// usage, 3 the gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    admin: AdminArguments,
    /// Name of the queue; needed if there are several
    #[arg(long, global = true, help_heading = "Gateway", value_name = "NAME")]
    queue: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    List(List),
    Count(Count),
    Show(Show),
    Edit(Edit),
    Patch(patch::Patch),
    Replay(Replay),
    Purge(Purge),
}

/// Select the letters that match all of these options
#[derive(Default, clap::Args)]
struct Filter {
    /// Select letters of this consumer group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Select letters for this index, as the action line or the URL names it
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// Select letters with this status, as in 400, 4xx or 400-404
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<String>,
    /// Select letters with this type of error, as in mapper_parsing_exception
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Select letters whose reason contains this text, in upper or lower case
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Select letters with a reason like this one; numbers and quoted text may differ
    #[arg(long, value_name = "REASON")]
    like: Option<String>,
    /// Select letters whose reason names this field of the document
    #[arg(long, value_name = "FIELD")]
    field: Option<String>,
    /// Select letters given up at this time or later: 2026-11-21T10:00:00Z, or 30m, 6h, 2d ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Select letters given up before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// List dead letters, oldest first
///
/// The command prints one line per letter; with --json, it prints everything about
/// each letter, with its document.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct List {
    #[command(flatten)]
    filter: Filter,
    /// Largest number of letters to list
    #[arg(long, value_name = "LETTERS", default_value_t = 100)]
    limit: u64,
    /// Continue where an earlier list ended: the number that it printed
    #[arg(long, value_name = "NEXT")]
    from: Option<u64>,
}

/// Count dead letters by what they have in common
///
/// The command prints one line per value, the most frequent first. A reason stands
/// for all reasons that differ from it only in numbers and in quoted text. --like,
/// --field, --index, --type, --status and --group take these values.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Count {
    #[command(flatten)]
    filter: Filter,
}

/// Show one letter: the reason why it died, and its lines
#[derive(clap::Args)]
struct Show {
    /// Id of the letter, as the list shows it
    id: u64,
}

/// Give a letter another action line or source
///
/// The command sends nothing: replay the letter afterwards. Whatever you do not
/// give stays as it is. The gateway keeps the original lines, and shows them beside
/// the new ones.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Edit {
    /// Id of the letter, as the list shows it
    id: u64,
    /// File with the new source, one JSON object; - reads standard input
    #[arg(long, value_name = "FILE", required_unless_present = "action")]
    source: Option<String>,
    /// New action line, as in {"index":{"_index":"logs","_id":"1"}}
    #[arg(long, value_name = "JSON")]
    action: Option<String>,
}

/// Put letters back into the queue
///
/// Replayed letters are delivered like documents that were just accepted, after
/// everything that the queue holds. A letter therefore overwrites a document that
/// was written again in the meantime. Only the consumer group that had given a
/// letter up delivers it. Letters of one document keep the order in which they
/// were accepted.
///
/// The command asks first on a terminal; elsewhere, --yes is required.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Replay {
    #[command(flatten)]
    which: Which,
}

/// Delete letters for good
///
/// The command asks first on a terminal; elsewhere, --yes is required.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Purge {
    #[command(flatten)]
    which: Which,
}

#[derive(Default, clap::Args)]
struct Which {
    /// Ids of letters, as the list shows them
    ids: Vec<u64>,
    #[command(flatten)]
    filter: Filter,
    /// Select all letters
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Only print how many letters are selected
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let admin = arguments.admin.client()?;
    let mut out = io::stdout().lock();
    let mut query: Terms = Vec::new();
    query.extend(arguments.queue.clone().map(|queue| ("queue", queue)));
    let json = arguments.admin.json;
    match &arguments.verb {
        Verb::List(list) => run_list(list, &admin, query, json, &mut out),
        Verb::Count(count) => run_count(count, &admin, query, json, &mut out),
        Verb::Show(show) => {
            let letter = admin.get_raw(&format!("/dead_letters/{}", show.id), &query)?;
            write_letter(&letter, json, &mut out)
        }
        Verb::Edit(edit) => {
            let body = edited(edit)?;
            let letter: Box<RawValue> = admin.put(&format!("/dead_letters/{}", edit.id), &query, &body)?;
            write_letter(&letter, json, &mut out)
        }
        Verb::Patch(patch) => patch::run(patch, &admin, query, json, &mut out),
        Verb::Replay(replay) => run_replay(&replay.which, &admin, query, json, &mut out),
        Verb::Purge(purge) => run_purge(&purge.which, &admin, query, json, &mut out),
    }
}

fn run_list(list: &List, admin: &Admin, mut query: Terms, json: bool, out: &mut impl Write) -> Result<bool> {
    list.filter.add_to(&mut query)?;
    query.push(("limit", list.limit.to_string()));
    query.extend(list.from.map(|from| ("from", from.to_string())));
    let listed = admin.get_raw("/dead_letters", &query)?;
    if json {
        writeln!(out, "{}", indented(listed.get()))?;
        return Ok(true);
    }
    let listed: Listed = serde_json::from_str(listed.get())?;
    let letters = listed.dead_letters.iter().map(|letter| facts(letter));
    let rows: Vec<_> = letters
        .collect::<Result<Vec<_>>>()?
        .iter()
        .map(|letter| {
            let text = |key: &str| letter[key].as_str().unwrap_or("-").to_owned();
            vec![
                letter["id"].to_string(),
                time(letter["died_ms"].as_u64().unwrap_or(0)),
                text("group"),
                text("index"),
                letter["status"].to_string(),
                text("type"),
                cut(&text("reason")),
            ]
        })
        .collect();
    let heads = [">id", "died", "group", "index", "status", "type", "reason"];
    table(out, &heads, &rows)?;
    if let Some(next) = listed.next {
        writeln!(out, "more: --from {next}")?;
    }
    Ok(true)
}

/// The properties that letters may have in common, in the order in which people usually ask for them.
const COMMON: [(&str, &str); 6] = [
    ("like", "reason like"),
    ("field", "field"),
    ("index", "index"),
    ("type", "type"),
    ("status", "status"),
    ("group", "group"),
];

fn run_count(
    count: &Count,
    admin: &Admin,
    mut query: Terms,
    json: bool,
    out: &mut impl Write,
) -> Result<bool> {
    count.filter.add_to(&mut query)?;
    let counted = admin.get("/dead_letters/_facets", &query)?;
    if json {
        writeln!(out, "{counted:#}")?;
        return Ok(true);
    }
    let mut rows = vec![vec![
        counted["letters"].to_string(),
        "all".to_owned(),
        String::new(),
    ]];
    for (key, name) in COMMON {
        let values = counted[key]["values"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for value in values {
            let text = value["value"].as_str().unwrap_or("-");
            rows.push(vec![
                value["letters"].to_string(),
                name.to_owned(),
                text.to_owned(),
            ]);
        }
        if let Some(others @ 1..) = counted[key]["others"].as_u64() {
            rows.push(vec![others.to_string(), name.to_owned(), "(others)".to_owned()]);
        }
    }
    table(out, &[">letters", "what", "value"], &rows)?;
    Ok(true)
}

/// A page of letters.
#[derive(Deserialize)]
struct Listed {
    dead_letters: Vec<Box<RawValue>>,
    #[serde(default)]
    next: Option<u64>,
}

/// Reads a letter without its lines: a client's document may be what no [`Value`] holds, such as half a
/// surrogate pair, a number of a thousand digits, or a thousand brackets.
fn facts(letter: &RawValue) -> Result<Value> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(letter.get())?;
    fields.retain(|name, _| !matches!(name.as_str(), "action" | "source" | "original"));
    Ok(serde_json::from_str(&serde_json::to_string(&fields)?)?)
}

/// The lines of a letter, as they were written.
#[derive(Deserialize)]
struct Lines {
    action: Option<Box<RawValue>>,
    source: Option<Box<RawValue>>,
    #[serde(default)]
    original: Option<Box<Lines>>,
}

fn write_letter(letter: &RawValue, json: bool, out: &mut impl Write) -> Result<bool> {
    if json {
        writeln!(out, "{}", indented(letter.get()))?;
        return Ok(true);
    }
    let lines: Lines = serde_json::from_str(letter.get())?;
    let letter = facts(letter)?;
    let line = |raw: &Option<Box<RawValue>>| match raw.as_ref().map_or("null", |raw| raw.get()) {
        // A line that is not JSON comes as a text.
        text if text.starts_with('"') => serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()),
        text => text.to_owned(),
    };
    let (origin, text) = (&letter["origin"], |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    });
    let stamp = |value: &Value| time(value.as_u64().unwrap_or(0));
    let mut facts = vec![
        ("id", text(&letter["id"])),
        (
            "group",
            format!("{}, cluster {}", text(&letter["group"]), text(&letter["cluster"])),
        ),
        ("accepted", stamp(&letter["accepted_ms"])),
        (
            "died",
            format!("{}, attempts: {}", stamp(&letter["died_ms"]), letter["attempts"]),
        ),
        (
            "status",
            format!("{} {}", letter["status"], text(&letter["type"])),
        ),
        ("reason", text(&letter["reason"])),
        ("index", text(&letter["index"])),
        (
            "origin",
            format!(
                "position {}, lane {}, place {}, {}",
                origin["position"],
                origin["lane"],
                origin["place"],
                text(&origin["target"])
            ),
        ),
        ("action", line(&lines.action)),
        ("source", line(&lines.source)),
    ];
    if let Some(edited) = letter["edited_ms"].as_u64() {
        facts.push(("edited", time(edited)));
        if let Some(original) = &lines.original {
            facts.push(("was", line(&original.action)));
            facts.push(("", line(&original.source)));
        }
    }
    for (name, value) in facts {
        writeln!(out, "{name:9} {}", plain(&value))?;
    }
    Ok(true)
}

/// Reads JSON that is sent exactly as it was written.
fn raw(name: &str, text: &str) -> Result<Box<RawValue>> {
    RawValue::from_string(text.trim().to_owned())
        .map_err(|error| admin::refuse(400, format!("{name}: {}", no_json(&error))))
}

/// Returns the body of an edit. It contains the action and the source exactly as they were written.
fn edited(edit: &Edit) -> Result<String> {
    let mut parts = Vec::new();
    if let Some(action) = &edit.action {
        parts.push(("action", raw("--action", action)?));
    }
    if let Some(file) = &edit.source {
        let mut text = String::new();
        match file.as_str() {
            "-" => io::stdin().lock().read_to_string(&mut text).map(drop),
            file => std::fs::read_to_string(file).map(|read| text = read),
        }
        .with_context(|| format!("--source: {file}"))?;
        parts.push(("source", raw("--source", &text)?));
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, raw)| format!("\"{name}\":{}", raw.get()))
        .collect();
    Ok(format!("{{{}}}", parts.join(",")))
}

fn run_replay(which: &Which, admin: &Admin, query: Terms, json: bool, out: &mut impl Write) -> Result<bool> {
    let ask = |query: &Terms| admin.post("/dead_letters/_replay", query);
    let nothing = json!({"replayed": 0, "refused": 0, "refusals": [], "stopped": null, "more": false});
    let query = match chosen(which, ask, query, ("replay", &nothing), json, out)? {
        ControlFlow::Continue(query) => query,
        ControlFlow::Break(done) => return Ok(done),
    };
    let done = replay_all(ask, query)?;
    let untried = done["more"] == true;
    let (refused, stopped) = (done["refused"].as_u64().unwrap_or(0), done["stopped"].as_str());
    if json {
        writeln!(out, "{done:#}")?;
    } else {
        writeln!(out, "replayed: {}", done["replayed"])?;
        if refused > 0 {
            writeln!(out, "refused: {refused}")?;
        }
        for refusal in done["refusals"].as_array().into_iter().flatten() {
            let why = refusal["why"].as_str().unwrap_or_default();
            writeln!(out, "  {}: {}", refusal["id"], plain(why))?;
        }
        if let Some(why) = stopped {
            writeln!(out, "stopped: {}", plain(why))?;
        }
        if untried {
            writeln!(
                out,
                "not all were tried, since too many are refused; purge or edit those first"
            )?;
        }
    }
    let found = done["replayed"].as_u64().unwrap_or(0) + refused;
    let missing = stopped.is_none() && !untried && which.misses(found);
    Ok(refused == 0 && stopped.is_none() && !untried && !missing)
}

/// Replays letters, and goes on as long as the gateway has more: it answers a long replay part by part.
fn replay_all(ask: impl Fn(&Terms) -> Result<Value>, mut query: Terms) -> Result<Value> {
    let mut done = ask(&query)?;
    // What the cluster refuses again meanwhile is a new letter, which matches as well.
    query.retain(|(name, _)| *name != "before");
    query = counted_ones(query, &done["before"]);
    let (mut all, mut now) = (0, done["replayed"].as_u64().unwrap_or(0));
    while done["more"] == true && now > 0 {
        all += now;
        done = ask(&query)?;
        now = done["replayed"].as_u64().unwrap_or(0);
        done["replayed"] = (all + now).into();
    }
    Ok(done)
}

fn run_purge(which: &Which, admin: &Admin, query: Terms, json: bool, out: &mut impl Write) -> Result<bool> {
    let ask = |query: &Terms| admin.post("/dead_letters/_purge", query);
    let mut query = match chosen(which, ask, query, ("purge", &json!({"purged": 0})), json, out)? {
        ControlFlow::Continue(query) => query,
        ControlFlow::Break(done) => return Ok(done),
    };
    query.push(("confirm", true.to_string()));
    let done = ask(&query)?;
    match json {
        true => writeln!(out, "{done:#}")?,
        false => writeln!(out, "purged: {}", done["purged"])?,
    }
    Ok(!which.misses(done["purged"].as_u64().unwrap_or(0)))
}

/// Returns the query for the selected letters, once the user has confirmed their number. `nothing` is the
/// gateway's answer if there are no such letters. If there is nothing to do, returns whether that counts as
/// success: it does not if a named letter is missing or the user said no.
fn chosen(
    which: &Which,
    ask: impl Fn(&Terms) -> Result<Value>,
    query: Terms,
    (verb, nothing): (&str, &Value),
    json: bool,
    out: &mut impl Write,
) -> Result<ControlFlow<bool, Terms>> {
    let query = which.selected(query)?;
    if which.yes && !which.dry_run {
        return Ok(ControlFlow::Continue(query));
    }
    let mut dry = query.clone();
    dry.push(("dry_run", true.to_string()));
    let answer = ask(&dry)?;
    let count = answer["would"].as_u64().unwrap_or(0);
    if which.dry_run {
        match json {
            true => writeln!(out, "{answer:#}")?,
            false => writeln!(out, "would {verb}: {count}")?,
        }
        return Ok(ControlFlow::Break(!which.misses(count)));
    }
    if count == 0 {
        match json {
            true => writeln!(out, "{nothing:#}")?,
            false => writeln!(out, "there is nothing to {verb}")?,
        }
        return Ok(ControlFlow::Break(!which.misses(0)));
    }
    Ok(
        match admin::confirm(&format!("{verb} {}?", counted(count, "dead letter")))? {
            true => ControlFlow::Continue(counted_ones(query, &answer["before"])),
            false => ControlFlow::Break(false),
        },
    )
}

/// Adds what makes a query mean the letters that an answer has counted, and none that came since.
fn counted_ones(mut query: Terms, before: &Value) -> Terms {
    query.extend(before.as_u64().map(|before| ("before", before.to_string())));
    query
}

// === impl Which ===

impl Which {
    /// Adds the selection to a query. No selection at all is refused: `--all` says that all are meant.
    fn selected(&self, mut query: Terms) -> Result<Terms> {
        self.filter.add_to(&mut query)?;
        if !self.ids.is_empty() {
            let ids: Vec<String> = self.ids.iter().map(u64::to_string).collect();
            query.push(("id", ids.join(",")));
        }
        if self.all {
            query.push(("all", true.to_string()));
        } else if self.ids.is_empty() && self.filter.is_empty() {
            let reason = "select letters: give their ids, a filter as in `--index NAME`, or --all";
            return Err(admin::refuse(400, reason.to_owned()));
        }
        Ok(query)
    }

    /// Returns whether fewer letters were there than are named, and prints how many are missing.
    fn misses(&self, found: u64) -> bool {
        let mut named = self.ids.clone();
        named.sort_unstable();
        named.dedup();
        let missing = (named.len() as u64).saturating_sub(found);
        match missing {
            0 => {}
            1 => eprintln!("tidegate: 1 of the named letters does not exist"),
            _ => eprintln!("tidegate: {missing} of the named letters do not exist"),
        }
        missing > 0
    }
}

// === impl Filter ===

impl Filter {
    fn terms(&self) -> [(&'static str, &Option<String>); 9] {
        [
            ("group", &self.group),
            ("index", &self.index),
            ("status", &self.status),
            ("type", &self.kind),
            ("reason", &self.reason),
            ("like", &self.like),
            ("field", &self.field),
            ("since", &self.since),
            ("until", &self.until),
        ]
    }

    fn is_empty(&self) -> bool {
        self.terms().iter().all(|(_, value)| value.is_none())
    }

    fn add_to(&self, query: &mut Terms) -> Result<()> {
        for (name, value) in self.terms() {
            let Some(value) = value else { continue };
            let value = match name {
                "since" | "until" => moment(value)?,
                _ => value.clone(),
            };
            query.push((name, value));
        }
        Ok(())
    }
}

/// Converts a time to the admin port's form. `2h` means two hours ago.
pub(crate) fn moment(text: &str) -> Result<String> {
    let ago = text.char_indices().next_back().and_then(|(at, unit)| {
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        let count: i64 = text[..at].parse().ok()?;
        let ms = count.checked_mul(seconds)?.checked_mul(1000)?;
        jiff::Timestamp::now().as_millisecond().checked_sub(ms)
    });
    if let Some(ms) = ago {
        return Ok(ms.max(0).to_string());
    }
    if text.parse::<jiff::Timestamp>().is_err() && text.parse::<u64>().is_err() {
        let why = format!("{text} is not a time: write 2026-11-21T10:00:00Z, or 30m, 6h, 2d for a time ago");
        return Err(admin::refuse(400, why));
    }
    Ok(text.to_owned())
}

/// Accepts a status, a class of statuses or a range of statuses, as the admin port reads them.
fn status(text: &str) -> Result<String> {
    let is_some = match text.strip_suffix("xx") {
        Some(class) => matches!(class, "1" | "2" | "3" | "4" | "5"),
        None => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let number = |text: &str| {
                text.parse::<u16>()
                    .ok()
                    .filter(|status| STATUSES.contains(status))
            };
            number(first)
                .zip(number(last))
                .is_some_and(|(first, last)| first <= last)
        }
    };
    anyhow::ensure!(
        is_some,
        "write a status from {} to {}, as in 400, 4xx or 400-404",
        STATUSES.start(),
        STATUSES.end()
    );
    Ok(text.to_owned())
}

/// Cuts a reason to what fits on a line.
fn cut(reason: &str) -> String {
    match reason.char_indices().nth(REASON_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &reason[..at]),
        None => reason.to_owned(),
    }
}

const REASON_CHARS_MAX: usize = 80;
/// The statuses that HTTP has.
const STATUSES: RangeInclusive<u16> = 100..=599;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statuses_that_http_has_are_accepted() {
        for right in ["100", "400", "599", "1xx", "5xx", "400-404", "404-404"] {
            assert_eq!(status(right).unwrap(), right);
        }
        for wrong in [
            "", "x", "0", "99", "600", "700", "-400", "0xx", "6xx", "04xx", "404-400", "400-600", "4",
        ] {
            assert!(status(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_to_do_is_told_as_json_where_json_is_asked_for() {
        let which = Which {
            all: true,
            ..Which::default()
        };
        let told = |json: bool| {
            let mut out = Vec::new();
            let none = |_: &Terms| Ok(json!({"would": 0}));
            let purged = json!({"purged": 0});
            let done = chosen(&which, none, Terms::new(), ("purge", &purged), json, &mut out).unwrap();
            assert!(matches!(done, ControlFlow::Break(true)), "it counts as done");
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(false), "there is nothing to purge\n");
        let value: Value = serde_json::from_str(&told(true)).unwrap();
        assert_eq!(value, json!({"purged": 0}));
    }

    #[test]
    fn a_replay_is_repeated_only_for_the_letters_that_were_there_when_it_began() {
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |query: &Terms| {
            asked.borrow_mut().push(query.clone());
            let more = asked.borrow().len() < 3;
            Ok(json!({"replayed": 5, "refused": 0, "stopped": null, "more": more, "before": 700}))
        };
        let done = replay_all(ask, vec![("all", "true".to_owned())]).unwrap();
        assert_eq!((&done["replayed"], &done["more"]), (&json!(15), &json!(false)));
        let first = vec![("all", "true".to_owned())];
        let again = [first.clone(), vec![("before", "700".to_owned())]].concat();
        assert_eq!(asked.into_inner(), [first, again.clone(), again]);
    }

    #[test]
    fn times_ago_that_are_too_long_are_refused_or_the_beginning() {
        assert!(moment("9000000000000000000s").is_err());
        assert!(moment("999999999999999999999d").is_err());
        assert_eq!(moment("36500d").unwrap(), "0");
        assert_eq!(moment("1000").unwrap(), "1000");
    }
}

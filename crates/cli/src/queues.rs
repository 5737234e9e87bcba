//! `tidegate queues`: shows what is in queues, and where consumer groups are.

pub(crate) mod carry;
mod export;
pub(crate) mod ground;
mod import;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::Value;

use crate::admin::{self, Admin, AdminArguments, Terms, segment};
use crate::dead_letters::moment;
use crate::output::{counted, table, time};
use crate::standstill;

/// List, show and browse queues, set offsets, export and import
///
/// All but export and import ask the gateway's admin port. They read a token from
/// --token-file or TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 done, 1 there is no such queue or group, 2 wrong usage, or not
/// possible now, 3 the gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    admin: AdminArguments,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Asked(Asked),
    Export(export::Export),
    Import(import::Import),
}

/// The subcommands that ask a running gateway.
#[derive(Subcommand)]
enum Asked {
    /// List queues, the accounts of their consumer groups, and why nothing moves
    List,
    Show(Show),
    Browse(Browse),
    Offset(Offset),
    RemoveGroup(RemoveGroup),
    Parked(Parked),
}

/// The data folder of a gateway, which need not run.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct InData {
    /// Configuration file (YAML) whose path.data names the folder of the queues
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder that path.data names, in place of --config
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

impl InData {
    fn data(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.data {
            return Ok(std::path::absolute(folder)?);
        }
        let file = self.config.as_ref().context("--config or --data is required")?;
        let loaded = ::config::Config::load(file);
        let loaded =
            loaded.map_err(|rejected| anyhow::anyhow!("the configuration can't be used:\n{rejected}"))?;
        // The path is made absolute: a relative one means another folder for a service than for a shell.
        Ok(std::path::absolute(&loaded.config.paths.data)?)
    }
}

/// Show one queue, lane by lane
#[derive(clap::Args)]
struct Show {
    /// Name of the queue
    queue: String,
}

/// Show records of a queue, oldest first
#[derive(clap::Args)]
struct Browse {
    /// Name of the queue
    queue: String,
    /// Select documents of this lane
    #[arg(long, value_name = "LANE")]
    lane: Option<u32>,
    /// Begin with the first record at or after this position
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    from: u64,
    /// Largest number of records to show
    #[arg(long, value_name = "RECORDS", default_value_t = 20)]
    limit: u64,
    /// Print the documents too
    #[arg(long)]
    text: bool,
}

/// Show where a consumer group is, or set it elsewhere
///
/// With --to, the group continues from another position. Stop its pipeline first.
/// Documents that the group passes over count as skipped. Documents that it goes
/// back over count as rewound, and are delivered once more.
///
/// In a queue in Kafka, a position belongs to a partition (--lane), no gateway may
/// deliver for the group meanwhile, and the answer counts messages.
///
/// The command asks first on a terminal; elsewhere, --yes is required.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Offset {
    /// Name of the queue
    queue: String,
    /// Name of the consumer group
    group: String,
    /// Where to continue: earliest, latest, a position, 2026-11-21T10:00:00Z, or 30m, 6h, 2d ago
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Set only this partition, of a queue in Kafka
    #[arg(long, value_name = "LANE", requires = "to")]
    lane: Option<u32>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Remove a consumer group that the configuration no longer has
///
/// The queue keeps no more records for it.
///
/// The command asks first on a terminal; elsewhere, --yes is required.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct RemoveGroup {
    /// Name of the queue
    queue: String,
    /// Name of the consumer group
    group: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Show what is parked: documents that wait apart from their lane
///
/// They wait because of their index, their request or the document itself, and the
/// gateway tries them again; nothing else waits for them. --release tries them at
/// once. --give-up makes them dead letters; the pipeline must run for that.
///
/// With --give-up, the command asks first on a terminal; elsewhere, --yes is
/// required.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Parked {
    /// Name of the queue
    queue: String,
    /// Select documents of this consumer group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Select documents that wait for this key, as the list shows it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Try the selected documents again at once
    #[arg(long, conflicts_with = "give_up")]
    release: bool,
    /// Turn the selected documents into dead letters
    #[arg(long)]
    give_up: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let json = arguments.admin.json;
    let mut out = io::stdout().lock();
    // An export or import needs no running gateway.
    let asked = match &arguments.verb {
        Verb::Export(export) => return export::run(export, json, &mut out),
        Verb::Import(import) => return import::run(import, json, &mut out),
        Verb::Asked(asked) => asked,
    };
    let admin = arguments.admin.client()?;
    match asked {
        Asked::List => {
            let all = admin.get("/queue/stats", &Terms::new())?;
            print(&all, json, &mut out, |all, out| {
                let queues = all.as_object().into_iter().flatten();
                let rows: Vec<_> = queues.flat_map(|(name, queue)| groups(name, queue)).collect();
                table(out, &GROUP_HEADS, &rows)?;
                let queues = all.as_object().into_iter().flatten();
                let lines: Vec<_> = queues
                    .flat_map(|(name, queue)| standstill::lines(name, queue))
                    .collect();
                standstill::write(&lines, out)
            })
        }
        Asked::Show(show) => {
            let queue = admin.get(&format!("/queue/{}", segment(&show.queue)), &Terms::new())?;
            print(&queue, json, &mut out, |queue, out| {
                write_queue(&show.queue, queue, out)
            })
        }
        Asked::Browse(browse) => run_browse(browse, &admin, json, &mut out),
        Asked::Offset(offset) => run_offset(offset, &admin, json, &mut out),
        Asked::Parked(parked) => run_parked(parked, &admin, json, &mut out),
        Asked::RemoveGroup(remove) => {
            let (queue, group) = (&remove.queue, &remove.group);
            let question = format!("forget the consumer group {group} of the queue {queue}?");
            if !remove.yes && !admin::confirm(&question)? {
                return Ok(false);
            }
            let path = format!("/queue/{}/groups/{}", segment(queue), segment(group));
            let done = admin.delete(&path, &vec![("confirm", true.to_string())])?;
            print(&done, json, &mut out, |done, out| {
                let pending = counted(done["pending"].as_u64().unwrap_or(0), "document");
                writeln!(out, "removed, with {pending} pending")
            })
        }
    }
}

fn print(
    answer: &Value,
    json: bool,
    out: &mut dyn Write,
    write: impl FnOnce(&Value, &mut dyn Write) -> io::Result<()>,
) -> Result<bool> {
    match json {
        true => writeln!(out, "{answer:#}")?,
        false => write(answer, out)?,
    }
    Ok(true)
}

fn write_queue(name: &str, queue: &Value, out: &mut dyn Write) -> io::Result<()> {
    let number = |key: &str| queue[key].as_u64().unwrap_or(0);
    writeln!(
        out,
        "{name}: {} accepted, {} in {}, positions {} to {}, {}",
        counted(number("accepted"), "document"),
        counted(number("bytes"), "byte"),
        counted(number("segments"), "segment"),
        queue["start"],
        queue["end"],
        counted(number("dead_letters"), "dead letter")
    )?;
    if let Some(rate) = queue["accepted_per_s"].as_f64() {
        let over = queue["rates_over_s"].as_f64().unwrap_or(0.0);
        writeln!(out, "{rate:.0} accepted a second, over the last {over:.0} s")?;
    }
    writeln!(out)?;
    table(out, &GROUP_HEADS, &groups(name, queue))?;
    standstill::write(&standstill::lines(name, queue), out)?;
    for (group, one) in queue["groups"].as_object().into_iter().flatten() {
        let lanes = one["lanes"].as_array().into_iter().flatten().enumerate();
        let rows: Vec<_> = lanes
            .map(|(number, lane)| {
                let of = |key: &str| lane[key].as_u64().unwrap_or(0);
                let pending = of("accepted").saturating_sub(of("done"));
                vec![
                    number.to_string(),
                    lane["position"].to_string(),
                    pending.to_string(),
                    lane["pending_bytes"].to_string(),
                    text(&lane["doing"]),
                    text(&lane["why"]),
                ]
            })
            .collect();
        if !rows.is_empty() {
            writeln!(out, "\n{group}")?;
            table(
                out,
                &[">lane", ">position", ">pending", ">bytes", "doing", "why"],
                &rows,
            )?;
        }
    }
    Ok(())
}

fn run_browse(browse: &Browse, admin: &Admin, json: bool, out: &mut dyn Write) -> Result<bool> {
    let mut query: Terms = vec![
        ("from", browse.from.to_string()),
        ("limit", browse.limit.to_string()),
    ];
    query.extend(browse.lane.map(|lane| ("lane", lane.to_string())));
    if browse.text {
        query.push(("text_bytes", TEXT_BYTES.to_string()));
    }
    let answer = admin.get(&format!("/queue/{}/records", segment(&browse.queue)), &query)?;
    print(&answer, json, out, |answer, out| {
        for record in answer["records"].as_array().into_iter().flatten() {
            let groups = || record["groups"].as_array().into_iter().flatten();
            let lanes: Vec<String> = groups().map(|group| group["lane"].to_string()).collect();
            writeln!(
                out,
                "{}  {}  {}  {}  lanes {}  {}",
                record["position"],
                time(record["time_ms"].as_u64().unwrap_or(0)),
                counted(record["documents"].as_u64().unwrap_or(0), "document"),
                counted(record["bytes"].as_u64().unwrap_or(0), "byte"),
                lanes.join(","),
                text(&record["params"]["target"]),
            )?;
            for group in groups().filter(|_| browse.text) {
                write!(out, "{}", group["text"].as_str().unwrap_or_default())?;
                if group["cut"] == true {
                    writeln!(out, "…")?;
                }
            }
        }
        match answer["next"].as_u64() {
            Some(next) => writeln!(out, "more: --from {next}"),
            None => Ok(()),
        }
    })
}

fn run_offset(offset: &Offset, admin: &Admin, json: bool, out: &mut dyn Write) -> Result<bool> {
    let (queue, group) = (&offset.queue, &offset.group);
    let path = format!("/queue/{}/groups/{}/offset", segment(queue), segment(group));
    let answer = match &offset.to {
        None => admin.get(&path, &Terms::new())?,
        Some(to) => {
            let place = match to.as_str() {
                "earliest" | "latest" => to.clone(),
                to if to.ends_with(['s', 'm', 'h', 'd']) => {
                    let ms: i64 = moment(to)?.parse()?;
                    jiff::Timestamp::from_millisecond(ms)?.to_string()
                }
                to => to.to_owned(),
            };
            if !offset.yes && !admin::confirm(&format!("set {group} of the queue {queue} to {to}?"))? {
                return Ok(false);
            }
            let mut query: Terms = vec![("to", place), ("confirm", true.to_string())];
            query.extend(offset.lane.map(|lane| ("lane", lane.to_string())));
            admin.post(&path, &query)?
        }
    };
    print(&answer, json, out, |answer, out| {
        if let Some(moved) = answer["moved"].as_object() {
            let of = |name: &str| moved.iter().find(|(key, _)| key.starts_with(name));
            let of = |name: &str| of(name).map_or(&Value::Null, |(_, count)| count);
            writeln!(out, "skipped {}, rewound {}", of("skipped"), of("rewound"))?;
        }
        if answer["kafka_group"].is_string() {
            return write_shared(answer, out);
        }
        let lanes = answer["lanes"].as_array().into_iter().flatten().enumerate();
        let rows: Vec<_> = lanes
            .map(|(number, lane)| {
                let keys = ["position", "pending", "pending_bytes", "skipped", "rewound"];
                let mut row = vec![number.to_string()];
                row.extend(keys.map(|key| lane[key].to_string()));
                row
            })
            .collect();
        table(
            out,
            &[">lane", ">position", ">pending", ">bytes", ">skipped", ">rewound"],
            &rows,
        )
    })
}

fn run_parked(parked: &Parked, admin: &Admin, json: bool, out: &mut dyn Write) -> Result<bool> {
    let queue = &parked.queue;
    let path = format!("/queue/{}/parked", segment(queue));
    let mut query = Terms::new();
    query.extend(parked.group.clone().map(|group| ("group", group)));
    let which: Terms = parked.key.clone().map(|key| ("key", key)).into_iter().collect();
    if parked.release {
        query.extend(which);
        let done = admin.post(&format!("{path}/_release"), &query)?;
        return print(&done, json, out, |done, out| match done["keys"].as_u64() {
            Some(1) => writeln!(out, "1 key is tried now"),
            _ => writeln!(out, "{} keys are tried now", done["keys"]),
        });
    }
    if parked.give_up {
        let what = parked.key.as_deref().unwrap_or("anything");
        let question = format!("turn what is parked for {what} in the queue {queue} into dead letters?");
        if !parked.yes && !admin::confirm(&question)? {
            return Ok(false);
        }
        query.extend(which);
        query.push(("confirm", true.to_string()));
        let done = admin.post(&format!("{path}/_give_up"), &query)?;
        return print(&done, json, out, |done, out| match done["documents"].as_u64() {
            Some(1) => writeln!(out, "1 document becomes a dead letter"),
            _ => writeln!(out, "{} documents become dead letters", done["documents"]),
        });
    }
    let mut answer = admin.get(&path, &query)?;
    if let Some(wanted) = &parked.key {
        retain_key(&mut answer, wanted);
    }
    print(&answer, json, out, |answer, out| {
        let groups = answer["groups"].as_object().into_iter().flatten();
        let rows = groups.flat_map(|(group, one)| {
            let keys = one["keys"].as_array().into_iter().flatten();
            keys.map(move |key| {
                vec![
                    group.clone(),
                    text(&key["key"]),
                    key["documents"].to_string(),
                    time(key["since_ms"].as_u64().unwrap_or(0)),
                    key["attempts"].to_string(),
                    format!("{:.1}", key["next_try_s"].as_f64().unwrap_or(0.0)),
                    text(&key["why"]),
                ]
            })
        });
        let rows: Vec<_> = rows.collect();
        let heads = [
            "group",
            "key",
            ">documents",
            "since",
            ">tries",
            ">next in s",
            "why",
        ];
        table(out, &heads, &rows)
    })
}

/// Leaves out the other keys of what is parked.
fn retain_key(answer: &mut Value, wanted: &str) {
    let groups = answer["groups"].as_object_mut().into_iter().flatten();
    for keys in groups.filter_map(|(_, group)| group["keys"].as_array_mut()) {
        keys.retain(|key| key["key"] == wanted);
    }
}

/// Writes the positions of a consumer group in Kafka.
fn write_shared(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let lanes = answer["lanes"].as_array().into_iter().flatten().enumerate();
    let rows: Vec<_> = lanes
        .map(|(number, lane)| {
            let keys = ["position", "pending_messages", "lost_messages"];
            let mut row = vec![number.to_string()];
            row.extend(keys.map(|key| lane[key].to_string()));
            row.push(if lane["held"] == true { "here" } else { "-" }.to_owned());
            row
        })
        .collect();
    table(
        out,
        &[
            ">lane",
            ">position",
            ">messages pending",
            ">messages lost",
            "held",
        ],
        &rows,
    )
}

fn groups(name: &str, queue: &Value) -> Vec<Vec<String>> {
    let groups = queue["groups"].as_object().into_iter().flatten();
    let row = |(group, one): (&String, &Value)| {
        let mut row = vec![name.to_owned(), group.clone(), text(&one["state"])];
        let keys = [
            "pending",
            "pending_bytes",
            "indexed",
            "dead",
            "parked",
            "replayed",
            "purged",
            "skipped",
            "lost",
        ];
        row.extend(keys.map(|key| one[key].to_string()));
        row.push(
            one["lag_s"]
                .as_f64()
                .map_or_else(|| "-".to_owned(), |lag| format!("{lag:.1}")),
        );
        row
    };
    groups.map(row).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

const GROUP_HEADS: [&str; 13] = [
    "queue",
    "group",
    "state",
    ">pending",
    ">bytes",
    ">indexed",
    ">dead",
    ">parked",
    ">replayed",
    ">purged",
    ">skipped",
    ">lost",
    ">lag s",
];
/// The largest number of bytes of a record's documents that `--text` prints.
const TEXT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_parked_for_other_keys_is_left_out() {
        let mut answer =
            json!({"groups": {"c0": {"keys": [{"key": "a"}, {"key": "b"}]}, "c1": {"keys": []}}});
        retain_key(&mut answer, "b");
        let wanted = json!({"groups": {"c0": {"keys": [{"key": "b"}]}, "c1": {"keys": []}}});
        assert_eq!(answer, wanted);
    }
}

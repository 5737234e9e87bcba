//! `tidegate trace`: where a document is, and what became of a request.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::admin::{self, AdminArguments, Terms};
use crate::output::{counted, time};

/// Say where a document is, or what became of a request
///
/// For each queue, consumer group and cluster, the command prints whether the
/// document is indexed (only if the cluster says so), pending and behind how much,
/// parked, dead, or not seen, and then how far it looked. It spends at most a
/// second on the records of a queue; --from continues the search.
///
/// With --queue and --position in place of a document, the command prints what
/// became of a request whose answer named them.
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 it is somewhere, 1 it is nowhere that could be looked at, 2
/// wrong usage, 3 the gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Index of the document; or an alias or a data stream
    #[arg(required_unless_present = "position", requires = "id")]
    index: Option<String>,
    /// Id of the document
    id: Option<String>,
    /// Routing of the document; not needed for its writes in the queue
    #[arg(long, value_name = "VALUE", requires = "id")]
    routing: Option<String>,
    /// Name of the queue to look through [default: all]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Position of a request, as its answer named it
    #[arg(long, value_name = "POSITION", conflicts_with = "id")]
    position: Option<u64>,
    /// Continue at this position, which an earlier search named when it ran out of time
    #[arg(long, value_name = "POSITION", requires_all = ["id", "queue"])]
    from: Option<u64>,
    #[command(flatten)]
    admin: AdminArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let admin = arguments.admin.client()?;
    let mut query = Terms::new();
    let texts = [
        ("index", &arguments.index),
        ("id", &arguments.id),
        ("routing", &arguments.routing),
        ("queue", &arguments.queue),
    ];
    for (name, value) in texts {
        query.extend(value.clone().map(|value| (name, value)));
    }
    query.extend(
        arguments
            .position
            .map(|position| ("position", position.to_string())),
    );
    query.extend(arguments.from.map(|from| ("from", from.to_string())));
    let answer = admin.get("/trace", &query)?;
    let mut out = io::stdout().lock();
    if arguments.admin.json {
        writeln!(out, "{answer:#}")?;
    } else if arguments.position.is_some() {
        write_request(&answer, &mut out)?;
    } else {
        write_document(&answer, &mut out)?;
    }
    Ok(arguments.position.is_some() || is_somewhere(&answer))
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_somewhere(answer: &Value) -> bool {
    let mut groups = each(&answer["queues"]).flat_map(|queue| each(&queue["groups"]));
    let mut clusters = answer["clusters"].as_object().into_iter().flatten();
    groups.any(|group| {
        ["pending", "parked", "dead", "indexed"]
            .iter()
            .any(|state| group["state"] == *state)
    }) || clusters.any(|(_, cluster)| cluster["found"] == true)
}

fn write_document(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for queue in each(&answer["queues"]) {
        for group in each(&queue["groups"]) {
            writeln!(
                out,
                "{} / {}: {}",
                text(&queue["queue"]),
                text(&group["group"]),
                text(&group["state"]).replace('_', " ")
            )?;
            write_group(group, out)?;
        }
        write_searched(queue, out)?;
    }
    for (name, cluster) in answer["clusters"].as_object().into_iter().flatten() {
        write!(out, "cluster {name}: ")?;
        if cluster["found"] == true {
            let (version, seq_no) = (&cluster["version"], &cluster["seq_no"]);
            writeln!(
                out,
                "has it, in {}, version {version}, seq_no {seq_no}",
                text(&cluster["index"])
            )?;
        } else if cluster["no_index"] == true {
            writeln!(out, "has no such index")?;
        } else if cluster["asked"] == true {
            writeln!(out, "does not have it")?;
        } else {
            writeln!(out, "could not be asked: {}", text(&cluster["why"]))?;
        }
    }
    Ok(())
}

fn write_group(group: &Value, out: &mut dyn Write) -> io::Result<()> {
    for one in each(&group["pending"]) {
        write!(
            out,
            "  pending at position {} in lane {}",
            one["position"], one["lane"]
        )?;
        if let Some(ahead) = one["documents_ahead"].as_u64() {
            write!(out, ", {} ahead", counted(ahead, "document"))?;
        }
        if let Some(seconds) = one["estimated_s"].as_f64() {
            write!(
                out,
                ", about {seconds:.0} s at the lane's present rate (estimate)"
            )?;
        }
        writeln!(out)?;
        for wait in each(&one["held_by"]) {
            writeln!(out, "    {}: {}", text(&wait["reason"]), text(&wait["why"]))?;
        }
    }
    for one in each(&group["parked"]) {
        let next = one["next_try_s"].as_f64().unwrap_or(0.0);
        writeln!(
            out,
            "  parked since {} for {}, tried {}, again in {next:.1} s: {}",
            time(one["since_ms"].as_u64().unwrap_or(0)),
            text(&one["key"]),
            counted(one["attempts"].as_u64().unwrap_or(0), "time"),
            text(&one["why"])
        )?;
    }
    for one in each(&group["dead"]) {
        writeln!(
            out,
            "  dead letter {} since {}: {} {}: {}",
            one["id"],
            time(one["died_ms"].as_u64().unwrap_or(0)),
            one["status"],
            text(&one["type"]),
            text(&one["reason"])
        )?;
    }
    Ok(())
}

fn write_searched(queue: &Value, out: &mut dyn Write) -> io::Result<()> {
    let searched = &queue["searched"];
    if !searched.is_object() {
        return writeln!(out, "  {}", text(&queue["not_searched"]));
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    write!(
        out,
        "  {} of it in {}, searched from position {} to {}; the queue has {} to {}",
        counted(number(&queue["write_count"]), "write"),
        counted(number(&searched["records"]), "record"),
        searched["from"],
        searched["to"],
        searched["start"],
        searched["end"]
    )?;
    match searched["since_ms"].as_u64() {
        Some(since) => writeln!(out, ", accepted since {}", time(since))?,
        None => writeln!(out)?,
    }
    if let Some(next) = searched["next"].as_u64() {
        writeln!(
            out,
            "  time ran out: --from {next} --queue {} continues",
            text(&queue["queue"])
        )?;
    }
    if searched["unreadable"] != 0 {
        writeln!(
            out,
            "  {} parts of records could not be read",
            searched["unreadable"]
        )?;
    }
    for (key, what) in [
        ("parked_searched", "what is parked"),
        ("dead_letters_searched", "the dead letters"),
    ] {
        if queue[key] == false {
            writeln!(out, "  {what} could not be searched completely in time")?;
        }
    }
    Ok(())
}

fn write_request(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let (queue, position) = (text(&answer["queue"]), &answer["position"]);
    match answer["in_log"] == true {
        true => writeln!(
            out,
            "{queue} {position}: {}, accepted {}, {}",
            counted(answer["documents"].as_u64().unwrap_or(0), "document"),
            time(answer["time_ms"].as_u64().unwrap_or(0)),
            text(&answer["target"])
        )?,
        false => writeln!(
            out,
            "{queue} {position}: no longer in the queue, which begins at {}: every consumer group has passed it",
            answer["start"]
        )?,
    }
    for group in each(&answer["groups"]) {
        let documents = |state: &str| -> u64 {
            let lanes = each(&group["lanes"]).filter(|lane| lane["state"] == state);
            lanes.filter_map(|lane| lane["documents"].as_u64()).sum()
        };
        writeln!(
            out,
            "  {}: {} pending, {} have left their lanes; of these, {} parked, {} dead letters{}",
            text(&group["group"]),
            documents("pending"),
            documents("delivered"),
            group["parked_count"],
            each(&group["dead"]).count(),
            if group["complete"] == true {
                ""
            } else {
                " at least"
            }
        )?;
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

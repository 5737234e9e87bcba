//! Explains to people, in lines, why the documents of queues do not move.

use std::io::{self, Write};

use serde_json::Value;

use crate::output::plain;

/// Returns the lines about a queue, as the admin port describes it.
pub(crate) fn lines(name: &str, queue: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = queue["refuses"].as_str() {
        lines.push(format!("{name}: nothing is accepted: {why}"));
    }
    let groups = queue["groups"].as_object();
    if groups.is_none_or(serde_json::Map::is_empty) && queue["accepted"].as_u64() > Some(0) {
        lines.push(format!(
            "{name}: nothing is delivered: no pipeline delivers from this queue"
        ));
    }
    for (group, one) in groups.into_iter().flatten() {
        for wait in one["waits"].as_array().into_iter().flatten() {
            lines.push(format!("{name}, {group}: {}", line(wait)));
        }
    }
    lines
}

fn line(wait: &Value) -> String {
    let text = |key: &str| wait[key].as_str().unwrap_or_default();
    let mut out = match (wait["lanes"].as_array(), wait["documents"].as_u64()) {
        (Some(lanes), _) => {
            let numbers: Vec<String> = lanes.iter().map(Value::to_string).collect();
            let word = if numbers.len() == 1 { "lane" } else { "lanes" };
            let doing = match text("reason") {
                "paused" => "paused",
                "retrying" => "trying again",
                _ => "waiting",
            };
            let mut out = format!("{word} {} {doing}", numbers.join(","));
            match wait["documents"].as_u64() {
                None => {}
                Some(1) => out += " for 1 document",
                Some(documents) => out += &format!(" for {documents} documents"),
            }
            out
        }
        (None, Some(1)) => format!("1 document {}", text("reason")),
        (None, Some(documents)) => format!("{documents} documents {}", text("reason")),
        (None, None) => text("reason").replace('_', " "),
    };
    if let Some(cluster) = wait["cluster"].as_str() {
        out += &format!(", before the cluster {cluster}");
    }
    if let Some(seconds) = wait["for_s"].as_f64() {
        out += &format!(", for {seconds:.1} s");
    }
    if let Some(seconds) = wait["next_try_s"].as_f64() {
        out += &format!(", next try in {seconds:.1} s");
    }
    format!("{out}: {}", text("why"))
}

/// Writes the lines below a table; writes nothing if there are none.
pub(crate) fn write(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    lines.iter().try_for_each(|line| writeln!(out, "{}", plain(line)))
}

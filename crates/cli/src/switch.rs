//! `tidegate switch`: shows what has been switched at run time, and switches it.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::admin::{AdminArguments, Terms, exit_code, refuse, segment};

/// Switch combining and directed routing of a running gateway
///
///     tidegate switch list
///     tidegate switch set combine.enabled=true combine.interval=20ms
///     tidegate switch set direct_routing.enabled=true --index "logs-*"
///     tidegate switch reset combine.enabled
///
/// A switch takes precedence over the configuration, for all bulk_reshuffle
/// filters of a cluster, from the next request on. Switches survive restarts, in
/// switches.json below path.data. The switches are
///
///     combine.enabled               true or false
///     combine.flush_threshold_size  a size, as in 1mb
///     combine.interval              a time, as in 50ms (a bare number: ms)
///     direct_routing.enabled        true or false; with --index, for these
///                                   indices, regardless of the others
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 done, 1 there is no such cluster, 2 wrong usage, 3 the gateway
/// refused or could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(List),
    Set(Set),
    Reset(Reset),
}

/// Show each switch: what it was switched to, and what is in force
#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    target: Target,
}

/// Set switches, for requests from now on
#[derive(clap::Args)]
struct Set {
    /// Switches to set, and their values
    #[arg(value_name = "SWITCH=VALUE", required = true, value_parser = pair)]
    pairs: Vec<(String, String)>,
    /// Set direct_routing.enabled for these indices only: names and patterns, separated by commas
    #[arg(long, value_name = "NAMES")]
    index: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Return switches to the configuration
#[derive(clap::Args)]
struct Reset {
    /// Switches to return [default: all of the cluster]
    #[arg(value_name = "SWITCH")]
    names: Vec<String>,
    /// Return direct_routing.enabled of these indices only: names and patterns, separated by commas
    #[arg(long, value_name = "NAMES", conflicts_with = "names")]
    index: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Where the gateway is, and which of its clusters is meant.
#[derive(clap::Args)]
struct Target {
    /// Name of the cluster in the configuration; needed if there are several
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    admin: AdminArguments,
}

fn pair(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => anyhow::bail!("write SWITCH=VALUE, as in combine.enabled=true"),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::List(list) => list.target.list().and_then(|all| list.target.print(&all)),
        Verb::Set(set) => set.run(),
        Verb::Reset(reset) => reset.run(),
    };
    exit_code(done.map(|()| true))
}

// === impl Set ===

impl Set {
    fn run(&self) -> Result<()> {
        let mut change = Map::new();
        for (name, value) in &self.pairs {
            let (name, value) = match &self.index {
                None => (name.as_str(), json!(value)),
                Some(index) if name == DIRECT_ROUTING => {
                    (INDICES, json!([{"index": index, "enabled": value}]))
                }
                Some(_) => {
                    let why = format!(
                        "{name} applies to a whole cluster: --index works with {DIRECT_ROUTING} only"
                    );
                    return Err(refuse(400, why));
                }
            };
            if change.insert(name.to_owned(), value).is_some() {
                return Err(refuse(400, format!("{name} is given twice")));
            }
        }
        self.target.change(&change)
    }
}

// === impl Reset ===

impl Reset {
    fn run(&self) -> Result<()> {
        let mut change = Map::new();
        match &self.index {
            Some(index) => {
                change.insert(INDICES.to_owned(), json!([{"index": index, "enabled": null}]));
            }
            None if self.names.is_empty() => {
                let all = self.target.list()?;
                let cluster = self.target.cluster(&all)?;
                let now = &all["clusters"][cluster.as_str()];
                let names = now["switches"].as_object().into_iter().flatten();
                change.extend(names.map(|(name, _)| (name.clone(), Value::Null)));
                let indices = now["indices"].as_array().into_iter().flatten();
                let indices = indices.map(|entry| json!({"index": entry["index"], "enabled": null}));
                change.insert(INDICES.to_owned(), indices.collect());
            }
            None => change.extend(self.names.iter().map(|name| (name.clone(), Value::Null))),
        }
        self.target.change(&change)
    }
}

// === impl Target ===

impl Target {
    /// Returns everything that the gateway says about its switches.
    fn list(&self) -> Result<Value> {
        self.admin.client()?.get("/switches", &Terms::new())
    }

    /// Sets switches, and shows what is in force afterwards.
    fn change(&self, change: &Map<String, Value>) -> Result<()> {
        let all = self.list()?;
        let cluster = self.cluster(&all)?;
        let path = format!("/switches/{}", segment(&cluster));
        let now: Value = self
            .admin
            .client()?
            .put(&path, &Terms::new(), &json!(change).to_string())?;
        self.print(&json!({"kept_in": all["kept_in"], "clusters": {cluster: now}}))
    }

    /// The cluster that is meant.
    fn cluster(&self, all: &Value) -> Result<String> {
        let known: Vec<_> = all["clusters"]
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .cloned()
            .collect();
        match (&self.cluster, known.as_slice()) {
            (Some(cluster), _) if known.contains(cluster) => Ok(cluster.clone()),
            (Some(cluster), _) => {
                let why = format!(
                    "there is no cluster {cluster}; the clusters are {}",
                    known.join(", ")
                );
                Err(refuse(404, why))
            }
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(refuse(
                400,
                format!("which cluster? Give --cluster with one of {}", known.join(", ")),
            )),
        }
    }

    fn print(&self, all: &Value) -> Result<()> {
        let mut all = all.clone();
        if let (Some(cluster), Some(clusters)) = (&self.cluster, all["clusters"].as_object_mut()) {
            clusters.retain(|name, _| name == cluster);
            if clusters.is_empty() {
                return Err(refuse(404, format!("there is no cluster {cluster}")));
            }
        }
        let mut out = io::stdout().lock();
        if self.admin.json {
            writeln!(out, "{all:#}")?;
        } else {
            table(&all).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        Ok(())
    }
}

/// Returns a line for each switch of each cluster.
fn table(all: &Value) -> Vec<String> {
    let mut rows = vec![["CLUSTER", "SWITCH", "SWITCHED TO", "IN FORCE"].map(str::to_owned)];
    for (cluster, now) in all["clusters"].as_object().into_iter().flatten() {
        for (name, given) in now["switches"].as_object().into_iter().flatten() {
            let given = match (given["value"].as_str(), given["section"].as_str()) {
                (Some(value), Some("transient")) => format!("{value} (transient)"),
                (Some(value), _) => value.to_owned(),
                _ => "-".to_owned(),
            };
            rows.push([cluster.clone(), name.clone(), given, in_force(now, name)]);
        }
        for entry in now["indices"].as_array().into_iter().flatten() {
            let index = entry["index"].as_str().unwrap_or_default();
            let on = match entry["enabled"].as_bool() {
                Some(on) => on.to_string(),
                None => "as the cluster".to_owned(),
            };
            let name = format!("{DIRECT_ROUTING} of {index}");
            rows.push([cluster.clone(), name, on, String::new()]);
        }
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (first, second, third) = (width(0), width(1), width(2));
    let line = |[a, b, c, d]: &[String; 4]| {
        let line = format!("{a:first$}  {b:second$}  {c:third$}  {d}");
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Returns what a switch amounts to at the cluster's filters, which may differ where it is not switched.
fn in_force(now: &Value, name: &str) -> String {
    let Some((section, key)) = name.split_once('.') else {
        return String::new();
    };
    let mut values: Vec<String> = Vec::new();
    for filter in now["filters"].as_array().into_iter().flatten() {
        // The filter's kind of direct routing says whether direct routing is on.
        let value = match filter[section].get(key).unwrap_or(&filter[section]) {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.is_empty() {
        true => "-".to_owned(),
        false => values.join(", "),
    }
}

const DIRECT_ROUTING: &str = "direct_routing.enabled";
const INDICES: &str = "direct_routing.indices";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_switch_and_says_what_is_in_force() {
        let all = json!({"clusters": {"prod": {
            "switches": {
                "combine.enabled": {"value": "true", "section": "transient"},
                "combine.interval": null,
                "direct_routing.enabled": null,
            },
            "indices": [{"index": "logs-*", "enabled": true}, {"index": "logs-1", "enabled": null}],
            "filters": [
                {"combine": {"enabled": true, "interval": "50ms"}, "direct_routing": "mint-packed"},
                {"combine": {"enabled": true, "interval": "1s"}},
                {"combine": null},
            ],
        }}});
        assert_eq!(
            table(&all),
            [
                "CLUSTER  SWITCH                            SWITCHED TO       IN FORCE",
                "prod     combine.enabled                   true (transient)  true",
                "prod     combine.interval                  -                 50ms, 1s",
                "prod     direct_routing.enabled            -                 mint-packed",
                "prod     direct_routing.enabled of logs-*  true",
                "prod     direct_routing.enabled of logs-1  as the cluster",
            ]
        );
    }
}

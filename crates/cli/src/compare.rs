//! `tidegate compare`: a cluster written to directly against the same cluster through a gateway.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use loadgen::{CompareError, CompareEvent, CompareOptions, Compared, Run, Stop};

use crate::exit;
use crate::interrupt::{stop_at_end_of_input, stop_at_interrupt};
use crate::output::Planned;

/// Compare writing to a cluster directly with writing through a gateway
///
///     tidegate compare --direct http://localhost:9200 \
///         --gateway http://localhost:8000
///
/// Each round writes the same documents both ways, each into a new index with the
/// same settings. The two ways take turns at going first. With ids, each round ends
/// with updates of the same documents. A run ends when the index counts all of its
/// documents. The report also has the time until all were acknowledged, and the CPU
/// time of the cluster's nodes. It gives the effect of the gateway with its 95 %
/// confidence interval, and says if the effect is within the noise.
///
/// The indices are named tidegate-compare-…, and are removed at the end, also after
/// Ctrl-C. The first --direct URL is asked for counts and CPU times of both ways.
///
/// Exit status: 0 compared, 1 compared, but a run had a flaw (documents that were
/// refused, lost or duplicated), 2 wrong usage, 3 nothing could be compared, 130
/// stopped.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// URL of a node of the cluster; several, separated by commas, share the requests
    #[arg(long, value_name = "URL", required = true, value_delimiter = ',', env = crate::typed::CLUSTER, hide_env_values = true)]
    direct: Vec<String>,
    /// URL of the gateway before the same cluster; several, separated by commas, share the requests
    #[arg(long, value_name = "URL", required = true, value_delimiter = ',')]
    gateway: Vec<String>,
    /// Number of documents in each run
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    docs: u64,
    /// Number of documents in each request
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Give documents ids, and update them in each round (the default)
    #[arg(long, conflicts_with = "without_ids")]
    with_ids: bool,
    /// Leave the ids to the cluster; nothing is updated
    #[arg(long)]
    without_ids: bool,
    /// Give documents ids, but update nothing
    #[arg(long)]
    no_updates: bool,
    /// Number of rounds, each both ways; at least three are needed to tell a difference from noise
    #[arg(long, value_name = "ROUNDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Number of clients, each with one request under way
    #[arg(long, value_name = "CLIENTS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Number of primary shards of each index
    #[arg(long, value_name = "SHARDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    shards: u32,
    /// Number of replicas of each primary shard
    #[arg(long, value_name = "REPLICAS", default_value_t = 0)]
    replicas: u32,
    /// `index.refresh_interval` of each index, as in 30s [default: the cluster's]
    #[arg(long, value_name = "TIME")]
    refresh_interval: Option<String>,
    /// Another setting of each index, as in translog.durability=async; may be repeated
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Number of documents to write each way beforehand, without measuring
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 30_000)]
    warm_up: u64,
    /// Pause between two runs, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pause: f64,
    /// Time limit for the index to count all acknowledged documents, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    count_timeout: u64,
    /// Time limit for a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Compress request bodies with gzip
    #[arg(long)]
    compress: bool,
    /// Prefix of the names of the indices
    #[arg(long, value_name = "NAME", default_value = "tidegate-compare")]
    index: String,
    /// Do not delete the indices at the end
    #[arg(long)]
    keep: bool,
    /// User name for cluster and gateway, in place of those in the URLs; or set TIDEGATE_USER
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Password of --user; the process list shows it, so prefer TIDEGATE_PASSWORD
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// PEM file of the certificate authorities to trust, in place of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any TLS certificate; for tests only
    #[arg(long)]
    insecure: bool,
    /// Print the outcome as one JSON object on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Write the outcome with charts to this file, as HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Stop as at Ctrl-C when standard input ends, for a program that starts this one: the indices are
    /// removed even if that program is killed
    #[arg(long)]
    stop_at_eof: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let options = match options(arguments) {
        Ok(options) => options,
        Err(reason) => return fail(&reason.to_string()),
    };
    let html = match arguments.html.as_deref().map(Planned::open).transpose() {
        Ok(html) => html,
        Err(error) => return fail(&error.to_string()),
    };
    let stop = Stop::default();
    stop_at_interrupt(&stop, "stopping, and removing the indices of this comparison");
    if arguments.stop_at_eof
        && let Err(error) = stop_at_end_of_input(&stop)
    {
        return fail(&error.to_string());
    }
    let mut watcher = Watcher {
        terminal: io::stderr().is_terminal(),
        ..Watcher::default()
    };
    let sent = options.documents.div_ceil(u64::from(options.batch)) * u64::from(options.batch);
    if sent != options.documents {
        watcher.line(&format!(
            "each run writes {sent} documents: whole requests of {}",
            options.batch
        ));
    }
    let outcome = loadgen::compare(&options, &stop, |event| watcher.see(&event));
    watcher.clear();
    match outcome {
        Ok(compared) => match print(arguments, html, &compared) {
            Ok(()) if compared.is_clean() => ExitCode::SUCCESS,
            Ok(()) => ExitCode::from(exit::NO),
            Err(error) => fail(&error.to_string()),
        },
        Err(CompareError::Stopped) => {
            watcher.line(&format!("tidegate: {}", CompareError::Stopped));
            ExitCode::from(exit::STOPPED)
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// A password without a user name.
#[derive(Debug, thiserror::Error)]
#[error("--password needs --user, or TIDEGATE_USER")]
struct PasswordWithoutUser;

/// Combines the arguments with the user name and password from the environment, where the arguments give
/// none.
fn options(arguments: &Arguments) -> Result<CompareOptions, PasswordWithoutUser> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = arguments.user.clone().or_else(|| variable("TIDEGATE_USER"));
    if user.is_none() && arguments.password.is_some() {
        return Err(PasswordWithoutUser);
    }
    let password = || {
        arguments
            .password
            .clone()
            .or_else(|| variable("TIDEGATE_PASSWORD"))
    };
    let account = user.map(|user| (user, password().unwrap_or_default()));
    Ok(CompareOptions {
        direct: arguments.direct.clone(),
        gateway: arguments.gateway.clone(),
        account,
        documents: arguments.docs,
        batch: arguments.batch,
        ids: !arguments.without_ids,
        updates: !arguments.no_updates,
        rounds: arguments.rounds,
        clients: arguments.clients as usize,
        shards: arguments.shards,
        replicas: arguments.replicas,
        refresh_interval: arguments.refresh_interval.clone(),
        settings: arguments.settings.clone(),
        index: arguments.index.clone(),
        keep: arguments.keep,
        warm_up_documents: arguments.warm_up.min(arguments.docs),
        rest: Duration::from_secs_f64(arguments.pause),
        count_timeout: Duration::from_secs(arguments.count_timeout),
        timeout: Duration::from_secs(arguments.timeout),
        gzip: arguments.compress.then_some(1),
        ca_file: arguments.ca.clone(),
        insecure: arguments.insecure,
    })
}

/// Reports progress on standard error; on a terminal, one changing line shows the current run.
#[derive(Default)]
struct Watcher {
    terminal: bool,
    /// Description of the current run.
    now: String,
    /// Columns of the changing line.
    shown: usize,
}

// === impl Watcher ===

impl Watcher {
    fn see(&mut self, event: &CompareEvent<'_>) {
        match event {
            CompareEvent::Note(note) => self.line(note),
            CompareEvent::Begun { round, way, phase } => {
                self.now = format!("round {round}, {:<7} {:<7}", phase.name(), way.name());
                self.change("");
            }
            CompareEvent::Sending(now) => {
                let sent = now.total.documents;
                self.change(&format!(
                    "{sent} documents, {:.0}/s",
                    now.rate(now.last.documents)
                ));
            }
            CompareEvent::Counting(found) => self.change(&format!("{found} documents are counted")),
            CompareEvent::Ended(run) => {
                let line = format!("{}  {}", self.now, ended(run));
                self.line(&line);
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "{line}");
    }

    fn change(&mut self, state: &str) {
        if !self.terminal {
            return;
        }
        self.clear();
        let line = format!("{}  {state}", self.now);
        self.shown = line.chars().count();
        let _ = write!(io::stderr(), "{line}");
    }

    fn clear(&mut self) {
        if self.shown > 0 {
            // Return to the beginning of the line, and erase it.
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.shown = 0;
        }
    }
}

fn ended(run: &Run) -> String {
    let counted = match (run.counted_s, run.counted_per_s()) {
        (Some(seconds), Some(rate)) => format!("counted in {seconds:.2} s ({rate:.0}/s)"),
        _ => "not counted".to_owned(),
    };
    let cpu = run
        .cpu_s
        .map_or(String::new(), |cpu| format!(", {cpu:.2} s of the nodes' CPU"));
    let flaw = run
        .flaw
        .as_ref()
        .map_or(String::new(), |flaw| format!("; LEFT OUT: {flaw}"));
    format!(
        "acknowledged in {:.2} s, {counted}{cpu}{flaw}",
        run.acknowledged_s
    )
}

/// Prints the outcome, and then writes it to the file that was asked for.
fn print(arguments: &Arguments, html: Option<Planned>, compared: &Compared) -> io::Result<()> {
    // An error of writing the output (a closed pipe) is ignored.
    let _ = if arguments.json {
        serde_json::to_writer(io::stdout(), compared)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(io::stdout()))
    } else {
        write!(io::stdout(), "\n{compared}")
    };
    let title = "Direct against gateway";
    html.map_or(Ok(()), |file| file.write(|out| compared.write_html(title, out)))
}

fn seconds(text: &str) -> anyhow::Result<f64> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => anyhow::bail!("`{text}` is not a number of seconds from 0 to 86400"),
    }
}

/// Parses `NAME=VALUE`, with or without the prefix `index.`.
fn setting(text: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        anyhow::bail!("`{text}` is not NAME=VALUE");
    };
    let name = name.strip_prefix("index.").unwrap_or(name);
    Ok((name.to_owned(), value.to_owned()))
}

fn fail(reason: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "tidegate: {reason}");
    ExitCode::from(exit::FAILED)
}

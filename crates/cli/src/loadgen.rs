//! `tidegate loadgen`: sends load from a file, and reports exactly what became of it.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use loadgen::{
    Load, Options, Progress, Prometheus, Report, Schedule, Screen, Statsd, Stop, VerifyOptions, WarmUp,
};

use crate::exit;
use crate::interrupt::stop_at_interrupt;
use crate::output::Planned;

/// Load a cluster or a gateway with the requests of a file
///
///     tidegate loadgen -config loadgen.yml -d 30 -c 4
///
/// Each user sends the file's requests in order, one at a time, round after round.
/// The command reads every bulk answer: a document counts as accepted when its own
/// item says so. Without -d, a limit (-l, -total-rounds) alone ends the run;
/// without a limit, the run lasts five seconds. Flags take one dash or two.
///
/// Exit status: 0 done, 1 the file can't be used, an answer was invalid in the
/// warm-up or with `assert_invalid: true` in the file, or -verify found a document
/// that is not as it should be, 2 wrong usage, 3 the server did not answer in the
/// warm-up, during the run with `assert_error: true` in the file, or to -verify.
#[derive(clap::Args)]
#[command(version, verbatim_doc_comment, disable_version_flag = true)]
pub(crate) struct Arguments {
    /// Load file (YAML)
    #[arg(long, value_name = "FILE", default_value = "loadgen.yml")]
    config: PathBuf,
    /// Number of users, each with one request under way
    #[arg(short, value_name = "USERS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    c: u32,
    /// Duration of the run, in seconds
    #[arg(short, value_name = "SECONDS")]
    d: Option<u64>,
    /// Number of requests, of all users together
    #[arg(short, value_name = "REQUESTS", allow_negative_numbers = true)]
    l: Option<i64>,
    /// Requests per second, sent on schedule while users are free; latency counts from the scheduled
    /// moment
    #[arg(
        short,
        value_name = "RATE",
        allow_negative_numbers = true,
        conflicts_with = "stages"
    )]
    r: Option<f64>,
    /// Schedule of several rates, each RATE/TIME or FROM..TO/TIME, as in 0..1000/30s,1000/1m,5000/5s
    #[arg(long, value_name = "STAGES", value_parser = Schedule::parse)]
    stages: Option<Schedule>,
    /// Number of rounds over the file's requests, of all users together
    #[arg(long, value_name = "ROUNDS")]
    total_rounds: Option<u64>,
    /// Compress request bodies with gzip
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    compress: bool,
    /// Compression level of gzip; higher levels measure the client more than the server
    #[arg(long, value_name = "LEVEL", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    compress_level: u32,
    /// Time limit for a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Time limit from the end of a request to the head of its answer, in seconds; 0: only -timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    read_timeout: u64,
    /// Time limit while the server accepts no byte of a request, in seconds; 0: only -timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    write_timeout: u64,
    /// Time limit for making a connection, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    dial_timeout: u64,
    /// Number of threads; 0: one per core
    #[arg(
        long,
        value_name = "THREADS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    cpu: i64,
    /// PEM file of the certificate authorities to trust, in place of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any TLS certificate; for tests only
    #[arg(long)]
    insecure: bool,
    /// Read the cluster afterwards, and verify that every accepted document is there once, with its last
    /// value
    #[arg(long)]
    verify: bool,
    /// URL to read from, where the load goes through a gateway: a node of the cluster behind it
    #[arg(long, value_name = "URL", requires = "verify")]
    verify_url: Option<String>,
    /// Time limit for documents to arrive from a queue, in seconds
    #[arg(long, value_name = "SECONDS", requires = "verify", default_value_t = 0)]
    verify_wait: u64,
    /// Print the outcome as one JSON object on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Print progress as plain lines, on a terminal too
    #[arg(long)]
    plain: bool,
    /// Write the figures of each second to this file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the outcome with charts to this file, as HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Address and port at which Prometheus can scrape the figures during the run
    #[arg(long, value_name = "ADDRESS")]
    prometheus: Option<SocketAddr>,
    /// Lowest level of log lines to print
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["trace", "debug", "info", "warn", "error", "off"])]
    log: String,
    /// Same as `-log debug`
    #[arg(long)]
    debug: bool,
    /// Print version
    #[arg(short = 'V', long, visible_short_alias = 'v', action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Allows loadgen's flags to be written with one dash or two, as its users type them: `-config`, `--c 5`.
pub(crate) fn dashes(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_none_or(|command| command != "loadgen") {
        return arguments;
    }
    for argument in arguments.iter_mut().skip(2) {
        let Some(text) = argument.to_str() else { continue };
        let name = text.trim_start_matches('-');
        let letters = name.split('=').next().unwrap_or(name);
        let dashes = text.len() - name.len();
        if !letters.starts_with(|first: char| first.is_ascii_alphabetic()) {
            continue;
        }
        let wanted = if letters.len() == 1 { 1 } else { 2 };
        if (1..=2).contains(&dashes) && dashes != wanted && !is_joined(letters) {
            let text = format!("{}{name}", &"--"[..wanted]);
            *argument = OsStr::new(&text).to_owned();
        }
    }
    arguments
}

/// Whether the argument is a letter joined with its value, as in `-c8`.
fn is_joined(name: &str) -> bool {
    name.len() > 1 && name[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    start_logging(arguments);
    let loaded = match Load::read(&arguments.config) {
        Ok(loaded) => loaded,
        Err(rejected) => return fail(&rejected.to_string(), exit::NO),
    };
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let load = Arc::new(loaded.load);
    let options = options(arguments, &load);
    let files = match Files::open(arguments) {
        Ok(files) => files,
        Err(error) => return fail(&error.to_string(), exit::FAILED),
    };
    if !load.runner().no_warm {
        let mut answered = true;
        let look = |warm_up: &WarmUp| {
            answered = warm_up.outcome.is_ok();
            see(warm_up)
        };
        match loadgen::warm_up(&load, &options, look) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) if answered => return ExitCode::from(exit::NO),
            Ok(ControlFlow::Break(())) => return ExitCode::from(exit::FAILED),
            Err(error) => return fail(&error.to_string(), exit::FAILED),
        }
    }
    let stop = Stop::default();
    stop_at_interrupt(&stop, "stopping: requests under way are finished");
    let mut outlets = match Outlets::open(arguments, &load) {
        Ok(outlets) => outlets,
        Err(error) => return fail(&error.to_string(), exit::FAILED),
    };
    if wants_screen(arguments, &load) {
        // A terminal that the screen can't draw on still shows lines.
        outlets.screen = Screen::open(&arguments.config.display().to_string(), &options, &stop).ok();
    }
    let report = loadgen::run(&load, &options, &stop, |now| outlets.show(now));
    drop(outlets);
    match report {
        Ok(mut report) => {
            if arguments.verify {
                let how = VerifyOptions {
                    url: arguments.verify_url.clone(),
                    wait: Duration::from_secs(arguments.verify_wait),
                };
                note("reading the documents back");
                match loadgen::verify(&load, &options, &report, &how) {
                    Ok(verified) => report.verified = Some(verified),
                    Err(error) => note(&format!("tidegate: the documents can't be read back: {error}")),
                }
            }
            print(arguments, &report);
            match files.write(arguments, &report) {
                Ok(()) => exit_status(arguments, &load, &report),
                Err(error) => fail(&error.to_string(), exit::FAILED),
            }
        }
        Err(error) => fail(&error.to_string(), exit::FAILED),
    }
}

/// The places that figures go to while the load runs.
struct Outlets {
    statsd: Option<Statsd>,
    prometheus: Option<Prometheus>,
    screen: Option<Screen>,
}

// === impl Outlets ===

impl Outlets {
    fn open(arguments: &Arguments, load: &Load) -> io::Result<Outlets> {
        Ok(Outlets {
            statsd: load.statsd().map(Statsd::connect).transpose()?,
            prometheus: arguments.prometheus.map(Prometheus::listen).transpose()?,
            screen: None,
        })
    }

    fn show(&mut self, now: &Progress) {
        if let Some(statsd) = &self.statsd {
            statsd.send(now);
        }
        if let Some(prometheus) = &self.prometheus {
            prometheus.show(now);
        }
        match &mut self.screen {
            // A terminal that has gone away shows nothing more, but the run goes on.
            Some(screen) => drop(screen.show(now)),
            None => note(&progress(now)),
        }
    }
}

/// Whether to show the screen: on a terminal, unless lines of the log would run across it.
fn wants_screen(arguments: &Arguments, load: &Load) -> bool {
    let runner = load.runner();
    let logs = runner.log_requests || !runner.log_status_codes.is_empty();
    let quiet = !arguments.debug && !matches!(arguments.log.as_str(), "debug" | "trace");
    io::stderr().is_terminal() && io::stdin().is_terminal() && !arguments.plain && !logs && quiet
}

fn options(arguments: &Arguments, load: &Load) -> Options {
    let seconds = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    let requests_max = arguments.l.and_then(|limit| u64::try_from(limit).ok());
    let rounds_max = arguments.total_rounds.or(load.runner().total_rounds);
    let constant = || arguments.r.and_then(Schedule::constant);
    let schedule = arguments.stages.clone().or_else(constant);
    let ends = schedule
        .as_ref()
        .is_some_and(|schedule| schedule.duration().is_some());
    let limited = ends || requests_max.is_some() || rounds_max.is_some();
    Options {
        users: arguments.c as usize,
        duration: match arguments.d {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None if limited => None,
            None => Options::default().duration,
        },
        requests_max,
        rounds_max,
        schedule,
        gzip: arguments.compress.then_some(arguments.compress_level),
        timeout: Duration::from_secs(arguments.timeout.max(1)),
        read_timeout: seconds(arguments.read_timeout),
        write_timeout: seconds(arguments.write_timeout),
        dial_timeout: Duration::from_secs(arguments.dial_timeout.max(1)),
        cores: usize::try_from(arguments.cpu).unwrap_or(0),
        // The command line takes precedence over the file.
        ca_file: match arguments.insecure {
            true => None,
            false => arguments.ca.clone().or_else(|| load.runner().ca.clone()),
        },
        insecure: arguments.insecure || (load.runner().insecure && arguments.ca.is_none()),
        ledger: arguments.verify,
    }
}

/// Shows a request of the warm-up; asks whether to go on after one that went wrong.
fn see(warm_up: &WarmUp) -> ControlFlow<()> {
    let outcome = match &warm_up.outcome {
        Ok(status) => format!("{status}, {} bytes", warm_up.received_bytes),
        Err(why) => why.to_string(),
    };
    let sent = match warm_up.sent_bytes {
        0 => String::new(),
        bytes => format!(" ({bytes} bytes)"),
    };
    note(&format!(
        "warm-up: {}{sent} → {outcome} in {:.1} ms",
        warm_up.name,
        warm_up.took.as_secs_f64() * 1e3
    ));
    let answer = String::from_utf8_lossy(&warm_up.answer);
    let shown: String = answer.chars().take(ANSWER_CHARS_SHOWN).collect();
    if !shown.is_empty() {
        let rest = if (shown.len() as u64) < warm_up.received_bytes {
            "…"
        } else {
            ""
        };
        note(&format!("  {}{rest}", shown.trim_end()));
    }
    if !warm_up.doubtful {
        return ControlFlow::Continue(());
    }
    if let Some(complaint) = &warm_up.complaint {
        note(&format!("  {complaint}"));
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        note(
            "the warm-up failed, and there is no terminal to ask on: stopping (`no_warm: true` leaves it out, `valid_status_codes_during_warmup` allows statuses)",
        );
        return ControlFlow::Break(());
    }
    let _ = write!(io::stderr(), "go on anyway? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    }
}

fn progress(now: &Progress) -> String {
    let mut line = format!(
        "{:>5.0} s  {:>9.0} requests/s",
        now.at_s,
        now.rate(now.last.answers)
    );
    if now.total.documents > 0 {
        line += &format!("  {:>9.0} documents/s", now.rate(now.last.documents));
    }
    if let Some(latency) = &now.latency_ms {
        line += &format!("  p50 {:.2} ms  p99 {:.2} ms", latency.p50, latency.p99);
    }
    for (count, what) in [
        (now.total.errors, "errors"),
        (now.total.invalid, "invalid"),
        (now.total.failed_documents, "documents failed"),
    ] {
        if count > 0 {
            line += &format!("  {count} {what}");
        }
    }
    if let Some(trouble) = &now.trouble {
        line += &format!(" ({trouble})");
    }
    line
}

/// Prints the report.
fn print(arguments: &Arguments, report: &Report) {
    // An error of writing the output (a closed pipe) is ignored.
    let _ = if arguments.json {
        serde_json::to_writer(io::stdout(), report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(io::stdout()))
    } else {
        write!(io::stdout(), "\n{report}")
    };
}

/// The files that the report is written to.
struct Files {
    csv: Option<Planned>,
    html: Option<Planned>,
}

// === impl Files ===

impl Files {
    fn open(arguments: &Arguments) -> io::Result<Self> {
        let open = |file: &Option<PathBuf>| file.as_deref().map(Planned::open).transpose();
        Ok(Self {
            csv: open(&arguments.csv)?,
            html: open(&arguments.html)?,
        })
    }

    /// Writes all files; returns the first error.
    fn write(self, arguments: &Arguments, report: &Report) -> io::Result<()> {
        let csv = self
            .csv
            .map_or(Ok(()), |file| file.write(|out| report.write_csv(out)));
        let title = format!("Load of {}", arguments.config.display());
        let html = self
            .html
            .map_or(Ok(()), |file| file.write(|out| report.write_html(&title, out)));
        csv.and(html)
    }
}

fn exit_status(arguments: &Arguments, load: &Load, report: &Report) -> ExitCode {
    let proven = report.verified.as_ref().map(loadgen::Verified::holds);
    if arguments.verify && proven.is_none() {
        ExitCode::from(exit::FAILED)
    } else if proven == Some(false) {
        ExitCode::from(exit::NO)
    } else if load.runner().assert_error && report.total.errors > 0 {
        ExitCode::from(exit::FAILED)
    } else if load.runner().assert_invalid && report.total.invalid > 0 {
        ExitCode::from(exit::NO)
    } else {
        ExitCode::SUCCESS
    }
}

fn start_logging(arguments: &Arguments) {
    use tracing_subscriber::filter::LevelFilter;
    let level = if arguments.debug { "debug" } else { &arguments.log };
    let _ = tracing_subscriber::fmt()
        .with_max_level(level.parse().unwrap_or(LevelFilter::INFO))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .try_init();
}

/// Prints a line for the person who is watching.
fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn fail(reason: &str, status: u8) -> ExitCode {
    note(&format!("tidegate: {reason}"));
    ExitCode::from(status)
}

/// The number of characters of an answer that the warm-up shows.
const ANSWER_CHARS_SHOWN: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_taken_with_one_dash_or_two() {
        let typed = "tidegate loadgen -config a.yml --c 5 -d 3 -l=-1 -compress=true -c8 --json x -5";
        let wanted = "tidegate loadgen --config a.yml -c 5 -d 3 -l=-1 --compress=true -c8 --json x -5";
        let split = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(dashes(split(typed).into_iter()), split(wanted));
        let other = split("tidegate gateway -config a.yml");
        assert_eq!(dashes(other.clone().into_iter()), other);
    }
}

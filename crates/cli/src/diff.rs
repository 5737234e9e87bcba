//! `tidegate diff`: whether an index holds the same documents on two clusters, and what differs.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use loadgen::{DiffError, DiffEvent, DiffOptions, DiffSide, Difference, DocumentDifference, Stop};

use crate::exit;
use crate::interrupt::stop_at_interrupt;
use crate::output::{plain, table};

/// Compare an index on two clusters
///
///     tidegate diff --left http://primary:9200 \
///         --right https://backup:9200 --index logs
///
/// The command compares counts first, then ids and contents. It reads each side
/// once, reduces it to digests of id ranges, and reads only differing ranges again.
/// Memory is therefore bounded (--memory), whatever the size of the index, and the
/// two clusters may differ in kind, version and number of shards.
///
/// Contents are `_source` and routing. The order of keys, white space, escapes,
/// the spelling of numbers (1 or 1.0), versions and sequence numbers make no
/// difference. The command looks at each difference once more before it reports
/// it, so documents that were only on their way do not count.
///
/// It reads an index with scrolls, each shard as of one moment, but not all shards
/// as of the same moment. Compare indices that nobody writes to, or wait until the
/// queue has drained.
///
/// Accounts are in the URLs (http://USER:PASSWORD@HOST:PORT), or --user and
/// TIDEGATE_PASSWORD for both, or --left-user and TIDEGATE_LEFT_PASSWORD (and
/// RIGHT) for one. They need the rights to read and refresh the index.
///
/// Exit status: 0 the same, 1 not the same, 2 wrong usage, 3 it could not be
/// compared, 130 stopped.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// URL of a node of one cluster
    #[arg(long, value_name = "URL", env = crate::typed::CLUSTER, hide_env_values = true)]
    left: String,
    /// URL of a node of the other cluster
    #[arg(long, value_name = "URL")]
    right: String,
    /// Index on both clusters; or an alias, a data stream, or several names separated by commas
    #[arg(long, value_name = "NAME", required_unless_present_all = ["left_index", "right_index"])]
    index: Option<String>,
    /// Index on the left, if its name differs
    #[arg(long, value_name = "NAME")]
    left_index: Option<String>,
    /// Index on the right, if its name differs
    #[arg(long, value_name = "NAME")]
    right_index: Option<String>,
    /// Number of differing documents after which to stop; 0: find all
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 100)]
    limit: usize,
    /// Compare only the numbers of documents
    #[arg(long)]
    counts_only: bool,
    /// Do not refresh the index first; recent writes may then be missing
    #[arg(long)]
    no_refresh: bool,
    /// Memory for the comparison, as in 256mb; a page of each side comes on top
    #[arg(long, value_name = "BYTES", default_value = "256mb", value_parser = bytes)]
    memory: u64,
    /// Number of documents in a page; choose fewer for large documents
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    page: u32,
    /// Number of slices of an index to read at the same time; at most its number of shards
    #[arg(long, value_name = "SLICES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    slices: u32,
    /// Time limit for a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// User name for both clusters, in place of those in the URLs; or set TIDEGATE_USER
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// User name for the left cluster; or set TIDEGATE_LEFT_USER
    #[arg(long, value_name = "NAME")]
    left_user: Option<String>,
    /// User name for the right cluster; or set TIDEGATE_RIGHT_USER
    #[arg(long, value_name = "NAME")]
    right_user: Option<String>,
    /// PEM file of the certificate authorities to trust, in place of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any TLS certificate; for tests only
    #[arg(long)]
    insecure: bool,
    /// Print the outcome as one JSON object on standard output, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let stop = Stop::default();
    stop_at_interrupt(&stop, "stopping");
    let mut progress = Progress::new();
    let outcome = loadgen::diff(&options(arguments), &stop, |event| progress.see(&event));
    progress.clear();
    match outcome {
        Ok(difference) => {
            // An error of writing the output (a closed pipe) is ignored.
            let _ = match arguments.json {
                true => print_json(&difference),
                false => print(&difference),
            };
            ExitCode::from(if difference.same { 0 } else { exit::NO })
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "tidegate: {}", plain(&error.to_string()));
            ExitCode::from(match error {
                DiffError::Stopped => exit::STOPPED,
                _ => exit::FAILED,
            })
        }
    }
}

fn options(arguments: &Arguments) -> DiffOptions {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let side = |url: &str, index: &Option<String>, user: &Option<String>, prefix: &str| {
        let own = user.clone().or_else(|| variable(&format!("{prefix}_USER")));
        let both = || arguments.user.clone().or_else(|| variable("TIDEGATE_USER"));
        let password = || {
            variable(&format!("{prefix}_PASSWORD"))
                .or_else(|| variable("TIDEGATE_PASSWORD"))
                .unwrap_or_default()
        };
        DiffSide {
            url: url.to_owned(),
            index: index
                .clone()
                .or_else(|| arguments.index.clone())
                .unwrap_or_default(),
            account: own.or_else(both).map(|user| (user, password())),
        }
    };
    DiffOptions {
        left: side(
            &arguments.left,
            &arguments.left_index,
            &arguments.left_user,
            "TIDEGATE_LEFT",
        ),
        right: side(
            &arguments.right,
            &arguments.right_index,
            &arguments.right_user,
            "TIDEGATE_RIGHT",
        ),
        ca_file: arguments.ca.clone(),
        insecure: arguments.insecure,
        timeout: Duration::from_secs(arguments.timeout),
        refresh: !arguments.no_refresh,
        counts_only: arguments.counts_only,
        page: arguments.page,
        slices: arguments.slices,
        memory_bytes: arguments.memory,
        limit: (arguments.limit > 0).then_some(arguments.limit),
    }
}

fn print_json(difference: &Difference) -> io::Result<()> {
    serde_json::to_writer(io::stdout(), difference)?;
    writeln!(io::stdout())
}

fn print(difference: &Difference) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !difference.documents.is_empty() {
        let rows: Vec<Vec<String>> = difference.documents.iter().map(row).collect();
        table(&mut out, &["id", "what", "field", "left", "right"], &rows)?;
        writeln!(out)?;
    }
    write!(out, "{difference}")
}

fn row(document: &DocumentDifference) -> Vec<String> {
    let field = document.field.as_ref();
    let value = |value: Option<&Option<String>>| match value {
        None => String::new(),
        Some(None) => "-".to_owned(),
        Some(Some(text)) => text.clone(),
    };
    vec![
        document.id.clone(),
        document.what.as_str().to_owned(),
        field.map(|field| field.path.clone()).unwrap_or_default(),
        value(field.map(|field| &field.left)),
        value(field.map(|field| &field.right)),
    ]
}

/// On a terminal, a line that shows the progress.
struct Progress {
    terminal: bool,
    shown: bool,
    last: Option<Instant>,
}

// === impl Progress ===

impl Progress {
    fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            shown: false,
            last: None,
        }
    }

    fn see(&mut self, event: &DiffEvent<'_>) {
        match event {
            DiffEvent::Note(note) => {
                self.clear();
                let _ = writeln!(io::stderr(), "{note}");
            }
            DiffEvent::Reading { pass, read, of } => {
                let due = self.last.is_none_or(|last| last.elapsed() >= SHOWN_EVERY);
                if !self.terminal || !due {
                    return;
                }
                self.clear();
                let share = |at: usize| {
                    let percent = read[at].saturating_mul(100).checked_div(of[at]).unwrap_or(100);
                    format!("{} of {} ({}%)", read[at], of[at], percent.min(100))
                };
                let what = if *pass == 1 {
                    "reading"
                } else {
                    "reading what differs"
                };
                let _ = write!(io::stderr(), "{what}: left {}, right {}", share(0), share(1));
                (self.shown, self.last) = (true, Some(Instant::now()));
            }
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            // Return to the beginning of the line, and erase it.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Parses a size such as `256mb`, as configuration files write it.
pub(crate) fn bytes(text: &str) -> anyhow::Result<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let units = [("gb", 30), ("mb", 20), ("kb", 10), ("b", 0)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((lower.strip_suffix(unit)?, *shift)))
        .unwrap_or((&lower, 0));
    let wrong = || anyhow::anyhow!("`{text}` is not a size, as in 256mb");
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    match bytes {
        MEMORY_MIN.. => Ok(bytes),
        _ => anyhow::bail!("at least 1mb is needed"),
    }
}

const SHOWN_EVERY: Duration = Duration::from_millis(200);
const MEMORY_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_configuration_files_write_them() {
        assert_eq!(bytes("256mb").unwrap(), 256 << 20);
        assert_eq!(bytes("2GB").unwrap(), 2 << 30);
        assert_eq!(bytes("1048576").unwrap(), 1 << 20);
        assert!(bytes("1kb").is_err() && bytes("many").is_err() && bytes("99999999999999gb").is_err());
    }
}

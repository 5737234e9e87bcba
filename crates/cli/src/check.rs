//! `tidegate check`: everything that is wrong with a configuration file, and what is worth a warning.

mod online;
mod rights;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use config::{Config, Problem, Severity};
use serde_json::json;

use crate::exit;
use crate::output::{counted, has_colours, plain};
use online::{Finding, Level};

/// Check a configuration file without running it
///
/// The command prints one problem per line:
///
///     FILE:LINE:COLUMN: error: KEY: what is wrong; what to write instead
///
/// With --online, the command also checks, without changing anything, whether each
/// cluster can be reached and accepts the account, whether the account has the
/// rights that this file needs, whether folders can be written and have room,
/// whether the addresses to listen on are free (or held by a running gateway),
/// whether the collector of traces can be reached, and when certificates expire.
/// Each finding says what to do.
///
/// Exit status: 0 the file can be used (there may be warnings), 1 it can't, or
/// --online found something to fix, 2 wrong usage, 3 a cluster does not answer.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Configuration file (YAML)
    pub(crate) file: PathBuf,
    /// Check clusters, folders, addresses and certificates too
    #[arg(long)]
    pub(crate) online: bool,
    /// Check that the account may write to this index, which need not exist yet [default: the indices
    /// that routers name, and the whole cluster]
    #[arg(long, value_name = "NAME", requires = "online", value_delimiter = ',')]
    pub(crate) index: Vec<String>,
    /// Print the outcome as one JSON object: file, valid, errors, warnings, problems, online
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Runs the command. It ignores errors of writing its output (a closed pipe).
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (loaded, mut problems) = match Config::load(&arguments.file) {
        Ok(loaded) => {
            let unusable = gateway::tls_problems(&loaded);
            let config = unusable.is_empty().then_some(loaded.config);
            (config, [loaded.warnings, unusable].concat())
        }
        Err(rejected) => (None, rejected.problems),
    };
    let valid = loaded.is_some();
    let mut findings = match loaded {
        Some(config) if arguments.online => online::look(&config, &arguments.index),
        _ => Vec::new(),
    };
    let worst = findings.iter().map(|finding| finding.level).max();
    if arguments.quiet {
        problems.retain(|problem| problem.severity == Severity::Error);
        findings.retain(|finding| finding.level >= Level::Away);
    }
    let _ = if arguments.json {
        write_json(arguments, valid, &problems, &findings)
    } else {
        write_text(arguments, valid, &problems).and_then(|()| write_findings(&findings))
    };
    match worst {
        _ if !valid => ExitCode::from(exit::NO),
        Some(Level::Error) => ExitCode::from(exit::NO),
        Some(Level::Away) => ExitCode::from(exit::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

fn count(problems: &[Problem], severity: Severity) -> usize {
    problems
        .iter()
        .filter(|problem| problem.severity == severity)
        .count()
}

fn write_json(
    arguments: &Arguments,
    valid: bool,
    problems: &[Problem],
    findings: &[Finding],
) -> io::Result<()> {
    let mut report = json!({
        "file": arguments.file.display().to_string(),
        "valid": valid,
        "errors": count(problems, Severity::Error),
        "warnings": count(problems, Severity::Warning),
        "problems": problems,
    });
    if arguments.online {
        report["online"] = json!(findings);
    }
    writeln!(io::stdout(), "{report:#}")
}

fn write_findings(findings: &[Finding]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    findings
        .iter()
        .try_for_each(|finding| writeln!(out, "{}", plain(&finding.to_string())))
}

fn write_text(arguments: &Arguments, valid: bool, problems: &[Problem]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let colour = has_colours(&out);
    for problem in problems {
        writeln!(
            out,
            "{}",
            if colour {
                coloured(problem)
            } else {
                problem.to_string()
            }
        )?;
    }
    let errors = counted(count(problems, Severity::Error) as u64, "error");
    let warnings = counted(count(problems, Severity::Warning) as u64, "warning");
    let file = arguments.file.display();
    match (valid, arguments.quiet) {
        (true, true) => Ok(()),
        (true, false) if problems.is_empty() => writeln!(out, "{file}: good"),
        (true, false) => writeln!(out, "{file}: good, {warnings}"),
        (false, _) => writeln!(out, "{file}: can't be used: {errors}, {warnings}"),
    }
}

/// Highlights the severity and the key; the words are those of the plain line.
fn coloured(problem: &Problem) -> String {
    let (word, code) = match problem.severity {
        Severity::Error => ("error: ", "1;31"),
        Severity::Warning => ("warning: ", "1;33"),
    };
    let line = problem
        .to_string()
        .replacen(word, &format!("\x1b[{code}m{word}\x1b[0m"), 1);
    if problem.path.is_empty() {
        return line;
    }
    line.replacen(
        &format!("{}: ", problem.path),
        &format!("\x1b[1m{}\x1b[0m: ", problem.path),
        1,
    )
}

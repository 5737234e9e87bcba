//! The load file, which is checked as a whole before anything is sent.
//!
//! [`Load::read`] returns requests whose texts are compiled templates over the file's variables. It reports
//! every problem of the file at once, each with its line, its key and the nearest valid key.

mod account;
mod condition;
mod request;
mod runner;
mod section;
mod text;
mod variable;

use std::path::Path;
use std::sync::Arc;

use settings::problem::Problems;
use settings::tree::{self, Unknown};
use settings::yaml;
use settings::{Environment, Problem, Rejected, Severity};

pub use self::runner::Runner;
pub(crate) use self::section::Section;
use crate::request::Request;
use crate::statsd::StatsdTarget;
use crate::variable::Variable;

/// A load file, ready to run.
#[derive(Debug)]
pub struct Load {
    pub(crate) runner: Runner,
    pub(crate) variables: Arc<[Variable]>,
    pub(crate) requests: Arc<[Request]>,
    /// The number of values of answers that each user keeps.
    pub(crate) registered: usize,
    pub(crate) statsd: Option<StatsdTarget>,
}

/// A load file with its warnings.
#[derive(Debug)]
pub struct Loaded {
    /// The load to run.
    pub load: Load,
    /// Problems that are accepted, but worth a line each.
    pub warnings: Vec<Problem>,
}

// === impl Load ===

impl Load {
    /// Reads a file, with the process's environment.
    ///
    /// # Errors
    /// Every problem of the file, with its place.
    pub fn read(file: &Path) -> Result<Loaded, Rejected> {
        let name = file.display().to_string();
        let folder = file.parent().unwrap_or(Path::new(""));
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text, Some(&name), folder, &variable_of_process),
            Err(error) => {
                let mut problems = Problems::new(Some(name));
                problems.add(Severity::Error, None, "", format!("can't be read: {error}"), None);
                Err(Rejected {
                    problems: problems.into_sorted(),
                })
            }
        }
    }

    /// Returns how many requests a user sends in each round.
    pub(crate) fn requests_per_round(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.times)).sum()
    }

    /// Checks the text of a file. `name` is the file's name in messages. A file of values with a relative
    /// path is looked for in the working directory, then in `folder`.
    ///
    /// # Errors
    /// Every problem of the file, with its place.
    pub fn parse(
        text: &str,
        name: Option<&str>,
        folder: &Path,
        environment: Environment<'_>,
    ) -> Result<Loaded, Rejected> {
        let mut problems = Problems::new(name.map(str::to_owned));
        let load = Self::parse_into(text, folder, environment, &mut problems);
        let errors = problems.has_errors();
        let problems = problems.into_sorted();
        match load {
            Some(load) if !errors => Ok(Loaded {
                load,
                warnings: problems,
            }),
            _ => Err(Rejected { problems }),
        }
    }

    /// How the file says to run it.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// The server that receives figures during the run; none: figures are not sent.
    pub fn statsd(&self) -> Option<&StatsdTarget> {
        self.statsd.as_ref()
    }

    /// The names of the requests, as the summary uses them.
    pub fn request_names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|request| request.name.as_str())
    }

    fn parse_into(
        text: &str,
        folder: &Path,
        environment: Environment<'_>,
        problems: &mut Problems,
    ) -> Option<Load> {
        let mut root = yaml::parse(text, problems)?;
        tree::substitute(&mut root, environment, Unknown::Left, problems);
        let mut top = Section::of(&root, "", problems)?;
        top.get("env");
        let runner = top.get("runner");
        let variables = top.list("variables");
        let requests = top.list("requests");
        let statsd = statsd(&mut top);
        top.end();

        let runner = Runner::read(runner, folder, problems);
        let variables = variable::read_all(&variables, folder, problems);
        if requests.is_empty() {
            let help = Some("write at least one `- request:` with `method` and `url`".to_owned());
            problems.error(root.place, "requests", "there are no requests", help);
        }
        let mut registered: Vec<String> = Vec::new();
        for node in &requests {
            // Problems here are reported when the request itself is read.
            for (name, _) in request::registered(node, "", &mut Problems::default()) {
                if !registered.contains(&name) {
                    registered.push(name);
                }
            }
        }
        let known = request::FileParts {
            runner: &runner,
            variables: &variables,
            registered: &registered,
        };
        let requests: Vec<Request> = requests
            .iter()
            .enumerate()
            .filter_map(|(at, node)| request::read(node, &format!("requests[{at}]"), &known, problems))
            .collect();
        Some(Load {
            runner,
            variables: variables.into(),
            requests: requests.into(),
            registered: registered.len(),
            statsd,
        })
    }
}

/// Reads the section `statsd`.
fn statsd(top: &mut Section<'_, '_>) -> Option<StatsdTarget> {
    let node = top.get("statsd")?;
    let mut section = Section::of(node, "statsd", top.problems)?;
    let enabled = section.flag("enabled").unwrap_or(true);
    let host = section
        .text("host")
        .map_or("127.0.0.1".to_owned(), |text| text.text);
    let port = section.number("port", 1, u16::MAX).unwrap_or(8125);
    let namespace = section
        .text("namespace")
        .map_or("loadgen".to_owned(), |text| text.text);
    if let Some(protocol) = section.text("protocol")
        && protocol.text != "udp"
    {
        let message = format!("`{}` is not spoken: only udp is", protocol.text);
        section
            .problems
            .error(protocol.place, &protocol.path, message, None);
    }
    for key in ["interval_in_seconds", "buffer_size"] {
        section.ignored(key, "figures are sent once a second, in one datagram");
    }
    section.end();
    enabled.then_some(StatsdTarget {
        host,
        port,
        namespace,
    })
}

/// Returns a variable of the process's environment. Load files call the cluster `ES_ENDPOINT`. All other
/// commands call it `TIDEGATE_CLUSTER`, and so do users who export it once for all of them.
fn variable_of_process(name: &str) -> Option<String> {
    let value = |name| std::env::var(name).ok();
    match name {
        "ES_ENDPOINT" => value(name).or_else(|| value("TIDEGATE_CLUSTER").filter(|url| !url.is_empty())),
        _ => value(name),
    }
}

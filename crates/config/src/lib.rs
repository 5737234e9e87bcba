//! The configuration: a YAML file in the vocabulary that users know, checked as a whole before anything runs.
//!
//! A file goes through five steps. Of [`settings`], `yaml` reads the text into a tree that knows the place of
//! every value, and `tree` nests dotted keys and inserts the environment. `check` compares the tree with the
//! schema of the [`mod@file`] types (unknown keys, types, missing keys). `resolve` turns the tree into the
//! runtime types that the gateway works with (names looked up, addresses parsed). [`reload`] decides when to
//! read the file again, and [`mod@diff`] what that changes. [`masked`] is the text without its secrets, and
//! [`kept`] replaces the file so that it can be taken back. Every step reports all problems that it finds,
//! with line, column and key.
//!
//! ```
//! use config::Config;
//!
//! let text = r#"
//! entry:  [{name: e, router: r, network.binding: "127.0.0.1:8000"}]
//! router: [{name: r, default_flow: f}]
//! flow:
//!   - name: f
//!     filter: [{bulk_reshuffle: {elasticsearch: prod, mode: sync}}, {elasticsearch: {elasticsearch: prod}}]
//! elasticsearch: [{name: prod, endpoints: ["http://127.0.0.1:9200"]}]
//! "#;
//! let loaded = Config::parse(text, Some("gateway.yml"), &|_| None).expect("nothing is wrong with it");
//! assert_eq!(loaded.config.flows["f"].filters.len(), 2);
//!
//! let wrong = text.replace("router: r", "ruoter: r");
//! let rejected = Config::parse(&wrong, Some("gateway.yml"), &|_| None).unwrap_err();
//! let first = rejected.problems[0].to_string();
//! assert!(first.contains("did you mean `router`?") || first.contains("`router` is missing"), "{first}");
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod check;
pub mod diff;
pub mod file;
pub mod kept;
pub mod masked;
mod published;
pub mod reload;
mod resolve;
mod retry;
pub mod router;
mod runtime;
mod schema;
mod show;
mod vocabulary;
pub mod when;

pub use file::scalar::{BadUnit, parse_bytes, parse_time, show_bytes, show_time};
pub use resolve::{BadListenAddress, listen_address, overlap};
pub use runtime::*;
pub use schema::{Explanation, NoSuchKey, explain, markdown, schema};
pub use settings::{Environment, MASK, Position, Problem, Rejected, Secret, Severity};
pub use show::show;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use check::Positions;
use file::{
    AdminFile, BasicAuthFile, BulkReshuffleFile, CombineFile, ConfigFile, ElasticsearchFile, EntryFile,
    FilterFile, FlowFile, ForwardFile, ModeFile, RouterFile,
};
use settings::problem::Problems;
use settings::{problem, tree, yaml};

/// A checked configuration, with what there is to say about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration to run.
    pub config: Config,
    /// What was accepted but deserves a line in the log: keys without effect, risky settings, access that is
    /// open to strangers.
    pub warnings: Vec<Problem>,
    /// The file with all defaults filled in, for `config show`. Secrets print as [`MASK`].
    pub file: ConfigFile,
    /// The source; `None` for a configuration without a file.
    source: Option<Source>,
}

/// The text that a configuration was read from.
#[derive(Clone, Debug)]
struct Source {
    name: Option<String>,
    places: Arc<Positions>,
    /// The fingerprint of the text.
    fingerprint: u64,
    text: Secret,
}

/// The command line options that replace a file.
#[derive(Clone, Debug)]
pub struct QuickStart {
    /// `--cluster`: the URL of any node, which may contain `user:password@`.
    pub cluster: String,
    /// `--listen`.
    pub listen: SocketAddr,
    /// Accept any certificate of the cluster.
    pub insecure_skip_verify: bool,
    /// Authorities (PEM) that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// What happens to client requests without credentials.
    pub anonymous: Anonymous,
    /// The address of the admin port; `None` for the default.
    pub admin: Option<SocketAddr>,
    /// Small bulks of different clients travel together, unless `--no-combine` is given.
    pub combine: bool,
    /// `--direct-routing`: what happens to documents that have neither id nor routing.
    pub direct_routing: DirectRouting,
    /// `--rewrite-to-bulk`: writes of single documents are sent as bulks of one operation.
    pub rewrite_to_bulk: bool,
    /// `--user` and its password: the gateway's own account, which replaces one in the URL.
    pub account: Option<Credentials>,
}

// === impl Config ===

impl Config {
    /// Reads and checks a file, with the environment of the process.
    ///
    /// # Errors
    /// Returns everything that is wrong with the file, with places.
    pub fn load(file: &Path) -> Result<Loaded, Rejected> {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text, Some(&name), &|variable| std::env::var(variable).ok()),
            Err(error) => {
                let mut problems = Problems::new(Some(name));
                problems.add(Severity::Error, None, "", format!("can't be read: {error}"), None);
                Err(Rejected {
                    problems: problems.into_sorted(),
                })
            }
        }
    }

    /// Checks the text of a file. `name` is the file's name in messages.
    ///
    /// Besides the text, only the certificate files that it names are read.
    ///
    /// # Errors
    /// Returns everything that is wrong with the text, with places.
    pub fn parse(text: &str, name: Option<&str>, environment: Environment<'_>) -> Result<Loaded, Rejected> {
        let mut problems = Problems::new(name.map(str::to_owned));
        let loaded = Self::parse_into(text, environment, &mut problems);
        let errors = problems.has_errors();
        let problems = problems.into_sorted();
        match loaded {
            Some((config, file, places)) if !errors => Ok(Loaded {
                config,
                warnings: problems,
                file,
                source: Some(Source {
                    name: name.map(str::to_owned),
                    places: Arc::new(places),
                    fingerprint: reload::fingerprint(text),
                    text: Secret::new(text),
                }),
            }),
            _ => Err(Rejected { problems }),
        }
    }

    /// Returns the clusters to which writes of an entry may go, at once or through a queue.
    pub fn clusters_behind(&self, entry: &Entry) -> BTreeSet<&Arc<str>> {
        let router = self.routers.get(&entry.router);
        let flows = router.into_iter().flat_map(|router| router.flows());
        let filters = flows
            .filter_map(|flow| self.flows.get(flow))
            .flat_map(|flow| &flow.filters);
        let mut found = BTreeSet::new();
        for filter in filters {
            let (cluster, queue) = match &filter.action {
                FilterAction::Elasticsearch(forward) => (&forward.cluster, None),
                FilterAction::BulkReshuffle(reshuffle) => (&reshuffle.cluster, reshuffle.queue.as_ref()),
            };
            found.insert(cluster);
            let deliveries = self.deliveries.iter();
            let of_queue = deliveries.filter(|delivery| Some(&delivery.queue) == queue);
            found.extend(of_queue.map(|delivery| &delivery.cluster));
        }
        found
    }

    fn parse_into(
        text: &str,
        environment: Environment<'_>,
        problems: &mut Problems,
    ) -> Option<(Self, ConfigFile, Positions)> {
        let node = yaml::parse(text, problems)?;
        let mut node = tree::nest(node, problems);
        tree::substitute(&mut node, environment, tree::Unknown::Refused, problems);
        let (json, places) = check::check(&node, schema::cached(), problems);
        // Values that failed the check are left out of `json`. So this reads everything that was right, and
        // the references among it are checked too.
        let file: ConfigFile = match serde_json::from_value(json) {
            Ok(file) => file,
            Err(error) => {
                if !problems.has_errors() {
                    let place = Position { line: 1, column: 1 };
                    problems.error(place, "", format!("can't be read: {error}"), None);
                }
                return None;
            }
        };
        let config = resolve::resolve(&file, Some(&places), problems);
        Some((config, file, places))
    }

    /// Builds a configuration without a file: one entry, one cluster, bulk requests split by node, everything
    /// else forwarded.
    ///
    /// # Errors
    /// Returns what is wrong with the URL or with the files that the options name.
    pub fn quick_start(from: &QuickStart) -> Result<Loaded, Rejected> {
        let mut problems = Problems::new(None);
        let cluster = match from.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                problems.add(Severity::Error, None, "--cluster", why.to_string(), None);
                return Err(Rejected {
                    problems: problems.into_sorted(),
                });
            }
        };
        let forward = ForwardFile {
            elasticsearch: CLUSTER.to_owned(),
            ..Default::default()
        };
        let mut entry = EntryFile {
            name: "entry".to_owned(),
            router: "router".to_owned(),
            ..Default::default()
        };
        entry.network.binding = from.listen.to_string();
        let file = ConfigFile {
            entry: vec![entry],
            router: vec![RouterFile {
                name: "router".to_owned(),
                default_flow: "flow".to_owned(),
                ..Default::default()
            }],
            flow: vec![FlowFile {
                name: "flow".to_owned(),
                filter: vec![
                    FilterFile {
                        bulk_reshuffle: Some(from.bulk()),
                        ..Default::default()
                    },
                    FilterFile {
                        elasticsearch: Some(forward),
                        ..Default::default()
                    },
                ],
            }],
            elasticsearch: vec![cluster],
            admin: from.admin.map(|binding| AdminFile {
                binding: binding.to_string(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let config = resolve::resolve(&file, None, &mut problems);
        let errors = problems.has_errors();
        let problems: Vec<Problem> = problems.into_sorted().into_iter().map(for_options).collect();
        if errors {
            Err(Rejected { problems })
        } else {
            Ok(Loaded {
                config,
                warnings: problems,
                file,
                source: None,
            })
        }
    }
}

// === impl QuickStart ===

impl QuickStart {
    fn cluster(&self) -> Result<ElasticsearchFile, resolve::BadEndpoint> {
        let (endpoint, account) = resolve::endpoint(&self.cluster)?;
        let mut cluster = ElasticsearchFile {
            name: CLUSTER.to_owned(),
            endpoint: Some(endpoint.to_string()),
            anonymous: self.anonymous,
            ..Default::default()
        };
        cluster.tls.insecure_skip_verify = self.insecure_skip_verify;
        cluster.tls.ca_file = self.ca_file.as_ref().map(|file| file.display().to_string());
        if let Some(Credentials::Basic { username, password }) = self.account.clone().or(account) {
            cluster.basic_auth = Some(BasicAuthFile { username, password });
        }
        Ok(cluster)
    }

    fn bulk(&self) -> BulkReshuffleFile {
        BulkReshuffleFile {
            elasticsearch: CLUSTER.to_owned(),
            mode: Some(ModeFile::Sync),
            combine: CombineFile {
                enabled: self.combine,
                ..Default::default()
            },
            direct_routing: self.direct_routing,
            rewrite_to_bulk: self.rewrite_to_bulk,
            ..Default::default()
        }
    }
}

// === impl Loaded ===

impl Loaded {
    /// Returns a problem with `key` that was found when the configuration was put in force.
    pub fn problem(&self, key: &str, message: String) -> Problem {
        let problem = Problem {
            severity: Severity::Error,
            file: self.source.as_ref().and_then(|source| source.name.clone()),
            place: self.place(key),
            path: key.to_owned(),
            message,
            help: None,
        };
        match self.source {
            Some(_) => problem,
            None => for_options(problem),
        }
    }

    /// Returns the text that this was read from, or `None` if there is no file.
    pub fn text(&self) -> Option<&Secret> {
        self.source.as_ref().map(|source| &source.text)
    }

    /// Returns a fingerprint of the text that this was read from, or `None` if there is no file.
    pub fn fingerprint(&self) -> Option<u64> {
        self.source.as_ref().map(|source| source.fingerprint)
    }

    /// Returns the name of the file that this was read from, or `None` if there is no file.
    pub fn file_name(&self) -> Option<&str> {
        self.source.as_ref()?.name.as_deref()
    }

    /// Returns where `key`, or the nearest section around it, was written, or `None` if there is no file or
    /// no key.
    pub fn place(&self, key: &str) -> Option<Position> {
        let source = self.source.as_ref().filter(|_| !key.is_empty());
        source.map(|source| source.places.of(key))
    }
}

/// Rewords a problem of the quick start for a user who has given options and no file.
fn for_options(mut problem: Problem) -> Problem {
    let option = match problem.path.as_str() {
        "elasticsearch[0].tls.ca_file" => "--ca",
        "elasticsearch[0].tls.insecure_skip_verify" => "--insecure",
        "elasticsearch[0].anonymous" => "--share-account",
        "entry[0].network.binding" => "--listen",
        "admin.binding" => "--admin",
        path if path.starts_with("elasticsearch[0]") => "--cluster",
        path => path,
    };
    problem.path = option.to_owned();
    problem.message = problem
        .message
        .replace("`ca_file`", "`--ca`")
        .replace("write `anonymous: pass`", "leave out `--share-account`");
    problem
}

/// The name of the cluster in a quick start.
const CLUSTER: &str = "cluster";

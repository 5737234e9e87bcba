//! Turns file types into runtime types: looks up names, parses addresses, and checks what belongs together as
//! a whole. Every problem is reported, so that a section which fails does not keep others from being checked.

mod cluster;
mod entry;
mod flow;
mod kafka;
mod queue;
mod risk;
mod tracing;

pub(super) use cluster::{BadEndpoint, endpoint};
pub use entry::overlap;
pub use entry::{BadListenAddress, listen_address};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use settings::Secret;

use super::check::Positions;
use super::file::{AdminTokenFile, ConfigFile, RouterFile, RuleFile};
use super::problem::{Position, Problems, Severity, nearest};
use super::runtime::*;
use crate::router::{Pattern, Router, Rule};

/// Turns the checked file into what the gateway runs. Problems are added; the result is usable only if none
/// of them is an error.
pub(super) fn resolve(file: &ConfigFile, places: Option<&Positions>, problems: &mut Problems) -> Config {
    let mut resolver = Resolver { places, problems };
    let clusters = resolver.clusters(&file.elasticsearch, &file.flow);
    let flows = resolver.flows(&file.flow, &file.elasticsearch);
    let routers = resolver.routers(&file.router, &file.flow);
    let entries = resolver.entries(&file.entry, &file.router);
    let queues = resolver.queues(file);
    let deliveries = resolver.deliveries(file, &queues);
    let config = Config {
        paths: Paths {
            data: PathBuf::from(&file.path.data),
        },
        entries,
        routers,
        flows,
        clusters,
        queues,
        deliveries,
        admin: resolver.admin(file),
        logging: Logging {
            level: match file.log.level {
                Some(level) if file.logging.level == LogLevel::default() => level,
                _ => file.logging.level,
            },
            format: file.logging.format,
            slow_request: file.logging.slow_request.map(|time| time.0),
            access: file.logging.access.enabled.then_some(file.logging.access.sample),
        },
        tracing: resolver.tracing(&file.tracing),
        worker: Worker {
            count: file.worker.count.map(|count| count as usize),
            body_memory_bytes_max: file.worker.body_memory.0,
            fairness: wire::Fairness {
                peer_share_percent: file.worker.body_memory_peer_share,
                rate_min: file.worker.body_memory_min_rate.0,
            },
            delivery_memory_bytes_max: file.worker.delivery_memory.0,
            drain_timeout: file.worker.drain_timeout.0,
        },
        auto_reload: file.configs.auto_reload,
    };
    resolver.together(&config, file);
    config
}

struct Resolver<'a> {
    /// `None` if there is no file, so that problems have no place.
    places: Option<&'a Positions>,
    problems: &'a mut Problems,
}

// === impl Resolver ===

impl Resolver<'_> {
    fn place(&self, path: &str) -> Option<Position> {
        self.places.map(|places| places.of(path))
    }

    /// Returns whether `enabled: false` is written in the TLS section at `path`, given that there is no TLS.
    fn is_without(&self, path: &str) -> bool {
        self.places
            .is_some_and(|places| places.has(&format!("{path}.enabled")))
    }

    fn error(&mut self, path: &str, message: impl Into<String>) {
        self.problems
            .add(Severity::Error, self.place(path), path, message, None);
    }

    fn error_with_help(&mut self, path: &str, message: impl Into<String>, help: Option<String>) {
        self.problems
            .add(Severity::Error, self.place(path), path, message, help);
    }

    fn warning(&mut self, path: &str, message: impl Into<String>) {
        self.problems
            .add(Severity::Warning, self.place(path), path, message, None);
    }

    /// Checks that names are present and distinct.
    fn names<'n>(&mut self, section: &str, names: impl IntoIterator<Item = &'n str>) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, name) in names.into_iter().enumerate() {
            let path = format!("{section}[{at}].name");
            // A missing name has already been reported.
            if name.is_empty() {
                continue;
            }
            if let Some(first) = seen.insert(name, at) {
                self.error(&path, format!("`{name}` is the name of {section}[{first}] too"));
            }
        }
    }

    /// Checks that `name` is one of `known`, whose items are a name and whether it is switched on.
    fn refers<'n>(
        &mut self,
        path: &str,
        name: &str,
        what: &str,
        known: impl Iterator<Item = (&'n str, bool)> + Clone,
    ) {
        if name.is_empty() {
            return;
        }
        match known.clone().find(|(known, _)| *known == name) {
            Some((_, true)) => {}
            Some((_, false)) => self.error(path, format!("{what} `{name}` has `enabled: false`")),
            None => {
                let names: Vec<&str> = known.map(|(name, _)| name).collect();
                let help = nearest(name, names.iter().copied())
                    .map(|near| format!("did you mean `{near}`?"))
                    .or_else(|| (!names.is_empty()).then(|| format!("there is {}", names.join(", "))));
                self.error_with_help(path, format!("there is no {what} `{name}`"), help);
            }
        }
    }

    /// Checks that a file can be read now, since it has to be readable when it is used.
    fn file(&mut self, path: &str, name: &str) -> PathBuf {
        if let Err(error) = std::fs::File::open(name) {
            self.error(path, format!("`{name}` can't be read: {error}"));
        }
        PathBuf::from(name)
    }

    fn routers(
        &mut self,
        routers: &[RouterFile],
        flows: &[super::file::FlowFile],
    ) -> BTreeMap<Arc<str>, Arc<Router>> {
        self.names("router", routers.iter().map(|router| router.name.as_str()));
        let known = flows.iter().map(|flow| (flow.name.as_str(), true));
        let mut resolved = BTreeMap::new();
        for (at, router) in routers.iter().enumerate() {
            let path = format!("router[{at}]");
            self.refers(
                &format!("{path}.default_flow"),
                &router.default_flow,
                "flow",
                known.clone(),
            );
            let mut rules = Vec::new();
            for (at, rule) in router.rules.iter().enumerate() {
                let path = format!("{path}.rules[{at}]");
                for (at, flow) in rule.flow.0.iter().enumerate() {
                    let path = item_path(&path, "flow", at, rule.flow.0.len());
                    self.refers(&path, flow, "flow", known.clone());
                }
                let compiled = self.rule(&path, rule);
                if rule.enabled {
                    rules.extend(compiled);
                }
            }
            let name: Arc<str> = router.name.as_str().into();
            let default_flow = router.default_flow.as_str().into();
            resolved.insert(name.clone(), Arc::new(Router::new(name, default_flow, rules)));
        }
        resolved
    }

    fn rule(&mut self, path: &str, rule: &RuleFile) -> Option<Rule> {
        if rule.flow.0.is_empty() || rule.pattern.0.is_empty() || rule.method.0.is_empty() {
            // Missing keys have already been reported; empty lists have not.
            for (key, list) in [
                ("flow", &rule.flow),
                ("pattern", &rule.pattern),
                ("method", &rule.method),
            ] {
                if list.0.is_empty()
                    && self
                        .places
                        .is_some_and(|places| places.has(&format!("{path}.{key}")))
                {
                    self.error(&format!("{path}.{key}"), "is an empty list");
                }
            }
            return None;
        }
        let mut patterns = Vec::new();
        for (at, text) in rule.pattern.0.iter().enumerate() {
            match Pattern::compile(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(why) => {
                    let path = item_path(path, "pattern", at, rule.pattern.0.len());
                    self.error(&path, format!("`{text}` {why}"));
                }
            }
        }
        let mut methods = Vec::new();
        for (at, text) in rule.method.0.iter().enumerate() {
            let upper = text.to_uppercase();
            if upper != "*" && !METHODS.contains(&upper.as_str()) {
                let help =
                    nearest(&upper, METHODS.iter().copied()).map(|near| format!("did you mean `{near}`?"));
                let path = item_path(path, "method", at, rule.method.0.len());
                self.error_with_help(&path, format!("`{text}` is not a method"), help);
            }
            methods.extend(Method::from_bytes(upper.as_bytes()));
        }
        let any = rule.method.0.iter().any(|text| text == "*");
        let flows = rule.flow.0.iter().map(|flow| flow.as_str().into()).collect();
        Some(Rule::new((!any).then_some(methods), patterns, flows))
    }

    fn admin(&mut self, file: &ConfigFile) -> Admin {
        if file.admin.is_some() && file.api.is_some() {
            self.error("api", "`admin` and `api` are the same section; keep `admin`");
        }
        let ((path, tls_path), enabled, text, token, tls) = match (&file.admin, &file.api) {
            (None, Some(api)) => (
                ("api.network.binding", "api.tls"),
                api.enabled,
                &api.network.binding,
                &api.token,
                &api.tls,
            ),
            (Some(admin), _) => (
                ("admin.binding", "admin.tls"),
                admin.enabled,
                &admin.binding,
                &admin.token,
                &admin.tls,
            ),
            (None, None) => return Admin::default(),
        };
        let token: Option<Secret> = token.clone().filter(|token| !token.is_empty());
        let written = file.admin.as_ref().map_or(&[][..], |admin| &admin.tokens);
        let tokens = self.admin_tokens(written, token.as_ref());
        let mut admin = Admin {
            binding: None,
            token,
            tokens,
            tls: None,
        };
        if !enabled {
            return admin;
        }
        admin.tls = tls.as_ref().and_then(|tls| self.entry_tls(tls_path, tls));
        let Some(binding) = self.address(path, text) else {
            return Admin::default();
        };
        if !binding.ip().is_loopback() && !admin.needs_token() {
            let help = Some("add `token` to the section, or bind to 127.0.0.1".to_owned());
            self.error_with_help(
                path,
                format!("{binding} is open to other machines, and there is no token"),
                help,
            );
        } else if !binding.ip().is_loopback() && admin.tls.is_none() && !self.is_without(tls_path) {
            let help = format!(
                "switch on `{tls_path}`, bind to 127.0.0.1, or write `{tls_path}.enabled: false` to have plain HTTP all the same"
            );
            let message =
                format!("{binding} is open to other machines, and tokens would travel in clear text");
            self.error_with_help(path, message, Some(help));
        }
        admin.binding = Some(binding);
        admin
    }

    /// Checks that each token can be told from the others, by its name and by itself.
    fn admin_tokens(&mut self, written: &[AdminTokenFile], single: Option<&Secret>) -> Vec<AdminToken> {
        self.names("admin.tokens", written.iter().map(|token| token.name.as_str()));
        for (at, token) in written.iter().enumerate() {
            let path = |key: &str| format!("admin.tokens[{at}].{key}");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if !token.name.bytes().all(is_plain) {
                self.error(&path("name"), "a name has letters, digits and `.`, `_`, `-` only");
            }
            if token.token.is_empty() {
                self.error(&path("token"), "is empty: everybody would have it");
                continue;
            }
            let others = written[..at].iter().map(|other| &other.token).chain(single);
            if others.into_iter().any(|other| *other == token.token) {
                self.error(&path("token"), "is another token of the port, too");
            }
        }
        let resolved = written.iter().map(|token| AdminToken {
            name: token.name.as_str().into(),
            token: token.token.clone(),
            right: token.right,
        });
        resolved.collect()
    }
}

/// Returns `list[at]`, or just the key if it was a single value.
fn item_path(path: &str, key: &str, at: usize, count: usize) -> String {
    if count == 1 {
        format!("{path}.{key}")
    } else {
        format!("{path}.{key}[{at}]")
    }
}

const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
];

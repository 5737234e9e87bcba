//! What differs between the configuration in force and a new one, which of these changes wait for a restart,
//! and which listeners stay.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Loaded;
use super::file::ConfigFile;
use super::runtime::*;

/// The difference between a configuration in force and a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The entries that differ, by name.
    pub entries: BTreeMap<Arc<str>, EntryChange>,
    /// Routers that are new, gone or different.
    pub routers: BTreeMap<Arc<str>, SectionChange>,
    /// Flows that are new, gone or different.
    pub flows: BTreeMap<Arc<str>, SectionChange>,
    /// Clusters that are new, gone or different.
    pub clusters: BTreeMap<Arc<str>, SectionChange>,
    /// Queues that are new, gone or different.
    pub queues: BTreeMap<Arc<str>, SectionChange>,
    /// Pipelines that are new, gone or different.
    pub pipelines: BTreeMap<Arc<str>, SectionChange>,
    /// Other keys whose change is put in force.
    pub keys: Vec<&'static str>,
    /// Keys whose change waits for a restart.
    pub restart: Vec<&'static str>,
}

/// How a named section differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionChange {
    /// The section is new.
    Added,
    /// The section is gone.
    Removed,
    /// The section is different.
    Changed,
}

/// How an entry differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// A listener to open.
    Added,
    /// A listener to close, once its requests in flight are answered.
    Removed,
    /// Another router, TLS, limits or timeouts, for new requests on the same listener.
    Changed,
    /// The same listener under another name, whatever else may differ. This is the old name.
    Renamed(Arc<str>),
    /// Another binding: one listener is closed and another is opened.
    Moved,
}

/// Compares the configuration in force with a new one.
pub fn diff(old: &Config, new: &Config) -> Changes {
    let (was, is) = (&old.logging, &new.logging);
    let keys = [
        ("logging.level", was.level != is.level),
        ("logging.slow_request", was.slow_request != is.slow_request),
        ("logging.access", was.access != is.access),
        ("tracing", old.tracing != new.tracing),
        ("admin.token", old.admin.token != new.admin.token),
        ("admin.tokens", old.admin.tokens != new.admin.tokens),
        ("admin.tls", old.admin.tls != new.admin.tls),
        (
            "worker.drain_timeout",
            old.worker.drain_timeout != new.worker.drain_timeout,
        ),
        ("configs.auto_reload", old.auto_reload != new.auto_reload),
    ];
    Changes {
        entries: entries(&old.entries, &new.entries),
        routers: named(&old.routers, &new.routers),
        flows: named(&old.flows, &new.flows),
        clusters: named(&old.clusters, &new.clusters),
        queues: named(&old.queues, &new.queues),
        pipelines: named(&pipelines(old), &pipelines(new)),
        keys: differing(&keys),
        restart: Vec::new(),
    }
}

/// Returns what a reload with `new` would change, and what it would leave to a restart.
pub fn changes_of(mut new: Loaded, old: &Config, old_file: &ConfigFile) -> Changes {
    let restart = hold_back(&mut new, old, old_file);
    Changes {
        restart,
        ..diff(old, &new.config)
    }
}

/// Resets what only a restart can change to its value in force, so that `new` describes what will be in
/// force. Returns the keys for which the file has another value.
pub fn hold_back(new: &mut Loaded, old: &Config, old_file: &ConfigFile) -> Vec<&'static str> {
    let (config, file) = (&mut new.config, &mut new.file);
    let moved = old.admin.binding != config.admin.binding;
    let held = [
        ("path.data", old.paths != config.paths),
        ("admin.binding", moved),
        ("logging.format", old.logging.format != config.logging.format),
        ("worker.count", old.worker.count != config.worker.count),
        (
            "worker.body_memory",
            old.worker.body_memory_bytes_max != config.worker.body_memory_bytes_max,
        ),
        (
            "worker.body_memory_peer_share",
            old.worker.fairness.peer_share_percent != config.worker.fairness.peer_share_percent,
        ),
        (
            "worker.body_memory_min_rate",
            old.worker.fairness.rate_min != config.worker.fairness.rate_min,
        ),
        (
            "worker.delivery_memory",
            old.worker.delivery_memory_bytes_max != config.worker.delivery_memory_bytes_max,
        ),
    ];
    config.paths = old.paths.clone();
    file.path.data.clone_from(&old_file.path.data);
    if moved {
        // The whole section: token and TLS may be unnecessary at the new address, and still be all that
        // protects the old one.
        config.admin = old.admin.clone();
        file.admin.clone_from(&old_file.admin);
        file.api.clone_from(&old_file.api);
    }
    config.logging.format = old.logging.format;
    file.logging.format = old_file.logging.format;
    config.worker.count = old.worker.count;
    file.worker.count = old_file.worker.count;
    config.worker.body_memory_bytes_max = old.worker.body_memory_bytes_max;
    file.worker.body_memory = old_file.worker.body_memory;
    config.worker.fairness = old.worker.fairness;
    file.worker.body_memory_peer_share = old_file.worker.body_memory_peer_share;
    file.worker.body_memory_min_rate = old_file.worker.body_memory_min_rate;
    config.worker.delivery_memory_bytes_max = old.worker.delivery_memory_bytes_max;
    file.worker.delivery_memory = old_file.worker.delivery_memory;
    differing(&held)
}

/// Returns, for each new entry, the index of the old entry whose listener it takes over: one with the same
/// binding, and with the same name if there are several (port 0 may appear in more than one entry).
pub fn listeners_that_stay(old: &[Entry], new: &[Entry]) -> Vec<Option<usize>> {
    let mut stay = vec![None; new.len()];
    for same_name in [true, false] {
        for (at, entry) in new.iter().enumerate() {
            let free = |place: &usize| {
                let before = &old[*place];
                !stay.contains(&Some(*place))
                    && before.binding == entry.binding
                    && (!same_name || before.name == entry.name)
            };
            if stay[at].is_none() {
                stay[at] = (0..old.len()).find(free);
            }
        }
    }
    stay
}

fn differing(keys: &[(&'static str, bool)]) -> Vec<&'static str> {
    keys.iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| *key)
        .collect()
}

fn named<T: PartialEq>(
    old: &BTreeMap<Arc<str>, T>,
    new: &BTreeMap<Arc<str>, T>,
) -> BTreeMap<Arc<str>, SectionChange> {
    let gone = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| (name.clone(), SectionChange::Removed));
    let there = new.iter().filter_map(|(name, section)| match old.get(name) {
        None => Some((name.clone(), SectionChange::Added)),
        Some(before) if before != section => Some((name.clone(), SectionChange::Changed)),
        Some(_) => None,
    });
    gone.chain(there).collect()
}

/// Returns what each pipeline delivers.
fn pipelines(config: &Config) -> BTreeMap<Arc<str>, Vec<&Delivery>> {
    let mut pipelines: BTreeMap<Arc<str>, Vec<&Delivery>> = BTreeMap::new();
    for delivery in &config.deliveries {
        pipelines
            .entry(Arc::clone(&delivery.pipeline))
            .or_default()
            .push(delivery);
    }
    pipelines
}

fn entries(old: &[Entry], new: &[Entry]) -> BTreeMap<Arc<str>, EntryChange> {
    let stay = listeners_that_stay(old, new);
    let known = |name: &str| old.iter().any(|entry| &*entry.name == name);
    let mut changes = BTreeMap::new();
    for (at, entry) in old.iter().enumerate() {
        if !stay.contains(&Some(at)) {
            changes.insert(Arc::clone(&entry.name), EntryChange::Removed);
        }
    }
    for (entry, stays) in new.iter().zip(stay) {
        let change = match stays.map(|at| &old[at]) {
            None if known(&entry.name) => EntryChange::Moved,
            None => EntryChange::Added,
            Some(before) if before == entry => continue,
            Some(before) if before.name != entry.name => EntryChange::Renamed(Arc::clone(&before.name)),
            Some(_) => EntryChange::Changed,
        };
        changes.insert(Arc::clone(&entry.name), change);
    }
    changes
}

// === impl Changes ===

impl Changes {
    /// Returns whether no difference was found.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes one line, as in `flows: f changed; entries: e added; needs a restart: worker.count`.
impl fmt::Display for Changes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let entries: Vec<String> = self
            .entries
            .iter()
            .map(|(name, change)| match change {
                EntryChange::Added => format!("{name} added"),
                EntryChange::Removed => format!("{name} removed"),
                EntryChange::Changed => format!("{name} changed"),
                EntryChange::Renamed(before) => format!("{before} renamed to {name}"),
                EntryChange::Moved => format!("{name} moved"),
            })
            .collect();
        if !entries.is_empty() {
            parts.push(format!("entries: {}", entries.join(", ")));
        }
        for (what, changes) in [
            ("routers", &self.routers),
            ("flows", &self.flows),
            ("clusters", &self.clusters),
            ("queues", &self.queues),
            ("pipelines", &self.pipelines),
        ] {
            let list: Vec<String> = changes
                .iter()
                .map(|(name, change)| format!("{name} {}", format!("{change:?}").to_lowercase()))
                .collect();
            if !list.is_empty() {
                parts.push(format!("{what}: {}", list.join(", ")));
            }
        }
        if !self.keys.is_empty() {
            parts.push(format!("changed: {}", self.keys.join(", ")));
        }
        if !self.restart.is_empty() {
            parts.push(format!("needs a restart: {}", self.restart.join(", ")));
        }
        out.write_str(if parts.is_empty() { "nothing changed" } else { "" })?;
        out.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, show};

    const FILE: &str = "
entry:
  - {name: e, router: r, network.binding: '127.0.0.1:8000'}
router: [{name: r, default_flow: f}]
flow:   [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:9200'}]
";

    fn load(text: &str) -> Loaded {
        Config::parse(text, None, &|_| None).unwrap()
    }

    fn said(old: &str, new: &str) -> String {
        diff(&load(old).config, &load(new).config).to_string()
    }

    fn with_entries(entries: &str) -> String {
        FILE.replace(
            "  - {name: e, router: r, network.binding: '127.0.0.1:8000'}",
            entries,
        )
    }

    fn entry(name: &str, binding: &str) -> String {
        format!("  - {{name: {name}, router: r, network.binding: '{binding}'}}\n")
    }

    #[test]
    fn each_difference_is_named() {
        assert_eq!(said(FILE, FILE), "nothing changed");
        let new = FILE
            .replace("'127.0.0.1:8000'", "'127.0.0.1:8000', max_concurrency: 5")
            .replace(":9200", ":9201")
            + "logging: {level: debug, slow_request: 1s, access.enabled: true}\n"
            + "admin: {token: t, tokens: [{name: a, token: b}], tls.enabled: true}\nconfigs.auto_reload: false\nworker.drain_timeout: 1s\n";
        assert_eq!(
            said(FILE, &new),
            "entries: e changed; clusters: c changed; changed: logging.level, logging.slow_request, logging.access, \
             admin.token, admin.tokens, admin.tls, worker.drain_timeout, configs.auto_reload"
        );
    }

    #[test]
    fn a_listener_is_known_by_its_address_whatever_its_entry_is_called() {
        let (one, two) = ("127.0.0.1:8000", "127.0.0.1:8001");
        let both = with_entries(&(entry("e", one) + &entry("f", two)));
        for (new, told) in [
            (entry("x", one) + &entry("f", two), "e renamed to x"),
            (entry("e", one) + &entry("f", "127.0.0.1:8002"), "f moved"),
            (entry("f", two), "e removed"),
            (
                entry("e", one) + &entry("f", two) + &entry("g", "127.0.0.1:8002"),
                "g added",
            ),
            (
                entry("f", one) + &entry("e", two),
                "f renamed to e, e renamed to f",
            ),
            (entry("f", one), "e renamed to f"),
        ] {
            assert_eq!(
                said(&both, &with_entries(&new)),
                format!("entries: {told}"),
                "{new}"
            );
        }
    }

    #[test]
    fn of_several_entries_with_port_0_each_keeps_its_own_listener() {
        let any = "127.0.0.1:0";
        let old = load(&with_entries(&(entry("a", any) + &entry("b", any))))
            .config
            .entries;
        let new = load(&with_entries(&(entry("b", any) + &entry("c", any))))
            .config
            .entries;
        assert_eq!(listeners_that_stay(&old, &new), [Some(1), Some(0)]);
    }

    #[test]
    fn what_needs_a_restart_is_named_and_stays_as_it_is() {
        let old = load(&format!(
            "{FILE}admin: {{binding: '0.0.0.0:2900', token: t, tls.enabled: true}}\n"
        ));
        let mut new = load(&format!(
            "{FILE}admin.binding: '127.0.0.1:2901'\npath.data: elsewhere\nlogging.format: json\n\
             worker: {{count: 1, body_memory: 300mb, body_memory_peer_share: 20, body_memory_min_rate: 1kb, delivery_memory: 9mb, drain_timeout: 1s}}\n"
        ));
        let held = hold_back(&mut new, &old.config, &old.file);
        assert_eq!(
            held,
            [
                "path.data",
                "admin.binding",
                "logging.format",
                "worker.count",
                "worker.body_memory",
                "worker.body_memory_peer_share",
                "worker.body_memory_min_rate",
                "worker.delivery_memory"
            ]
        );
        assert_eq!(
            new.config.admin, old.config.admin,
            "the open port keeps its token"
        );
        let drain_timeout = new.config.worker.drain_timeout;
        assert_eq!(
            new.config.worker,
            Worker {
                drain_timeout,
                ..old.config.worker.clone()
            }
        );
        assert_eq!(drain_timeout.as_secs(), 1);
        let shown = show(&new.file);
        assert!(
            !shown.contains("elsewhere") && shown.contains("0.0.0.0:2900"),
            "{shown}"
        );
        assert!(shown.contains("drain_timeout: 1s"), "{shown}");
    }

    #[test]
    fn a_new_token_of_the_same_admin_port_needs_no_restart() {
        let old = load(&format!("{FILE}admin.token: old\n"));
        let mut new = load(&format!("{FILE}admin.token: new\n"));
        assert!(hold_back(&mut new, &old.config, &old.file).is_empty());
        assert_eq!(new.config.admin.token.as_ref().map(Secret::expose), Some("new"));
    }
}

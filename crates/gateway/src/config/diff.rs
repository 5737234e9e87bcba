//! What differs between two configurations, and what of that can be applied without a restart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::runtime::*;

/// The difference between a running configuration and a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries by name.
    pub entries: BTreeMap<Arc<str>, EntryChange>,
    /// Routers that are new, gone or different.
    pub routers: BTreeMap<Arc<str>, Change>,
    /// Flows that are new, gone or different.
    pub flows: BTreeMap<Arc<str>, Change>,
    /// Clusters that are new, gone or different.
    pub clusters: BTreeMap<Arc<str>, Change>,
    /// The least level written to the log is another.
    pub log_level: bool,
    /// Keys whose change waits for a restart.
    pub restart: Vec<&'static str>,
}

/// How a named section differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is different.
    Changed,
}

/// How an entry differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// A listener to open.
    Added,
    /// A listener to close, once its connections are drained.
    Removed,
    /// Router, limits or timeouts: for new requests on the same listener.
    Settings,
    /// Binding, `reuse_port` or TLS: a listener to close and one to open.
    Listener,
}

/// Compares a running configuration with a new one.
pub fn diff(old: &Config, new: &Config) -> Changes {
    let mut restart = Vec::new();
    for (key, differs) in [
        ("path", old.paths != new.paths),
        ("queue", old.queues != new.queues),
        ("pipeline", old.deliveries != new.deliveries),
        ("admin", old.admin != new.admin),
        ("logging.format", old.logging.format != new.logging.format),
        ("worker.count", old.worker.count != new.worker.count),
        (
            "worker.body_memory",
            old.worker.body_memory_bytes_max != new.worker.body_memory_bytes_max,
        ),
    ] {
        if differs {
            restart.push(key);
        }
    }
    Changes {
        entries: entries(old, new),
        routers: named(&old.routers, &new.routers),
        flows: named(&old.flows, &new.flows),
        clusters: named(&old.clusters, &new.clusters),
        log_level: old.logging.level != new.logging.level,
        restart,
    }
}

fn named<T: PartialEq>(
    old: &BTreeMap<Arc<str>, T>,
    new: &BTreeMap<Arc<str>, T>,
) -> BTreeMap<Arc<str>, Change> {
    let gone = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| (name.clone(), Change::Removed));
    let there = new.iter().filter_map(|(name, section)| match old.get(name) {
        None => Some((name.clone(), Change::Added)),
        Some(before) if before != section => Some((name.clone(), Change::Changed)),
        Some(_) => None,
    });
    gone.chain(there).collect()
}

fn entries(old: &Config, new: &Config) -> BTreeMap<Arc<str>, EntryChange> {
    let find =
        |config: &Config, name: &str| config.entries.iter().find(|entry| &*entry.name == name).cloned();
    let gone = old
        .entries
        .iter()
        .filter(|entry| find(new, &entry.name).is_none());
    let gone = gone.map(|entry| (entry.name.clone(), EntryChange::Removed));
    let there = new.entries.iter().filter_map(|entry| {
        let change = match find(old, &entry.name) {
            None => EntryChange::Added,
            Some(before) if before == *entry => return None,
            Some(before) if listener(&before) != listener(entry) => EntryChange::Listener,
            Some(_) => EntryChange::Settings,
        };
        Some((entry.name.clone(), change))
    });
    gone.chain(there).collect()
}

fn listener(entry: &Entry) -> (std::net::SocketAddr, bool, bool, &Option<EntryTls>) {
    (
        entry.binding,
        entry.skip_occupied_port,
        entry.reuse_port,
        &entry.tls,
    )
}

// === impl Changes ===

impl Changes {
    /// Whether nothing differs that this can tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One line: `flows: f changed; entries: e added; needs a restart: worker.count`.
impl fmt::Display for Changes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let entries: Vec<String> = self
            .entries
            .iter()
            .map(|(name, change)| {
                let change = match change {
                    EntryChange::Added => "added",
                    EntryChange::Removed => "removed",
                    EntryChange::Settings => "changed",
                    EntryChange::Listener => "moved",
                };
                format!("{name} {change}")
            })
            .collect();
        if !entries.is_empty() {
            parts.push(format!("entries: {}", entries.join(", ")));
        }
        for (what, changes) in [
            ("routers", &self.routers),
            ("flows", &self.flows),
            ("clusters", &self.clusters),
        ] {
            let list: Vec<String> = changes
                .iter()
                .map(|(name, change)| format!("{name} {}", format!("{change:?}").to_lowercase()))
                .collect();
            if !list.is_empty() {
                parts.push(format!("{what}: {}", list.join(", ")));
            }
        }
        if self.log_level {
            parts.push("log level changed".to_owned());
        }
        if !self.restart.is_empty() {
            parts.push(format!("needs a restart: {}", self.restart.join(", ")));
        }
        out.write_str(if parts.is_empty() { "nothing changed" } else { "" })?;
        out.write_str(&parts.join("; "))
    }
}

//! Problems that show only when sections are compared: contradictions, and access that is open to everybody.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Resolver;
use super::entry::overlap;
use crate::file::ConfigFile;
use crate::file::scalar::show_bytes;
use crate::runtime::*;

/// The least delivery memory: with less, lanes would read only a few documents at a time.
const DELIVERY_MEMORY_MIN: u64 = 1 << 20;

impl Resolver<'_> {
    pub(super) fn together(&mut self, config: &Config, file: &ConfigFile) {
        let memory = config.worker.body_memory_bytes_max;
        let largest = config
            .entries
            .iter()
            .max_by_key(|entry| entry.limits.body_bytes_max);
        if let Some(entry) = largest.filter(|entry| entry.limits.body_bytes_max > memory) {
            let message = format!(
                "is less than `max_request_body_size` of entry `{}` ({}), so the largest bodies could never be held",
                entry.name,
                show_bytes(entry.limits.body_bytes_max)
            );
            self.error("worker.body_memory", message);
        }
        if config.worker.delivery_memory_bytes_max < DELIVERY_MEMORY_MIN {
            let least = show_bytes(DELIVERY_MEMORY_MIN);
            self.error("worker.delivery_memory", format!("is less than {least}"));
        }
        if let Some(admin) = config.admin.binding.filter(|admin| admin.port() != 0)
            && let Some(entry) = config.entries.iter().find(|entry| overlap(entry.binding, admin))
        {
            let path = if file.api.is_some() {
                "api.network.binding"
            } else {
                "admin.binding"
            };
            self.error(
                path,
                format!("{admin} is taken by entry `{}` ({})", entry.name, entry.binding),
            );
        }
        if self.problems.has_errors() {
            return;
        }
        let used: BTreeSet<&str> = config.entries.iter().map(|entry| &*entry.router).collect();
        for (at, router) in file.router.iter().enumerate() {
            if !used.contains(router.name.as_str()) {
                self.warning(&format!("router[{at}]"), "no entry uses this router");
            }
        }
        for door in open_doors(config) {
            let at = file
                .elasticsearch
                .iter()
                .position(|cluster| cluster.name == *door.cluster);
            let path = at.map_or(String::new(), |at| format!("elasticsearch[{at}].{}", door.key));
            self.warning(&path, door.message);
        }
    }
}

/// A cluster on which strangers can act as the gateway.
struct OpenDoor {
    cluster: Arc<str>,
    /// The key that opens it.
    key: &'static str,
    /// The warning to print.
    message: String,
}

/// Returns the clusters on which strangers can act with the gateway's account, or by its certificate.
fn open_doors(config: &Config) -> Vec<OpenDoor> {
    let mut doors = Vec::new();
    for cluster in config.clusters.values() {
        let by_account = cluster.anonymous == Anonymous::UseGatewayAccount;
        // Clients' requests travel on the same connections as the gateway's own.
        if !by_account && cluster.tls.client_certificate.is_none() {
            continue;
        }
        let open: Vec<String> = config
            .entries
            .iter()
            .filter(|entry| !entry.binding.ip().is_loopback() && !has_client_certificates(entry))
            .filter(|entry| reaches(config, entry, &cluster.name))
            .map(|entry| format!("`{}` ({})", entry.name, entry.binding))
            .collect();
        if open.is_empty() {
            continue;
        }
        let (key, how) = match by_account {
            true => (
                "anonymous",
                "acts on cluster {} with the gateway's own account, without a password; bind to 127.0.0.1, ask for \
                 client certificates (`tls.client_ca_file`), or write `anonymous: pass`",
            ),
            false => (
                "tls.cert_file",
                "and sends no credentials acts on cluster {} as the owner of the gateway's certificate, if the cluster \
                 lets in by certificates; bind to 127.0.0.1, ask for client certificates (`tls.client_ca_file`), or \
                 give that owner no rights and the gateway `basic_auth` or `api_key`",
            ),
        };
        let how = how.replace("{}", &format!("`{}`", cluster.name));
        doors.push(OpenDoor {
            cluster: cluster.name.clone(),
            key,
            message: format!("ANYONE who reaches entry {} {how}", open.join(", ")),
        });
    }
    doors
}

fn has_client_certificates(entry: &Entry) -> bool {
    entry.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some())
}

/// Returns whether a request that arrives at `entry` can reach the cluster.
fn reaches(config: &Config, entry: &Entry, cluster: &str) -> bool {
    let Some(router) = config.routers.get(&entry.router) else {
        return false;
    };
    router
        .flows()
        .filter_map(|flow| config.flows.get(flow))
        .flat_map(|flow| &flow.filters)
        .any(|filter| match &filter.action {
            FilterAction::BulkReshuffle(bulk) => &*bulk.cluster == cluster,
            FilterAction::Elasticsearch(forward) => &*forward.cluster == cluster,
        })
}

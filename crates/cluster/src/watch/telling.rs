//! Telling others about changes: snapshots, the status, the log.

use tokio::time::Instant;
use tracing::info;

use super::Watch;
use crate::ask::AskError;
use crate::routes::{self, RoutesStatus};
use crate::snapshot::Snapshot;
use crate::status::WatchState;

impl Watch {
    pub(super) fn publish(&mut self) {
        self.generation += 1;
        let mut warnings = self.node_warnings.clone();
        let discovered = self.discovered.as_ref();
        warnings.extend(discovered.iter().flat_map(|d| d.warnings.iter().cloned()));
        let dialect = discovered.and_then(|d| d.dialect);
        let (table, status) = match &self.routes {
            Some(routes) => (routes.table.clone(), routes.status.clone()),
            None => (
                routes::nothing(dialect, self.nodes.len()),
                RoutesStatus::default(),
            ),
        };
        let snapshot = Snapshot::new(self.generation, self.nodes.clone(), table)
            .described(self.at.as_ref(), discovered)
            .with_warnings(warnings);
        self.shared.watched().routes = status;
        self.shared.publish(snapshot);
    }

    pub(super) fn failed(&mut self, error: &AskError) {
        let state = if error.is_unauthorized() {
            WatchState::Unauthorized
        } else {
            WatchState::Unreachable
        };
        self.shared.watched().polls.failed += 1;
        self.said(state, Some(error.to_string()));
        if error.is_unauthorized() && self.reading.is_some() {
            // The parts that we may no longer ask about are no longer known.
            (self.at, self.reading, self.routes) = (None, None, None);
            self.publish();
        }
    }

    /// Updates the status, and logs each change of state once.
    pub(super) fn said(&self, state: WatchState, error: Option<String>) {
        let mut watched = self.shared.watched();
        let changed = watched.state != state;
        watched.state = state;
        if state == WatchState::Watching {
            watched.polled_at = Some(Instant::now());
        }
        if changed {
            let cluster = &self.shared.config.name;
            let means = match state {
                WatchState::Unauthorized => {
                    "the cluster refuses our account: mend the cluster's `basic_auth` or `api_key`; until then bulks pass \
                     through unsplit, and queues accept and deliver nothing"
                }
                _ if self.reading.is_some() => "the cluster does not answer: bulks go by the last topology",
                _ => "the cluster cannot be read: bulks pass through unsplit",
            };
            match &error {
                Some(error) if state == WatchState::Unauthorized => {
                    wire::rationed!(tracing::error, cluster, error, "{means}");
                }
                Some(error) => wire::rationed!(tracing::warn, cluster, error, "{means}"),
                None => info!(cluster, "the cluster is being watched"),
            }
        }
        watched.last_error = error;
    }
}

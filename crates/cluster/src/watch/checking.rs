//! Checking predictions: for each index before its first split, and for a sample of live traffic.

use std::sync::Arc;
use std::time::Duration;

use bulk::IndexRoute;
use tokio::time::Instant;

use super::{Checked, Watch};
use crate::ask::{AskError, Asker};
use crate::node::Node;
use crate::routes::Trust;
use crate::verify::{Challenge, Sample, SearchShards, shards_of};

impl Watch {
    /// Checks new indices for a while; returns `true` when the check of some is over (passed or failed).
    pub(super) async fn check_new(&mut self, home: &Arc<Node>) -> bool {
        let Some(routes) = &self.routes else { return false };
        let unchecked = routes.unchecked.clone();
        let until = Instant::now() + CHECK_BUDGET;
        let mut any = false;
        for route in &unchecked {
            if Instant::now() >= until {
                break;
            }
            let Some(challenge) = Challenge::for_index(route) else {
                continue;
            };
            // For a 404 from a node that does not know the index yet, or a shard without a copy: check later.
            let Ok(answer) = self
                .asker
                .get::<SearchShards>(&home.origin, &challenge.target)
                .await
            else {
                continue;
            };
            let Some(numbers) = answer.numbers() else { continue };
            any = true;
            self.judge(route, numbers == challenge.expected);
        }
        if any {
            self.make_routes();
        }
        any
    }

    /// Records the result of a check.
    fn judge(&mut self, route: &IndexRoute, right: bool) {
        let index = &*route.name;
        if !right {
            let cluster = &self.shared.config.name;
            wire::rationed!(
                tracing::warn,
                cluster,
                index,
                "the cluster keeps documents elsewhere than predicted: the index passes through unsplit"
            );
        }
        {
            let mut watched = self.shared.watched();
            watched.score.count(index, right);
            watched.score.mark(index, !right);
        }
        let uuid = self
            .reading
            .as_ref()
            .and_then(|reading| Some(reading.settings.get(index)?.uuid.clone()));
        if let Some(uuid) = uuid {
            let trust = if right { Trust::Trusted } else { Trust::Failed };
            self.trust.insert(uuid, (subject(route), trust));
        }
    }

    /// Compares one prediction for live traffic. A prediction that disagrees is checked again after a fresh
    /// reading: the index may just have been recreated.
    pub(super) async fn check_sample(&mut self, sample: &Sample) -> Result<(), AskError> {
        let (Some(home), Some(target)) = (self.home.clone(), Challenge::for_sample(sample)) else {
            return Ok(());
        };
        let ask = async |asker: &Asker| {
            asker
                .get::<SearchShards>(&home.origin, &target)
                .await
                .map(|a| a.numbers())
        };
        let Some(numbers) = ask(&self.asker).await? else {
            return Ok(());
        };
        let right = numbers.contains(&sample.shard);
        self.shared.watched().score.count(&sample.index, right);
        if right {
            return Ok(());
        }
        Box::pin(self.read(&home)).await?;
        self.make_routes();
        let route = self
            .routes
            .as_ref()
            .and_then(|routes| routes.indices.get(&sample.index).cloned());
        if let (Some(route), Some(numbers)) = (route, ask(&self.asker).await?)
            && route.opaque.is_none()
            && shards_of(&route, &sample.routing) != numbers
        {
            self.judge(&route, false);
            self.make_routes();
        }
        self.publish();
        Ok(())
    }
}

pub(super) fn subject(route: &IndexRoute) -> Checked {
    (route.formula, route.shards(), route.partition_size)
}

/// The time for checking new indices before a snapshot is published with those that are done.
const CHECK_BUDGET: Duration = Duration::from_millis(150);

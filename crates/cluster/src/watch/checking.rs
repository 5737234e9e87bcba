//! Checking predictions: for each index before its first split, and for a sample of live traffic.

use std::sync::Arc;
use std::time::Duration;

use bulk::{IndexRoute, NodeIx};
use tokio::time::Instant;

use super::{CHECK_PAUSE, Checked, Watch};
use crate::ask::{AskError, Asker};
use crate::node::Node;
use crate::routes::Trust;
use crate::verify::{Challenge, Sample, SearchShards, shards_of};

/// A check that came to no result, because of a 404 from a node that does not know the index yet, a shard
/// without a copy, an account without the right, or no answer.
#[derive(Debug)]
pub(super) struct Inconclusive {
    /// What was checked, and where the primaries were: a change of these is a reason to try at once.
    of: (Checked, Box<[Option<NodeIx>]>),
    next_try: Instant,
    pause: Duration,
}

impl Watch {
    /// Checks new indices for a while; returns `true` when the check of some is over (passed or failed), or
    /// other metadata were found.
    pub(super) async fn check_new(&mut self, home: &Arc<Node>) -> bool {
        let asker = self.asker.within(CHECK_TIME_MAX);
        let until = Instant::now() + CHECK_BUDGET;
        let mut any = false;
        for route in self.due_checks() {
            if Instant::now() >= until {
                break;
            }
            let Some(challenge) = Challenge::for_index(&route) else {
                continue;
            };
            let answer = asker.get::<SearchShards>(&home.origin, &challenge.target).await;
            let numbers = answer.ok().and_then(|answer| answer.numbers());
            let right = match numbers.map(|numbers| numbers == challenge.expected) {
                // Other metadata make another prediction, which the next check is about.
                Some(false) => match self.read_again(home, &route.name).await {
                    Ok(true) => {
                        any = true;
                        continue;
                    }
                    Ok(false) => Some(false),
                    Err(_) => None,
                },
                right => right,
            };
            match right {
                Some(right) => {
                    any = true;
                    self.judge(&route, right);
                }
                None => self.try_later(&route),
            }
        }
        if any {
            self.make_routes();
        }
        any
    }

    /// Returns when the next check of an index is due, if there is any to be checked before it is split.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let unchecked = &self.routes.as_ref()?.unchecked;
        let due = |route: &Arc<IndexRoute>| {
            self.inconclusive(route)
                .map_or_else(Instant::now, |one| one.next_try)
        };
        unchecked.iter().map(due).min()
    }

    /// Returns the indices to check now. Those that have not been tried come first, then those that have been
    /// tried least often, so that one that cannot be checked, or is slow, keeps no other from its check.
    fn due_checks(&self) -> Vec<Arc<IndexRoute>> {
        let Some(routes) = &self.routes else {
            return Vec::new();
        };
        let now = Instant::now();
        let pause =
            |route: &Arc<IndexRoute>| self.inconclusive(route).map_or(Duration::ZERO, |one| one.pause);
        let unchecked = routes.unchecked.iter();
        let due = unchecked.filter(|route| self.inconclusive(route).is_none_or(|one| one.next_try <= now));
        let mut due: Vec<Arc<IndexRoute>> = due.cloned().collect();
        due.sort_by_key(pause);
        due
    }

    /// Returns the last check of an index, if it came to no result and nothing has changed since.
    fn inconclusive(&self, route: &IndexRoute) -> Option<&Inconclusive> {
        let last = self.inconclusive.get(self.uuid_of(&route.name)?)?;
        (last.of.0 == subject(route) && last.of.1 == route.primaries).then_some(last)
    }

    fn try_later(&mut self, route: &IndexRoute) {
        let last = self.inconclusive(route);
        let pause = last.map_or(CHECK_PAUSE, |last| (last.pause * 2).min(CHECK_PAUSE_MAX));
        let Some(uuid) = self.uuid_of(&route.name).map(str::to_owned) else {
            return;
        };
        let inconclusive = Inconclusive {
            of: (subject(route), route.primaries.clone()),
            next_try: Instant::now() + pause,
            pause,
        };
        self.inconclusive.insert(uuid, inconclusive);
    }

    /// Reads an index's metadata again, before a prediction counts as failed: they change now and then,
    /// although the index stays the same. Returns whether they have changed.
    async fn read_again(&mut self, home: &Arc<Node>, index: &str) -> Result<bool, AskError> {
        let settings = self
            .reading
            .as_ref()
            .and_then(|reading| reading.settings.get(index).cloned());
        match settings {
            Some(settings) => self.read_metadata_of(home, index, &settings).await,
            None => Ok(false),
        }
    }

    fn uuid_of(&self, index: &str) -> Option<&str> {
        Some(self.reading.as_ref()?.settings.get(index)?.uuid.as_str())
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
        if let Some(uuid) = self.uuid_of(index).map(str::to_owned) {
            let trust = if right { Trust::Trusted } else { Trust::Failed };
            self.inconclusive.remove(&uuid);
            self.trust.insert(uuid, (subject(route), trust));
        }
    }

    /// Compares one prediction for live traffic. A prediction that disagrees is checked again after a fresh
    /// reading: the index may just have been recreated, or its metadata have changed.
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
        let uuid = self.uuid_of(&sample.index).map(str::to_owned);
        self.stale.extend(uuid);
        Box::pin(self.read(&home)).await?;
        self.make_routes();
        let again = ask(&self.asker).await;
        let route = self
            .routes
            .as_ref()
            .and_then(|routes| routes.indices.get(&sample.index).cloned());
        if let (Some(route), Ok(Some(numbers))) = (route, &again)
            && route.opaque.is_none()
            && shards_of(&route, &sample.routing) != *numbers
        {
            self.judge(&route, false);
            self.make_routes();
        }
        // Whatever became of the question: what was read is not read again until the cluster changes.
        self.publish();
        again.map(drop)
    }
}

pub(super) fn subject(route: &IndexRoute) -> Checked {
    (route.formula, route.shards(), route.partition_size)
}

/// The time for checking new indices before a snapshot is published with those that are done.
const CHECK_BUDGET: Duration = Duration::from_millis(150);

/// The longest time for one check: meanwhile the watch sees no changes.
const CHECK_TIME_MAX: Duration = Duration::from_secs(1);

/// The longest pause before an index is tried again, whose last checks came to no result.
const CHECK_PAUSE_MAX: Duration = Duration::from_secs(60);

//! What of the indices' metadata is read, and when it is read again.
//!
//! Metadata are dear to read (see [`crate::state`]), so each index's are read once. There are three reasons
//! to read those of the same uuid again: the index was restored from a snapshot, which may bring other
//! settings and another mapping; it had no mapping, and the first one may say `_routing.required`; a
//! prediction failed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::reading::{optional, unexpected};
use super::{UNMAPPED_PAUSE, Watch};
use crate::ask::AskError;
use crate::node::Node;
use crate::state::{self, IndexMetadata, IndexSettings, Topology};

/// Metadata, and what is needed to know when they hold no longer.
#[derive(Debug)]
pub(super) struct Known {
    /// [`IndexSettings::origin`] when they were read.
    origin: Origin,
    /// For an index that may have no mapping yet.
    unmapped: Option<Unmapped>,
}

/// When the metadata of an index that may have no mapping yet are read again.
#[derive(Clone, Copy, Debug)]
struct Unmapped {
    /// Not before this.
    at: Instant,
    /// The pause until then.
    pause: Duration,
    /// Whether the cluster has changed since they were read. If not, they are the same.
    changed: bool,
}

type Origin = (u64, Option<u32>, Option<String>);

impl Watch {
    /// Reads the metadata of indices that are new, and of those whose metadata may have changed; forgets
    /// those of indices that are gone.
    pub(super) async fn read_metadata(
        &mut self,
        home: &Arc<Node>,
        topology: &Topology,
        settings: &BTreeMap<String, IndexSettings>,
    ) -> Result<(), AskError> {
        let uuids: HashSet<&str> = settings.values().map(|s| s.uuid.as_str()).collect();
        self.metadata.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.known.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.trust.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.inconclusive.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.stale.retain(|uuid| uuids.contains(uuid.as_str()));
        self.note_restored(topology, settings);
        for known in self.known.values_mut() {
            if let Some(unmapped) = &mut known.unmapped {
                unmapped.changed = true;
            }
        }
        let unmapped = self.unmapped();
        let wanted = settings.iter().filter(|(_, s)| {
            let uuid = s.uuid.as_str();
            !self.metadata.contains_key(uuid) || self.stale.contains(uuid) || unmapped.contains(uuid)
        });
        let wanted: Vec<&str> = wanted.map(|(name, _)| name.as_str()).collect();
        let by_uuid = settings.values().map(|s| (s.uuid.as_str(), s)).collect();
        self.ask_metadata(home, wanted.into_iter(), &by_uuid).await?;
        Ok(())
    }

    /// Reads the metadata of indices again that have waited for it since the last reading, because they may
    /// have had no mapping; returns whether any has changed.
    pub(super) async fn read_unmapped(&mut self, home: &Arc<Node>) -> Result<bool, AskError> {
        let unmapped = self.unmapped();
        let Some(reading) = self.reading.as_ref().filter(|_| !unmapped.is_empty()) else {
            return Ok(false);
        };
        let settings = reading.settings.iter();
        let wanted = settings.filter(|(_, settings)| unmapped.contains(&settings.uuid));
        let wanted: Vec<(String, IndexSettings)> = wanted.map(|(n, s)| (n.clone(), s.clone())).collect();
        // If they are not told, they wait again.
        for uuid in &unmapped {
            if let Some(one) = self.known.get_mut(uuid).and_then(|known| known.unmapped.as_mut()) {
                one.at = Instant::now() + one.pause.max(UNMAPPED_PAUSE);
            }
        }
        let by_uuid = wanted.iter().map(|(_, s)| (s.uuid.as_str(), s)).collect();
        self.ask_metadata(home, wanted.iter().map(|(name, _)| name.as_str()), &by_uuid)
            .await
    }

    /// Returns when [`Self::read_unmapped`] has something to read, if ever.
    pub(super) fn next_unmapped(&self) -> Option<Instant> {
        let waiting = self.known.values().filter_map(|known| known.unmapped);
        waiting.filter(|one| one.changed).map(|one| one.at).min()
    }

    /// Reads the metadata of one index again; returns whether they differ from what was known.
    pub(super) async fn read_metadata_of(
        &mut self,
        home: &Arc<Node>,
        index: &str,
        settings: &IndexSettings,
    ) -> Result<bool, AskError> {
        let by_uuid = HashMap::from([(settings.uuid.as_str(), settings)]);
        self.ask_metadata(home, std::iter::once(index), &by_uuid).await
    }

    /// Asks for the metadata of these indices; returns whether any differ from what was known.
    async fn ask_metadata<'n>(
        &mut self,
        home: &Arc<Node>,
        names: impl Iterator<Item = &'n str>,
        by_uuid: &HashMap<&str, &IndexSettings>,
    ) -> Result<bool, AskError> {
        let mut changed = false;
        for target in state::metadata_targets(names) {
            let Some(body) = optional(self.asker.get_bytes(&home.origin, &target)).await? else {
                continue;
            };
            let read = state::parse_metadata(&body).map_err(|e| unexpected("_cluster/state/metadata", &e))?;
            for (uuid, metadata) in read {
                if let Some(settings) = by_uuid.get(uuid.as_str()) {
                    changed |= self.learn(uuid, metadata, settings);
                }
            }
        }
        Ok(changed)
    }

    /// Returns whether the metadata differ from what was known.
    fn learn(&mut self, uuid: String, metadata: IndexMetadata, settings: &IndexSettings) -> bool {
        let before = self.known.get(&uuid).and_then(|known| known.unmapped);
        let pause = match before {
            Some(Unmapped { pause, .. }) => (pause * 2).clamp(UNMAPPED_PAUSE, UNMAPPED_PAUSE_MAX),
            // An index that was there before us is hardly about to get its first mapping.
            None if self.reading.is_none() => OLD_UNMAPPED_PAUSE,
            None => Duration::ZERO,
        };
        let known = Known {
            origin: settings.origin(),
            unmapped: metadata.may_be_unmapped.then(|| Unmapped {
                at: Instant::now() + pause,
                pause,
                changed: false,
            }),
        };
        self.stale.remove(&uuid);
        self.known.insert(uuid.clone(), known);
        let differ = self.metadata.get(&uuid) != Some(&metadata);
        self.metadata.insert(uuid, metadata);
        differ
    }

    /// Finds the indices that were restored from a snapshot since their metadata were read. That needs a
    /// closed index, which keeps its uuid; the history is a new one, even where nobody saw the index closed.
    fn note_restored(&mut self, topology: &Topology, settings: &BTreeMap<String, IndexSettings>) {
        for (name, now) in settings {
            let before = self.reading.as_ref().filter(|reading| {
                let before = reading.settings.get(name);
                before.is_some_and(|before| before.uuid == now.uuid)
            });
            let opened =
                !topology.is_closed(name) && before.is_some_and(|before| before.topology.is_closed(name));
            let known = self.known.get(&now.uuid);
            if opened || known.is_some_and(|known| known.origin != now.origin()) {
                self.stale.insert(now.uuid.clone());
                self.trust.remove(&now.uuid);
                self.inconclusive.remove(&now.uuid);
            }
        }
    }

    /// Returns the indices that may have got their first mapping and are to be read again, by uuid: those
    /// that have waited longest come first, and only as many as cost little.
    fn unmapped(&self) -> HashSet<String> {
        let now = Instant::now();
        let due = self.known.iter().filter_map(|(uuid, known)| {
            let due = known.unmapped.filter(|one| one.changed && one.at <= now)?;
            Some((due.at, uuid))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        let due = due.into_iter().take(UNMAPPED_MAX);
        due.map(|(_, uuid)| uuid.clone()).collect()
    }
}

/// The longest pause; each is twice as long as the last. An index whose mapping is the one that it was made
/// with cannot be told from one without, and is not to be read again and again.
const UNMAPPED_PAUSE_MAX: Duration = Duration::from_secs(3_600);
const OLD_UNMAPPED_PAUSE: Duration = Duration::from_secs(60);

/// The most such indices at once. Rendering 20 mappings of 300 fields costs a node 10 ms of CPU
/// (OpenSearch 3.8: see [`crate::state`]).
const UNMAPPED_MAX: usize = 20;

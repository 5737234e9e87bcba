//! Writes down where names lead for the next owner of a lane of a queue in Kafka
//! ([`crate::queue::parked::NameLed`]): what was sent through a name and not committed may be in any index
//! that the name led to.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use bulk::RouteTable;
use cluster::Snapshot;
use wire::guard::{self, Work as GuardedWork};

use crate::delivery::lane::Route;
use crate::delivery::name_history::index_of;
use crate::delivery::outcome::Again;
use crate::delivery::work::{NamesLedTo, Work};
use crate::queue::LED_TO_MAX;

impl Work<'_> {
    /// Returns those of some operations of which their requests may not say where their names led: a request
    /// says it of so many names only.
    pub(crate) fn of_untold_names(&self, operations: &[usize]) -> Vec<usize> {
        let is_cut = |led_to: Option<&NamesLedTo>| led_to.is_some_and(|led_to| led_to.len() >= LED_TO_MAX);
        let origins = &self.batch.origins;
        if !origins.iter().any(|origin| is_cut(origin.led_to.as_ref())) {
            return Vec::new();
        }
        let is_of_cut = |operation: &usize| is_cut(self.batch.origin(*operation).led_to.as_ref());
        operations.iter().copied().filter(is_of_cut).collect()
    }
}

impl Route {
    /// Has the next owner of these lanes know where the names of a batch lead, before any of it is sent; if
    /// that cannot be, returns why nothing may be sent now. `untold` are the operations whose names their
    /// requests may not have told of. Only a queue in Kafka has other owners.
    pub(crate) async fn note_names(
        &self,
        lanes: &[u32],
        work: &Work<'_>,
        untold: &[usize],
        snapshot: &Snapshot,
    ) -> Result<(), Arc<Again>> {
        let Some(parked) = self.group.parked().filter(|parked| parked.is_handed_over()) else {
            return Ok(());
        };
        let (mut names, mut last, table) = (BTreeMap::new(), None::<&NamesLedTo>, &snapshot.table);
        let untold = untold
            .iter()
            .map(|operation| work.named(*operation, snapshot).written);
        let untold: BTreeSet<String> = untold.collect();
        for name in &untold {
            if let Some(index) = index_of(table, name).filter(|index| index != name) {
                names.insert(&**name, index);
            }
        }
        let origins = work.batch.origins.iter();
        for led_to in origins.filter_map(|origin| origin.led_to.as_ref()) {
            if last.replace(led_to).is_some_and(|last| Rc::ptr_eq(last, led_to)) {
                continue;
            }
            for (name, _) in led_to.iter() {
                if let Some(index) = index_of(table, name).filter(|index| index != name) {
                    names.insert(&**name, index);
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let noted = parked.note_names(lanes, &names).await;
        noted.map_err(|why| {
            let why =
                format!("where its names lead cannot be written down for the next owner of the lane: {why}");
            Arc::new(Again::unsent(why))
        })
    }

    /// Has the next owner of this gateway's lanes know where names lead now, in its own time.
    pub(super) fn note_moves(&self, table: &Arc<RouteTable>) {
        let Some(parked) = self.group.parked().filter(|parked| parked.is_handed_over()) else {
            return;
        };
        let (parked, table) = (Arc::clone(parked), Arc::clone(table));
        guard::spawn(GuardedWork::Parked, async move {
            let moved = |name: &str| index_of(&table, name).map(str::to_owned);
            if let Err(error) = parked.note_moves(moved).await {
                tracing::debug!(%error, "where names lead now is written down when they are used again");
            }
        });
    }
}

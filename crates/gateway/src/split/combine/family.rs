//! Requests whose parts may travel together because they tell the cluster the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Combine;
use http::header::{CONTENT_LENGTH, USER_AGENT};
use http::{HeaderMap, HeaderName, Method};
use parking_lot::{Mutex, MutexGuard};
use wire::shared;

use super::batch::Member;
use super::company::{self, Companies, NameHash};
use crate::gather::{Slots, Target};
use crate::nodes::Message;

/// Requests with the same method, path, parameters and headers, credentials among them.
pub(crate) struct Family {
    pub(super) method: Method,
    pub(super) target: String,
    /// The headers that the requests have in common.
    pub(super) headers: HeaderMap,
    slots: Mutex<Slots<Target, Member>>,
    companies: Arc<Companies>,
}

/// All families of a configuration: those with requests, and idle ones that are not yet cleared out.
#[derive(Debug, Default)]
pub(crate) struct Families {
    table: Mutex<FamilyTable>,
    pub(super) companies: Arc<Companies>,
}

#[derive(Debug, Default)]
struct FamilyTable {
    by_key: HashMap<Box<[u8]>, Arc<Family>>,
    /// The number of families at which the idle ones are cleared out.
    sweep_at: usize,
}

/// Headers in which requests of one family may differ. They identify the client, its program and its trace,
/// and have no influence on what is executed. A request that carries parts of several clients carries none of
/// these headers.
static APART: [HeaderName; 7] = [
    CONTENT_LENGTH,
    USER_AGENT,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-elastic-client-meta"),
    HeaderName::from_static("x-request-id"),
];

/// Returns, as bytes, what requests of one family have in common.
fn key(filter: &[u8], message: Message<'_>, peculiar: [bool; 2]) -> Vec<u8> {
    let mut key = Vec::with_capacity(256);
    key.extend_from_slice(filter);
    key.push(b'\n');
    key.extend_from_slice(&peculiar.map(u8::from));
    for text in [message.method.as_str(), message.target] {
        key.extend_from_slice(text.as_bytes());
        key.push(b'\n');
    }
    let mut headers: Vec<_> = message.headers.iter().collect();
    headers.retain(|(name, _)| !APART.contains(name));
    // Programs send the same headers in different orders. Values of one name keep their order.
    headers.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
    for (name, value) in headers {
        key.extend_from_slice(name.as_str().as_bytes());
        key.push(b':');
        key.extend_from_slice(value.as_bytes());
        key.push(b'\n');
    }
    key
}

// === impl Families ===

impl Families {
    pub(super) fn of(
        &self,
        filter: &[u8],
        message: Message<'_>,
        peculiar: [bool; 2],
        settings: &Combine,
    ) -> Arc<Family> {
        let key = key(filter, message, peculiar);
        shared::touches("families of parts");
        let mut known = self.table.lock();
        if let Some(family) = known.by_key.get(&*key) {
            return Arc::clone(family);
        }
        if known.by_key.len() >= known.sweep_at {
            // A family with no other reference has no request.
            known.by_key.retain(|_, family| Arc::strong_count(family) > 1);
            known.sweep_at = (known.by_key.len() * 2).max(FAMILIES_KEPT);
        }
        let family = Arc::new(Family::new(message, settings, Arc::clone(&self.companies)));
        known.by_key.insert(key.into(), Arc::clone(&family));
        family
    }
}

// === impl Family ===

impl Family {
    fn new(message: Message<'_>, settings: &Combine, companies: Arc<Companies>) -> Self {
        // Copied, not removed: removing would change the order of the others.
        let common = message.headers.iter().filter(|(name, _)| !APART.contains(name));
        let mut headers = HeaderMap::new();
        for (name, value) in common {
            headers.append(name, value.clone());
        }
        Self {
            method: message.method.clone(),
            target: message.target.to_owned(),
            headers,
            // Requests of small parts and of large parts are counted separately.
            slots: Mutex::new(Slots::new(2, settings.adaptive)),
            companies,
        }
    }

    /// Returns what waits for each target. It is locked for one step at a time.
    pub(super) fn slots(&self) -> MutexGuard<'_, Slots<Target, Member>> {
        shared::touches("parts that gather");
        self.slots.lock()
    }

    /// Returns how long a request to a target may take before it is slow.
    pub(super) fn slow_after(&self, target: &Target) -> Duration {
        company::slow_after(self.slots().lasts(target))
    }

    /// Records that a request with bulks that name these indices is slow.
    pub(super) fn is_slow(&self, several: &[Arc<[NameHash]>]) {
        let now = Instant::now();
        several.iter().for_each(|names| self.companies.slow(names, now));
    }

    /// Gives back a ticket. `weight`: the number of parts that travelled, and their bytes.
    pub(super) fn returned(&self, target: &Target, weight: (usize, u64), lasted: Duration) {
        let changed = self.slots().returned(target, weight, lasted, Instant::now());
        if let Some([before, at_once]) = changed {
            let large = target.large;
            tracing::debug!(
                at_once,
                before,
                large,
                "nodes are sent another number of combined requests at once"
            );
        }
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers hold credentials.
        f.debug_struct("Family")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// Families kept before the first search for idle ones.
const FAMILIES_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Purpose;
    use crate::request_id::RequestIds;

    fn key_of(target: &str, headers: &[(&'static str, &str)]) -> Vec<u8> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let message = Message {
            purpose: Purpose::Part(1),
            request_id: &RequestIds::new(1).of(&HeaderMap::new()),
            method: &Method::POST,
            target,
            headers: &map,
        };
        key(b"f", message, [false; 2])
    }

    #[test]
    fn who_asks_for_the_same_is_family_and_credentials_parameters_and_tasks_keep_apart() {
        let same = key_of("/_bulk", &[("authorization", "a"), ("user-agent", "x")]);
        let traced = [("authorization", "a"), ("traceparent", "1"), ("user-agent", "y")];
        assert_eq!(same, key_of("/_bulk", &traced));
        let (one, other) = (("accept", "*/*"), ("authorization", "a"));
        assert_eq!(key_of("/_bulk", &[one, other]), key_of("/_bulk", &[other, one]));
        for (target, headers) in [
            ("/_bulk", vec![("authorization", "b")]),
            ("/_bulk", vec![]),
            ("/_bulk?refresh=true", vec![("authorization", "a")]),
            ("/i/_bulk", vec![("authorization", "a")]),
            ("/_bulk", vec![("authorization", "a"), ("x-opaque-id", "1")]),
            ("/_bulk", vec![("authorization", "a"), ("cookie", "s=1")]),
        ] {
            assert_ne!(same, key_of(target, &headers), "{target} {headers:?}");
        }
    }
}

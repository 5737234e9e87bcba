//! Samples of predictions, by which the routing is verified.

use bulk::{Ask, RouteTable};
use cluster::Cluster;

/// Now and then gives the prediction for one of the first documents of a bulk to the check.
pub(crate) fn sample(cluster: &Cluster, body: &[u8], ask: &Ask<'_>, table: &RouteTable) {
    if !cluster.wants_sample() {
        return;
    }
    let explained = bulk::explain(body, ask, table).nth(fastrand::usize(..SAMPLED_FROM));
    if let Some(Ok(doc)) = explained
        && let (Some(shard), Some(key)) = (doc.shard, doc.routing.or(doc.id))
    {
        cluster.sample(&doc.index, &key, shard);
    }
}

/// Samples are taken from this many first documents of a bulk, since reading on takes time.
const SAMPLED_FROM: usize = 16;

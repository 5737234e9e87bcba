//! Each thread's own copy of a cluster's snapshot.
//!
//! A request counts references to its snapshot and to its nodes. Counts that all cores share would make each
//! request wait for the cache line that other cores have just written. So each thread copies a snapshot when
//! it first asks for it, and counts references to its copy. The route table, which is large, is not copied:
//! requests only read it.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Weak};

use wire::shared;

use crate::inner::ClusterInner;
use crate::node::Node;
use crate::snapshot::Snapshot;

/// A copy of one cluster's snapshot.
#[derive(Debug)]
struct OwnSnapshot {
    cluster: Weak<ClusterInner>,
    /// How many snapshots had been published when this one was copied.
    published: u64,
    copied: Arc<Snapshot>,
    own: Arc<Snapshot>,
}

thread_local! {
    static OWN: RefCell<Vec<OwnSnapshot>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's copy of the newest snapshot.
pub(crate) fn of(cluster: &Arc<ClusterInner>) -> Arc<Snapshot> {
    let published = cluster.published.load(Acquire);
    let own = OWN.try_with(|all| {
        let all = &mut *all.borrow_mut();
        let at = all.iter().position(|one| one.is_of(cluster));
        if let Some(one) = at.and_then(|at| all.get(at))
            && one.published == published
        {
            return Arc::clone(&one.own);
        }
        let newest = OwnSnapshot::copy(cluster, published, at.map(|at| all.swap_remove(at)));
        // The snapshots of clusters that are watched no longer are forgotten here.
        all.retain(|one| one.cluster.strong_count() > 0);
        let own = Arc::clone(&newest.own);
        all.push(newest);
        own
    });
    // A thread that is ending has no copies any more.
    own.unwrap_or_else(|_| cluster.snapshot.load_full())
}

/// Copies a node. Each exchange counts references to the node's origin.
fn copied(node: &Node) -> Arc<Node> {
    Arc::new(Node {
        origin: node.origin.copied(),
        ..node.clone()
    })
}

// === impl OwnSnapshot ===

impl OwnSnapshot {
    fn is_of(&self, cluster: &Arc<ClusterInner>) -> bool {
        std::ptr::eq(self.cluster.as_ptr(), Arc::as_ptr(cluster))
    }

    /// Copies the newest snapshot. Nodes that are the same as `before` are not copied again.
    fn copy(cluster: &Arc<ClusterInner>, published: u64, before: Option<Self>) -> Self {
        shared::touches("snapshot of a cluster");
        let newest = cluster.snapshot.load_full();
        let known = |at: usize, node: &Arc<Node>| {
            let before = before.as_ref()?;
            let same = before
                .copied
                .nodes
                .get(at)
                .filter(|known| Arc::ptr_eq(known, node));
            same.and_then(|_| before.own.nodes.get(at)).map(Arc::clone)
        };
        let nodes = newest.nodes.iter().enumerate();
        let nodes = nodes.map(|(at, node)| known(at, node).unwrap_or_else(|| copied(node)));
        let own = Snapshot {
            nodes: nodes.collect(),
            ..Snapshot::clone(&newest)
        };
        Self {
            cluster: match &before {
                Some(before) => Weak::clone(&before.cluster),
                None => Arc::downgrade(cluster),
            },
            published,
            copied: newest,
            own: Arc::new(own),
        }
    }
}

//! Which nodes `filter` last offered for which pod, until the pod is bound or others have taken its place in memory.
//!
//! Of a node's name a hash is kept, with a key of this process's own: thousands of nodes may be offered for a pod, and
//! hundreds of pods may be on their way.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher as _;

use super::Extender;

/// The most nodes that are remembered, of all pods together: 16 MiB.
const MOST_NODES: usize = 2 << 20;
/// The most pods.
const MOST_PODS: usize = 10_000;

/// The bind is not of the filter before it.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum NotOffered {
    #[error("this node was not offered for the pod by this process; the scheduler asks again")]
    Never,
    #[error("the pod is being bound already")]
    Binding,
}

#[derive(Debug, Default)]
pub(super) struct Offers {
    by_uid: HashMap<String, Box<[u64]>>,
    /// Uids in the order of their offers; one that was bound may still be in here.
    order: VecDeque<String>,
    nodes: usize,
    binding: HashSet<String>,
    hash: RandomState,
}

impl Offers {
    /// These nodes, and no others, are offered for the pod from now on.
    pub(super) fn offer(&mut self, uid: &str, nodes: &[String]) {
        self.withdraw(uid);
        if uid.is_empty() || nodes.is_empty() {
            return;
        }
        let hashes: Box<[u64]> = nodes.iter().map(|name| self.hash.hash_one(name)).collect();
        self.nodes += hashes.len();
        self.by_uid.insert(uid.to_owned(), hashes);
        self.order.push_back(uid.to_owned());
        while self.nodes > MOST_NODES || self.order.len() > MOST_PODS {
            let Some(oldest) = self.order.pop_front() else { break };
            // Offered anew since, it is in the queue a second time.
            if !self.order.contains(&oldest) {
                self.withdraw(&oldest);
            }
        }
    }

    fn withdraw(&mut self, uid: &str) {
        if let Some(nodes) = self.by_uid.remove(uid) {
            self.nodes -= nodes.len();
        }
    }

    /// The pod is bound to an offered node now: the offer has been used.
    fn take(&mut self, uid: &str, node: &str) -> Result<(), NotOffered> {
        if self.binding.contains(uid) {
            return Err(NotOffered::Binding);
        }
        let offered = self.by_uid.get(uid).ok_or(NotOffered::Never)?;
        if !offered.contains(&self.hash.hash_one(node)) {
            return Err(NotOffered::Never);
        }
        self.withdraw(uid);
        self.binding.insert(uid.to_owned());
        Ok(())
    }
}

/// A pod on its way to its node. No second one may be.
pub(super) struct BindingInProgress<'a> {
    extender: &'a Extender,
    uid: &'a str,
}

impl Extender {
    /// Begins to bind a pod to a node that was offered for it.
    pub(super) fn begin_binding<'a>(
        &'a self,
        uid: &'a str,
        node: &str,
    ) -> Result<BindingInProgress<'a>, NotOffered> {
        self.offers().take(uid, node)?;
        Ok(BindingInProgress { extender: self, uid })
    }
}

impl Drop for BindingInProgress<'_> {
    fn drop(&mut self) {
        self.extender.offers().binding.remove(self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|number| format!("node-{number}")).collect()
    }

    #[test]
    fn an_offer_holds_for_its_nodes_once() {
        let mut offers = Offers::default();
        assert_eq!(offers.take("a", "node-1"), Err(NotOffered::Never));
        offers.offer("a", &names(0..3));
        assert_eq!(offers.take("a", "node-3"), Err(NotOffered::Never));
        assert_eq!(offers.take("b", "node-1"), Err(NotOffered::Never));
        assert_eq!(offers.take("a", "node-1"), Ok(()));
        offers.offer("a", &names(0..3));
        assert_eq!(offers.take("a", "node-1"), Err(NotOffered::Binding));
        offers.binding.clear();
        offers.offer("a", &names(2..3));
        assert_eq!(offers.take("a", "node-1"), Err(NotOffered::Never));
        assert_eq!(offers.take("a", "node-2"), Ok(()));
        assert_eq!(offers.nodes, 0);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_newest_stays() {
        let mut offers = Offers::default();
        let nodes = names(0..20_000);
        for pod in 0..150 {
            offers.offer(&format!("pod-{pod}"), &nodes);
            offers.offer("again", &names(0..1));
        }
        assert!(offers.nodes <= MOST_NODES && offers.by_uid.len() < 150, "{}", offers.nodes);
        assert_eq!(offers.take("pod-0", "node-1"), Err(NotOffered::Never));
        assert_eq!(offers.take("pod-149", "node-1"), Ok(()));
        assert_eq!(offers.take("again", "node-0"), Ok(()));
        for pod in 0..3 * MOST_PODS {
            offers.offer(&format!("pod-{pod}"), &names(0..1));
        }
        assert!(offers.order.len() <= MOST_PODS && offers.by_uid.len() <= MOST_PODS);
    }
}

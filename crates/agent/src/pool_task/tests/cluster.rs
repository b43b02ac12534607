//! Pods of a cluster: which object counts for which pod, and from when on.

use gpupool_core::pool::{PodId, PodSpec, Policy};
use gpupool_core::share::{Percent, Share};

use super::machine::Sent;
use super::node::Node;
use crate::event::AgentEvent;
use crate::pod::{Asks, PodNews, PodOnNode, PodRef, Rejection};
use crate::procfs::ProcessKey;

pub(super) const TRAIN: &str = "0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9";
pub(super) const OTHER: &str = "ffffffff-ffff-4fff-bfff-ffffffffffff";
const STATIC: &str = "0123456789abcdef0123456789abcdef";

fn share(request: u64, limit: u64) -> Share {
    Share::new(Percent::new(request).unwrap(), Percent::new(limit).unwrap()).unwrap()
}

/// An object as it is read on this node.
fn object(id: &str, uid: &str, name: &str, limit: u64) -> PodOnNode {
    let (core, memory) = (share(10, limit), share(10, limit));
    let asks = Asks { policy: Policy::SharePool, core, memory, priority: 0, card: None };
    PodOnNode {
        id: id.into(),
        reference: PodRef { namespace: "team".to_owned(), name: name.to_owned(), uid: uid.to_owned() },
        asks: Ok(asks),
        turned_away: false,
        card: None,
    }
}

pub(super) fn pod(uid: &str, name: &str, limit: u64) -> PodOnNode {
    object(uid, uid, name, limit)
}

impl Node {
    pub(super) fn hears(&mut self, news: PodNews) {
        self.task.handle(AgentEvent::Pods(news));
    }

    fn spec(&self, id: &str) -> Option<PodSpec> {
        Some(self.task.pool.pod(&id.into())?.spec.clone())
    }

    /// A program of a pod of the cluster: its cgroup says whose it is.
    pub(super) fn program_of(&mut self, id: &str) -> ProcessKey {
        let program = self.spawn(ProcessKey { pid: 1, start: 1 });
        self.task.environment.identity.learn(program, &PodId::from(id));
        program
    }

    /// A program of this pod that holds a card.
    pub(super) fn holder(&mut self, id: &str) -> ProcessKey {
        let program = self.program_of(id);
        assert_eq!(self.hello(program).socket.receive(), Some(Sent::Welcome));
        self.acquire(program);
        assert_eq!(self.lines[&program].socket.receive(), Some(Sent::Granted));
        program
    }

    fn holds(&self, id: &str) -> bool {
        self.task.pool.leases().any(|lease| lease.pod.as_str() == id && lease.ending.is_none())
    }

    fn why_outside(&self, id: &str) -> Option<&Rejection> {
        self.task.turned_away(&id.into())
    }
}

#[test]
fn a_pod_keeps_the_first_spec_of_its_uid_through_changes_and_restarts() {
    let mut node = Node::in_cluster();
    let first = pod(TRAIN, "train", 20);
    node.hears(PodNews::Present(first.clone()));
    let stands = node.spec(TRAIN).unwrap();
    assert_eq!((stands.core, stands.memory, stands.priority), (share(10, 20), share(10, 20), 0));

    let mut raised = pod(TRAIN, "train", 100);
    if let Ok(asks) = &mut raised.asks {
        asks.priority = 1_000_000;
        asks.policy = Policy::Static;
    }
    let mut broken = first;
    broken.asks = Err(Rejection::new("Invalid", "no percentages any more".to_owned()));
    for restarts in 0..3 {
        if restarts > 0 {
            node.restart();
            assert_eq!(node.spec(TRAIN).as_ref(), Some(&stands), "the journal has it");
        }
        for later in [&raised, &broken] {
            node.hears(PodNews::Present(later.clone()));
            assert_eq!(node.spec(TRAIN).as_ref(), Some(&stands));
            node.hears(PodNews::Listed(vec![later.clone()]));
            assert_eq!(node.spec(TRAIN).as_ref(), Some(&stands));
        }
    }
    // Another pod of the same name has another uid, and its own limits.
    node.hears(PodNews::Gone { id: TRAIN.into(), uid: TRAIN.to_owned() });
    node.hears(PodNews::Present(pod(OTHER, "train", 100)));
    assert_eq!(node.spec(TRAIN), None);
    assert_eq!(node.spec(OTHER).unwrap().memory, share(10, 100));
}

#[test]
fn a_pod_that_waits_outside_comes_in_with_what_it_asked_for_first() {
    let mut node = Node::in_cluster();
    node.task.handle(AgentEvent::Sharing { policy: None, qos: None });
    node.hears(PodNews::Present(pod(TRAIN, "train", 20)));
    assert_eq!(node.why_outside(TRAIN).unwrap().reason, "NotShared");
    node.hears(PodNews::Present(pod(TRAIN, "train", 100)));
    let mut wrong = pod(OTHER, "wrong", 20);
    wrong.asks = Err(Rejection::new("Invalid", "50 percent and a half".to_owned()));
    node.hears(PodNews::Present(wrong));
    // What was first seen is in the journal, too.
    node.restart();
    node.task.handle(AgentEvent::Sharing { policy: None, qos: None });
    node.hears(PodNews::Listed(vec![pod(TRAIN, "train", 90), pod(OTHER, "wrong", 100)]));
    node.task.handle(AgentEvent::Sharing { policy: Some(Policy::SharePool), qos: None });
    assert_eq!(node.spec(TRAIN).unwrap().core, share(10, 20));
    assert_eq!(node.why_outside(TRAIN), None);
    let why = node.why_outside(OTHER).unwrap();
    assert!(why.reason == "Invalid" && why.sentence.contains("create it anew"), "{why:?}");
}

#[test]
fn the_first_spec_holds_in_the_next_boot_and_only_as_long_as_the_pod_is_there() {
    let mut node = Node::in_cluster();
    node.hears(PodNews::Present(pod(TRAIN, "train", 20)));
    node.hears(PodNews::Present(pod(OTHER, "other", 30)));
    let journal = node.machine.state().journal.clone();
    let config = super::machine::config();
    let recovered = crate::restart::recover(journal, "the next boot", config).unwrap();
    assert!(recovered.registry.pods().next().is_none() && recovered.pool.pods().next().is_none());
    node.task.registry = recovered.registry;
    node.task.pool = recovered.pool;
    node.hears(PodNews::Listed(vec![pod(TRAIN, "train", 100)]));
    assert_eq!(node.spec(TRAIN).unwrap().core, share(10, 20));
    assert_eq!(node.task.registry.seen().collect::<Vec<_>>(), [TRAIN]);
    node.hears(PodNews::Gone { id: TRAIN.into(), uid: TRAIN.to_owned() });
    assert_eq!(node.task.registry.seen().next(), None);
}

#[test]
fn of_two_objects_that_claim_one_identity_neither_changes_or_ends_the_other() {
    let mut node = Node::in_cluster();
    let first = object(STATIC, TRAIN, "static-train", 20);
    let second = object(STATIC, OTHER, "forged", 100);
    node.hears(PodNews::Present(first.clone()));
    let program = node.holder(STATIC);
    let stands = node.spec(STATIC);

    node.hears(PodNews::Present(second.clone()));
    assert_eq!(node.spec(STATIC), stands);
    let cluster = node.task.cluster.as_ref().unwrap();
    assert!(node.why_outside(STATIC).is_some_and(|why| why.reason == "SameStaticPod"), "{cluster:?}");
    // Nor does its end, told by a watch or by a list, before a restart or after it.
    node.hears(PodNews::Gone { id: STATIC.into(), uid: OTHER.to_owned() });
    assert!(node.holds(STATIC) && node.machine.state().processes[&program].signals.is_empty());
    node.restart();
    assert_eq!(node.hello(program).socket.receive(), Some(Sent::Welcome));
    node.hears(PodNews::Listed(vec![first.clone(), second]));
    node.hears(PodNews::Listed(vec![first]));
    assert_eq!(node.spec(STATIC), stands);
    assert!(node.holds(STATIC) && node.machine.state().processes[&program].signals.is_empty());
    assert_eq!(node.why_outside(STATIC), None);
    // The first one's own end is one.
    node.hears(PodNews::Gone { id: STATIC.into(), uid: TRAIN.to_owned() });
    assert!(!node.machine.state().processes[&program].signals.is_empty());
}

#[test]
fn an_object_that_an_earlier_agent_took_for_another_pod_makes_room_for_it() {
    let mut node = Node::in_cluster();
    // As it was before: the forged object under the id of a pod that is not its own.
    node.hears(PodNews::Present(object(TRAIN, OTHER, "forged", 100)));
    node.restart();
    node.hears(PodNews::Listed(vec![pod(OTHER, "forged", 30), pod(TRAIN, "train", 20)]));
    assert_eq!(node.spec(TRAIN).unwrap().core, share(10, 20));
    assert_eq!(node.spec(OTHER).unwrap().core, share(10, 30));
    assert_eq!(node.task.name_of(&TRAIN.into()), "team/train");
}

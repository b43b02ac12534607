//! Which policy is in force on a node, what is reserved, and what the conditions say.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::node_use::NodeUse;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::reservation::reservation;
use gpupool_core::sharing::{
    Amounts, InForce, Load, NodeRefusal, Policy, Qos, Reserved, SharingDecision, SharingNode,
};
use proptest::prelude::*;

pub(crate) fn amounts(cpu: &str, memory: &str, storage: &str) -> Amounts {
    Amounts::read(|name| {
        Some(match name {
            "cpu" => cpu,
            "memory" => memory,
            _ => storage,
        })
    })
}

/// The published node.
struct Scene {
    label: Option<&'static str>,
    qos: Option<&'static str>,
    in_force: InForce,
    node_use: NodeUse,
    cards: u32,
    capacity: Amounts,
    load: Load,
    reserve: bool,
}

impl Scene {
    fn new(label: &'static str) -> Self {
        Self {
            label: Some(label),
            qos: None,
            in_force: InForce::default(),
            node_use: NodeUse::Container,
            cards: 16,
            capacity: amounts("176", "1800Gi", "6Ti"),
            load: Load::default(),
            reserve: true,
        }
    }

    fn decide(&self) -> SharingDecision {
        let facts = SharingNode {
            label: self.label,
            qos: self.qos,
            in_force: &self.in_force,
            node_use: self.node_use,
            cards: self.cards,
            capacity: &self.capacity,
            allocatable: &self.capacity,
            load: &self.load,
            reserve: self.reserve,
        };
        facts.decide()
    }

    /// The decision takes hold, and then something changes.
    fn then(mut self, change: impl Fn(&mut Self)) -> Self {
        self.in_force = self.decide().in_force;
        change(&mut self);
        self
    }

    fn refused(&self) -> (Policy, &'static str, String) {
        let decision = self.decide();
        let refusal = decision.refusal.unwrap();
        (decision.in_force.policy, refusal.word(), refusal.to_string())
    }
}

/// Pods with the resource by which they have cards for themselves.
fn exclusive(pods: &[(&str, &str)]) -> BTreeMap<String, String> {
    pods.iter().map(|(pod, resource)| ((*pod).to_owned(), (*resource).to_owned())).collect()
}

fn some(pods: &[&str]) -> BTreeSet<String> {
    pods.iter().map(|pod| (*pod).to_owned()).collect()
}

#[test]
fn the_published_node_shares_with_the_published_figures() {
    let mut scene = Scene::new("share-pool");
    scene.qos = Some(
        r#"{"preemptEnabled": true, "podMaxDurationMinutes": 120, "reservedEphemeralStorage": "1.5Ti"}"#,
    );
    let decision = scene.decide();
    assert_eq!(decision.refusal, None);
    let left = scene.capacity.without(&decision.in_force.reserved);
    assert_eq!(left.to_json(), r#"{"cpu":"144","ephemeral-storage":"4608Gi","memory":"1640Gi"}"#);
    // The annotation says what is the default there anyway.
    scene.qos = None;
    assert_eq!(scene.decide(), decision);

    let [valid, policy] = decision.conditions();
    assert_eq!(
        (valid.kind, valid.status(), valid.reason, &valid.message[..]),
        ("GPUSharePolicyValid", "True", "Valid", "gpu share policy is valid.")
    );
    assert_eq!(
        (policy.kind, policy.status(), policy.reason, &policy.message[..]),
        ("GPUSharePolicy", "True", "share-pool", "gpu share policy is share-pool.")
    );
}

#[test]
fn none_is_said_in_the_published_words() {
    let [valid, policy] = Scene::new("none").decide().conditions();
    assert_eq!(
        (valid.status(), valid.reason, &valid.message[..]),
        ("True", "Valid", "gpu share policy config is valid.")
    );
    assert_eq!(
        (policy.status(), policy.reason, &policy.message[..]),
        ("False", "none", "gpu share policy is none.")
    );
}

#[test]
fn a_refused_beginning_says_what_to_do_and_nothing_is_shared() {
    let with = |change: fn(&mut Scene)| {
        let mut scene = Scene::new("static");
        change(&mut scene);
        scene.refused()
    };
    let table = [
        (
            with(|scene| scene.label = Some("Static")),
            "UnknownPolicy",
            "set it to static if that is meant; until then the policy is none",
        ),
        (
            with(|scene| scene.label = Some("")),
            "UnknownPolicy",
            "has no value: set it to share-pool, static or none",
        ),
        (with(|scene| scene.qos = Some("{")), "InvalidQosConfig", "is no JSON object"),
        (with(|scene| scene.node_use = NodeUse::VmVgpu), "NodeUseNotContainer", "the node's use is vm-vgpu"),
        (
            with(|scene| scene.node_use = NodeUse::VmPassthrough),
            "NodeUseNotContainer",
            "label the node nvidia.com/gpu.workload.config=container, or set",
        ),
        (with(|scene| scene.cards = 0), "NoCards", "check that the agent and the driver run on it"),
        (
            with(|scene| scene.load.exclusive = exclusive(&[("a/train", "nvidia.com/gpu")])),
            "ExclusivePodsOnNode",
            "pod a/train asks for whole cards on the node: delete or move it first",
        ),
        (
            with(|scene| scene.load.exclusive = exclusive(&[("a/slice", "nvidia.com/mig-1g.5gb")])),
            "ExclusivePodsOnNode",
            "pod a/slice asks for slices of cards on the node: delete or move it first",
        ),
        (
            with(|scene| {
                let pods = [("a/slice", "nvidia.com/mig-1g.5gb"), ("a/train", "nvidia.com/gpu.shared")];
                scene.load.exclusive = exclusive(&pods);
            }),
            "ExclusivePodsOnNode",
            "pods a/slice, a/train ask for replicas of cards, slices of cards on the node: delete or move them first",
        ),
        (
            with(|scene| {
                scene.load.exclusive =
                    exclusive(&["a/1", "a/2", "a/3", "a/4", "a/5"].map(|pod| (pod, "nvidia.com/gpu")));
            }),
            "ExclusivePodsOnNode",
            "pods a/1, a/2, a/3 and 2 more ask for whole cards on the node: delete or move them first",
        ),
        (
            with(|scene| scene.load.requested = amounts("152", "10Gi", "0")),
            "NotEnoughToReserve",
            "32 CPU, 160Gi of memory, 1536Gi of ephemeral storage are to be reserved for the sharing module, and with what the node's pods request 8 CPU is missing",
        ),
        (
            with(|scene| scene.qos = Some(r#"{"reservedEphemeralStorage": "7Ti"}"#)),
            "NotEnoughToReserve",
            "1Ti of ephemeral storage is missing",
        ),
    ];
    for ((policy, word, text), expected, says) in table {
        assert_eq!((policy, word), (Policy::None, expected), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn while_pods_share_the_policy_stays_whatever_is_asked_for() {
    for (label, word) in [
        (Some("none"), "SharedPodsOnNode"),
        (None, "SharedPodsOnNode"),
        (Some("static"), "SharedPodsOnNode"),
        (Some("stat"), "UnknownPolicy"),
    ] {
        let scene = Scene::new("share-pool").then(|scene| {
            scene.load.shared = some(&["default/gpu-share-demo"]);
            scene.label = label;
        });
        let (policy, said, text) = scene.refused();
        assert_eq!((policy, said), (Policy::SharePool, word), "{text}");
        assert_eq!(scene.decide().in_force, scene.in_force, "{label:?}");
    }
    let scene = Scene::new("share-pool").then(|scene| {
        scene.load.shared = some(&["default/gpu-share-demo"]);
        scene.label = Some("none");
    });
    assert_eq!(
        scene.refused().2,
        "pod default/gpu-share-demo shares cards on the node, so the policy stays share-pool: delete it first, then none is set by itself"
    );
}

#[test]
fn with_the_last_shared_pod_gone_what_is_asked_for_holds() {
    for (label, policy) in
        [(Some("none"), Policy::None), (None, Policy::None), (Some("static"), Policy::Static)]
    {
        let scene = Scene::new("share-pool").then(|scene| scene.label = label);
        let decision = scene.decide();
        assert_eq!((decision.in_force.policy, decision.refusal), (policy, None));
        assert_eq!(decision.in_force.reserved.is_empty(), !policy.shares());
    }
}

#[test]
fn a_typo_takes_nothing_away() {
    let scene = Scene::new("share-pool").then(|scene| scene.label = Some("share-pol"));
    assert_eq!(scene.decide().in_force, scene.in_force);
    let scene = Scene::new("share-pool").then(|scene| scene.qos = Some(r#"{"preemptEnable": true}"#));
    assert_eq!((scene.refused().0, scene.refused().1), (Policy::SharePool, "InvalidQosConfig"));
    assert_eq!(scene.decide().in_force, scene.in_force);
}

#[test]
fn a_mistake_in_the_annotation_does_not_keep_sharing_on() {
    let scene = Scene::new("share-pool").then(|scene| {
        scene.label = Some("none");
        scene.qos = Some("rubbish");
    });
    assert_eq!((scene.refused().0, scene.refused().1), (Policy::None, "InvalidQosConfig"));
}

#[test]
fn an_edited_annotation_holds_at_once_with_pods_or_without() {
    let scene = Scene::new("share-pool").then(|scene| {
        scene.load.shared = some(&["a/b"]);
        scene.qos = Some(r#"{"podMaxDurationMinutes": 5, "reservedEphemeralStorage": "1Ti"}"#);
    });
    let decision = scene.decide();
    assert_eq!(decision.refusal, None);
    assert_eq!(decision.in_force.qos.pod_max_duration_minutes, 5);
    assert_eq!(decision.in_force.reserved.amount(Reserved::EphemeralStorage), Quantity::gibi(1024));
}

#[test]
fn a_lost_card_gives_its_reserve_back_and_pods_that_came_first_do_not_undo_what_is_reserved() {
    let scene = Scene::new("share-pool").then(|scene| {
        // More than fits beside the reserve, by whatever way it got there.
        scene.load.requested = amounts("170", "0", "0");
    });
    assert_eq!(scene.decide().refusal, None);
    assert_eq!(scene.decide().in_force, scene.in_force);
    let scene = scene.then(|scene| scene.cards = 15);
    assert_eq!(scene.decide().in_force.reserved.amount(Reserved::Cpu), Quantity::whole_units(30));
    let scene = scene.then(|scene| scene.cards = 17);
    let (policy, word, _) = scene.refused();
    assert_eq!((policy, word), (Policy::SharePool, "NotEnoughToReserve"));
}

#[test]
fn a_node_that_is_for_virtual_machines_now_shares_no_longer_unless_somebody_still_does() {
    let scene = Scene::new("share-pool").then(|scene| scene.node_use = NodeUse::VmPassthrough);
    assert_eq!((scene.refused().0, scene.refused().1), (Policy::None, "NodeUseNotContainer"));
    let scene = Scene::new("share-pool").then(|scene| {
        scene.node_use = NodeUse::VmPassthrough;
        scene.load.shared = some(&["a/b"]);
    });
    assert_eq!((scene.refused().0, scene.refused().1), (Policy::SharePool, "NodeUseNotContainer"));
}

#[test]
fn whole_card_pods_that_slipped_in_do_not_end_what_is_in_force() {
    let scene =
        Scene::new("share-pool").then(|scene| scene.load.exclusive = exclusive(&[("a/b", "nvidia.com/gpu")]));
    assert_eq!(scene.decide().refusal, None);
}

#[test]
fn nothing_is_reserved_where_that_is_switched_off() {
    let mut scene = Scene::new("share-pool");
    scene.reserve = false;
    scene.load.requested = amounts("176", "1800Gi", "6Ti");
    let decision = scene.decide();
    assert_eq!(decision.refusal, None);
    assert!(decision.in_force.policy.shares() && decision.in_force.reserved.is_empty());
}

#[test]
fn what_is_in_force_is_written_whole() {
    let in_force = Scene::new("share-pool").decide().in_force;
    assert_eq!(
        in_force.qos.to_json(),
        r#"{"podMaxDurationMinutes":120,"preemptEnabled":true,"reservedEphemeralStorage":"1536Gi"}"#
    );
    assert_eq!(Qos::parse(&in_force.qos.to_json()), Ok(in_force.qos));
    assert_eq!(in_force.reserved.to_json(), r#"{"cpu":"32","ephemeral-storage":"1536Gi","memory":"160Gi"}"#);
    assert_eq!(Amounts::parse(&in_force.reserved.to_json()), Some(in_force.reserved));
    for rubbish in ["", "[]", r#"{"cpu":1}"#, r#"{"cpu":"x"}"#, r#"{"pods":"1"}"#] {
        assert_eq!(Amounts::parse(rubbish), None, "{rubbish}");
    }
}

proptest! {
    #[test]
    fn cpu_and_memory_are_never_over_a_quarter_of_the_node(
        cards in 0_u32..64, cpu in 1_u64..4_000_000, memory in 1_u64..(1 << 44), storage in 1_u64..(1 << 50),
    ) {
        let capacity = amounts(&format!("{cpu}m"), &memory.to_string(), &storage.to_string());
        let reserved = reservation(cards, &capacity, None);
        for one in Reserved::ALL {
            let (taken, there) = (reserved.amount(one), capacity.amount(one));
            prop_assert!(taken.times(4) <= there, "{one}: {taken} of {there}");
            prop_assert!(!taken.is_negative());
            // It is an amount that Kubernetes takes for this resource.
            let grain = if one == Reserved::Cpu { 1_000_000 } else { 1_000_000_000 };
            prop_assert_eq!(taken.nanos() % grain, 0);
        }
        let wanted = Quantity::whole_units(2).times(cards);
        if wanted.times(4) <= capacity.amount(Reserved::Cpu) {
            prop_assert_eq!(reserved.amount(Reserved::Cpu), wanted);
        }
    }

    #[test]
    fn what_is_left_and_what_is_reserved_make_the_whole(cards in 0_u32..64, cpu in 0_u32..500, memory in 0_u64..(1 << 44)) {
        let capacity = amounts(&cpu.to_string(), &memory.to_string(), "1Ti");
        let reserved = reservation(cards, &capacity, None);
        let left = capacity.without(&reserved);
        for one in Reserved::ALL {
            prop_assert_eq!(left.amount(one).plus(reserved.amount(one)), capacity.amount(one));
        }
    }

    #[test]
    fn a_decision_that_took_hold_is_final(
        label in prop::sample::select(vec!["share-pool", "static", "none", "typo"]),
        before in prop::sample::select(vec!["share-pool", "static", "none"]),
        cards in 0_u32..4, whole in any::<bool>(), shared in any::<bool>(), requested in 0_u32..176,
    ) {
        let scene = Scene::new(before).then(|scene| {
            scene.label = Some(label);
            scene.cards = cards;
            scene.load.requested = amounts(&requested.to_string(), "0", "0");
            scene.load.exclusive.extend(exclusive(&[("a/whole", "nvidia.com/gpu")]).into_iter().filter(|_| whole));
            scene.load.shared.extend(shared.then(|| "a/shared".to_owned()));
        });
        let first = scene.decide();
        // Pods that share never lose the policy that they came for.
        if shared && scene.in_force.policy.shares() {
            prop_assert_eq!(first.in_force.policy, scene.in_force.policy);
        }
        let second = scene.then(|_| {}).decide();
        prop_assert_eq!(&second.in_force, &first.in_force);
        let kind = |decision: &SharingDecision| decision.refusal.as_ref().map(NodeRefusal::word);
        prop_assert_eq!(kind(&second), kind(&first));
    }
}

/// Whatever is asked for and was in force: what the sentence says of the old policy is what holds.
#[test]
fn a_refusal_says_that_something_stays_exactly_where_it_does() {
    let labels = [None, Some("none"), Some("share-pool"), Some("static"), Some("wrong")];
    let annotations = [None, Some("{"), Some(r#"{"preemptEnabled": false}"#)];
    let before = [None, Some("share-pool"), Some("static")];
    let uses = [NodeUse::Container, NodeUse::VmPassthrough];
    let mut refused = 0;
    for (was, label) in before.iter().flat_map(|was| labels.map(|label| (*was, label))) {
        for (qos, node_use) in annotations.iter().flat_map(|qos| uses.map(|node_use| (*qos, node_use))) {
            for pods in [&[][..], &["a/shares"]] {
                let mut scene = Scene::new("none");
                if let Some(was) = was {
                    scene = Scene::new(was).then(|_| {});
                }
                (scene.label, scene.qos, scene.node_use) = (label, qos, node_use);
                scene.load.shared = pods.iter().map(|pod| (*pod).to_owned()).collect();
                let SharingDecision { in_force, refusal } = scene.decide();
                let Some(refusal) = refusal else { continue };
                refused += 1;
                let said = refusal.to_string();
                let (old, told) =
                    (&scene.in_force, format!("{was:?} {label:?} {qos:?} {node_use} {pods:?}: {said}"));
                if said.contains("what was in force before stays") {
                    assert_eq!(in_force, *old, "{told}");
                }
                if said.contains("the policy is ") || said.contains("so the policy stays ") {
                    let named = [" is ", " stays "]
                        .iter()
                        .any(|word| said.contains(&format!("policy{word}{}", in_force.policy)));
                    assert!(named && in_force == *old, "{told}");
                }
                if said.contains("switched off all the same") {
                    assert_eq!(in_force, InForce::default(), "{told}");
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

//! Placement through its public face: rules by example, and every answer against a reckoning from scratch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so")]

use std::collections::{BTreeMap, HashSet};

use gpupool_core::placement::{Card, Cluster, Demand, PlacementNode, PlacementPod, Unfit};
use gpupool_core::pool::CardUuid;
use gpupool_core::share::{Percent, Share};
use gpupool_core::sharing::Policy;
use proptest::prelude::*;

fn share(text: &str) -> Share {
    text.parse().unwrap()
}

fn fixed(policy: Policy, core: &str, memory: &str) -> Demand {
    Demand::Shared { policy, core: share(core), memory: share(memory) }
}

fn in_static(percent: &str) -> Demand {
    fixed(Policy::Static, percent, percent)
}

fn card(index: u32, healthy: bool) -> Card {
    Card { uuid: CardUuid::from(format!("GPU-{index}")), index, healthy }
}

fn node(policy: Policy, cards: u32) -> PlacementNode {
    PlacementNode { policy, cards: Some((0..cards).map(|index| card(index, true)).collect()) }
}

fn place(cluster: &mut Cluster, uid: &str, demand: Demand, node: &str) -> Result<Option<CardUuid>, Unfit> {
    cluster.sought(uid);
    let card = cluster.card(demand, node)?;
    cluster.assume(uid, PlacementPod { node: node.to_owned(), demand, card: card.clone() });
    Ok(card)
}

#[test]
fn three_pods_of_60_do_not_fit_on_two_cards() {
    let mut cluster = Cluster::default();
    cluster.node_seen("n", node(Policy::Static, 2));
    let first = place(&mut cluster, "a", in_static("60"), "n").unwrap();
    let second = place(&mut cluster, "b", in_static("60"), "n").unwrap();
    assert_ne!(first, second);
    assert_eq!(place(&mut cluster, "c", in_static("60"), "n"), Err(Unfit::NoRoom));
    assert_eq!(place(&mut cluster, "d", in_static("40"), "n").unwrap(), first);
}

#[test]
fn requests_decide_the_room_and_limits_do_not() {
    let mut cluster = Cluster::default();
    cluster.node_seen("n", node(Policy::Static, 1));
    for uid in ["a", "b"] {
        assert!(place(&mut cluster, uid, in_static("50:100"), "n").is_ok());
    }
    assert_eq!(place(&mut cluster, "c", in_static("1:100"), "n"), Err(Unfit::NoRoom));
}

#[test]
fn the_card_that_is_left_fullest_is_taken() {
    let mut cluster = Cluster::default();
    cluster.node_seen("n", node(Policy::Static, 2));
    assert_eq!(place(&mut cluster, "a", in_static("30"), "n").unwrap().unwrap().as_str(), "GPU-0");
    assert_eq!(place(&mut cluster, "b", in_static("30"), "n").unwrap().unwrap().as_str(), "GPU-0");
    assert_eq!(place(&mut cluster, "c", in_static("50"), "n").unwrap().unwrap().as_str(), "GPU-1");
    assert_eq!(place(&mut cluster, "d", in_static("40"), "n").unwrap().unwrap().as_str(), "GPU-0");
}

#[test]
fn a_lost_card_takes_nobody() {
    let mut cluster = Cluster::default();
    let cards = Some(vec![card(0, false), card(1, true)]);
    cluster.node_seen("n", PlacementNode { policy: Policy::Static, cards });
    assert_eq!(place(&mut cluster, "a", in_static("80"), "n").unwrap().unwrap().as_str(), "GPU-1");
    assert_eq!(place(&mut cluster, "b", in_static("80"), "n"), Err(Unfit::NoRoom));
}

#[test]
fn pods_go_where_their_policy_is_in_force_and_exclusive_ones_where_none_is() {
    let mut cluster = Cluster::default();
    cluster.node_seen("plain", node(Policy::None, 2));
    cluster.node_seen("pool", node(Policy::SharePool, 2));
    cluster.node_seen("static", node(Policy::Static, 2));
    cluster.node_seen("silent", PlacementNode { policy: Policy::Static, cards: None });
    let pool = fixed(Policy::SharePool, "10:100", "10:100");
    let answers = |demand| ["plain", "pool", "static", "silent"].map(|node| cluster.fits(demand, node));
    let (wants_pool, wants_static) = (Policy::SharePool, Policy::Static);
    assert_eq!(
        answers(pool),
        [
            Err(Unfit::NotShared { wanted: wants_pool }),
            Ok(()),
            Err(Unfit::OtherPolicy { in_force: wants_static, wanted: wants_pool }),
            Err(Unfit::OtherPolicy { in_force: wants_static, wanted: wants_pool }),
        ]
    );
    assert_eq!(
        answers(in_static("10")),
        [
            Err(Unfit::NotShared { wanted: wants_static }),
            Err(Unfit::OtherPolicy { in_force: wants_pool, wanted: wants_static }),
            Ok(()),
            Err(Unfit::CardsUnknown),
        ]
    );
    assert_eq!(
        answers(Demand::Exclusive),
        [
            Ok(()),
            Err(Unfit::Shares { in_force: wants_pool }),
            Err(Unfit::Shares { in_force: wants_static }),
            Err(Unfit::Shares { in_force: wants_static }),
        ]
    );
    assert_eq!(answers(Demand::None), [Ok(()); 4]);
    assert_eq!(cluster.fits(pool, "nowhere"), Err(Unfit::Unknown));
}

#[test]
fn a_pick_counts_until_it_is_seen_or_came_to_nothing() {
    let mut cluster = Cluster::default();
    cluster.node_seen("n", node(Policy::Static, 1));
    place(&mut cluster, "a", in_static("60"), "n").unwrap();
    // News of before the pick.
    cluster.pod_seen("a", None);
    assert_eq!(cluster.fits(in_static("60"), "n"), Err(Unfit::NoRoom));
    cluster.keep_only(None, Some(&HashSet::new()));
    assert_eq!(cluster.fits(in_static("60"), "n"), Err(Unfit::NoRoom));
    // The scheduler comes again with the same pod: the binding failed.
    cluster.sought("a");
    assert_eq!(cluster.fits(in_static("60"), "n"), Ok(()));
    place(&mut cluster, "a", in_static("60"), "n").unwrap();
    let seen =
        PlacementPod { node: "n".to_owned(), demand: in_static("60"), card: Some(CardUuid::from("GPU-0")) };
    cluster.pod_seen("a", Some(seen));
    cluster.sought("a");
    assert_eq!(cluster.fits(in_static("60"), "n"), Err(Unfit::NoRoom));
    cluster.pod_gone("a");
    assert_eq!(cluster.fits(in_static("60"), "n"), Ok(()));
}

#[test]
fn a_pod_whose_card_is_not_known_yet_is_counted_somewhere() {
    let mut cluster = Cluster::default();
    cluster.node_seen("n", node(Policy::Static, 2));
    for uid in ["a", "b"] {
        let facts = PlacementPod { node: "n".to_owned(), demand: in_static("60"), card: None };
        cluster.pod_seen(uid, Some(facts));
    }
    assert_eq!(cluster.fits(in_static("60"), "n"), Err(Unfit::NoRoom));
    assert_eq!(cluster.fits(in_static("40"), "n"), Ok(()));
}

#[test]
fn reasons_hold_no_percent_sign_and_no_name() {
    let policy = Policy::Static;
    let reasons = [
        Unfit::Unknown,
        Unfit::NotShared { wanted: policy },
        Unfit::OtherPolicy { in_force: Policy::SharePool, wanted: policy },
        Unfit::Shares { in_force: policy },
        Unfit::CardsUnknown,
        Unfit::NoRoom,
    ];
    for reason in reasons {
        assert!(!reason.to_string().contains('%'), "{reason}");
    }
}

#[test]
fn scores_lead_static_pods_to_full_cards_and_pool_pods_to_short_queues() {
    let mut cluster = Cluster::default();
    for name in ["empty", "used"] {
        cluster.node_seen(name, node(Policy::Static, 2));
    }
    place(&mut cluster, "a", in_static("50"), "used").unwrap();
    assert!(cluster.score(in_static("50"), "used") > cluster.score(in_static("50"), "empty"));
    for name in ["empty", "used"] {
        cluster.node_seen(name, node(Policy::SharePool, 2));
    }
    let pool = fixed(Policy::SharePool, "10:100", "10:100");
    for uid in ["b", "c", "d"] {
        place(&mut cluster, uid, pool, "used").unwrap();
    }
    assert!(cluster.score(pool, "used") < cluster.score(pool, "empty"));
    assert!(cluster.score(pool, "empty") <= 10);
}

/// What may happen to a small cluster.
#[derive(Clone, Copy, Debug)]
enum Step {
    Node { name: u8, policy: Policy, cards: Option<u8>, sick: u8 },
    NodeGone { name: u8 },
    Place { uid: u8, name: u8, request: u8 },
    Seen { uid: u8, name: u8, request: u8, card: Option<u8> },
    Gone { uid: u8 },
    Sought { uid: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let policy = prop_oneof![
        3 => Just(Policy::Static),
        1 => Just(Policy::SharePool),
        1 => Just(Policy::None),
    ];
    prop_oneof![
        (0..3_u8, policy, proptest::option::weighted(0.8, 0..4_u8), 0..16_u8)
            .prop_map(|(name, policy, cards, sick)| Step::Node { name, policy, cards, sick }),
        (0..3_u8).prop_map(|name| Step::NodeGone { name }),
        (0..12_u8, 0..3_u8, 1..=100_u8).prop_map(|(uid, name, request)| Step::Place { uid, name, request }),
        (0..12_u8, 0..3_u8, 1..=100_u8, proptest::option::of(0..4_u8))
            .prop_map(|(uid, name, request, card)| Step::Seen { uid, name, request, card }),
        (0..12_u8).prop_map(|uid| Step::Gone { uid }),
        (0..12_u8).prop_map(|uid| Step::Sought { uid }),
    ]
}

/// The same, kept as plain facts and reckoned anew at each question.
#[derive(Default)]
struct Naive {
    nodes: BTreeMap<String, PlacementNode>,
    pods: BTreeMap<String, PlacementPod>,
    assumed: HashSet<String>,
}

impl Naive {
    /// Percent left on each healthy card; `None` where the cards are not known.
    fn left(&self, name: &str) -> Option<BTreeMap<u32, u32>> {
        let cards = self.nodes.get(name)?.cards.as_ref()?;
        let mut left: BTreeMap<u32, (u32, bool)> =
            cards.iter().map(|card| (card.index, (100, card.healthy))).collect();
        let index_of = |uuid: &CardUuid| cards.iter().find(|card| card.uuid == *uuid).map(|card| card.index);
        let request = |pod: &PlacementPod| match pod.demand {
            Demand::Shared { core, .. } => u32::from(core.request().get()),
            _ => 0,
        };
        let here = || self.pods.values().filter(|pod| pod.node == name);
        for pod in here() {
            if let Some(entry) = pod.card.as_ref().and_then(index_of).and_then(|index| left.get_mut(&index)) {
                entry.0 = entry.0.saturating_sub(request(pod));
            }
        }
        for pod in here().filter(|pod| pod.card.is_none()) {
            let fitting = left.iter().filter(|(_, (free, healthy))| *healthy && *free >= request(pod));
            let fullest = fitting.min_by_key(|(index, (free, _))| (*free, **index)).map(|(index, _)| *index);
            let emptiest = left
                .iter()
                .max_by_key(|(index, (free, _))| (*free, std::cmp::Reverse(**index)))
                .map(|(index, _)| *index);
            if let Some(entry) = fullest.or(emptiest).and_then(|index| left.get_mut(&index)) {
                entry.0 = entry.0.saturating_sub(request(pod));
            }
        }
        Some(left.into_iter().filter(|(_, (_, healthy))| *healthy).map(|(i, (free, _))| (i, free)).collect())
    }

    fn card(&self, name: &str, request: u8) -> Result<CardUuid, Unfit> {
        let facts = self.nodes.get(name).ok_or(Unfit::Unknown)?;
        match facts.policy {
            Policy::None => return Err(Unfit::NotShared { wanted: Policy::Static }),
            Policy::SharePool => {
                return Err(Unfit::OtherPolicy { in_force: Policy::SharePool, wanted: Policy::Static });
            }
            Policy::Static => {}
        }
        let left = self.left(name).ok_or(Unfit::CardsUnknown)?;
        let fitting = left.iter().filter(|(_, free)| **free >= u32::from(request));
        let chosen = fitting.min_by_key(|(index, free)| (**free, **index)).ok_or(Unfit::NoRoom)?;
        Ok(CardUuid::from(format!("GPU-{}", chosen.0)))
    }
}

proptest! {
    #[test]
    fn every_answer_is_that_of_a_reckoning_from_scratch(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut cluster, mut naive) = (Cluster::default(), Naive::default());
        for step in steps {
            apply(&mut cluster, &mut naive, step);
            for name in ["n0", "n1", "n2"] {
                for request in [1_u8, 30, 60, 100] {
                    let percent = Share::fixed(Percent::new(u64::from(request)).unwrap());
                    let demand = Demand::Shared { policy: Policy::Static, core: percent, memory: percent };
                    let answer = cluster.card(demand, name).map(Option::unwrap);
                    prop_assert_eq!(answer, naive.card(name, request), "{} {}", name, request);
                }
            }
        }
    }
}

fn apply(cluster: &mut Cluster, naive: &mut Naive, step: Step) {
    let demand = |request: u8| in_static(&request.to_string());
    match step {
        Step::Node { name, policy, cards, sick } => {
            let cards = cards.map(|count| {
                (0..count).map(|index| card(u32::from(index), sick & (1 << index) == 0)).collect()
            });
            let facts = PlacementNode { policy, cards };
            cluster.node_seen(&format!("n{name}"), facts.clone());
            naive.nodes.insert(format!("n{name}"), facts);
        }
        Step::NodeGone { name } => {
            cluster.node_gone(&format!("n{name}"));
            naive.nodes.remove(&format!("n{name}"));
        }
        Step::Place { uid, name, request } => {
            let (uid, name) = (format!("p{uid:02}"), format!("n{name}"));
            if naive.assumed.remove(&uid) {
                naive.pods.remove(&uid);
            }
            cluster.sought(&uid);
            if let Ok(card) = cluster.card(demand(request), &name) {
                let facts = PlacementPod { node: name, demand: demand(request), card };
                cluster.assume(&uid, facts.clone());
                naive.pods.insert(uid.clone(), facts);
                naive.assumed.insert(uid);
            }
        }
        Step::Seen { uid, name, request, card } => {
            let uid = format!("p{uid:02}");
            let card = card.map(|index| CardUuid::from(format!("GPU-{index}")));
            let facts = PlacementPod { node: format!("n{name}"), demand: demand(request), card };
            cluster.pod_seen(&uid, Some(facts.clone()));
            naive.assumed.remove(&uid);
            naive.pods.insert(uid, facts);
        }
        Step::Gone { uid } => {
            let uid = format!("p{uid:02}");
            cluster.pod_gone(&uid);
            naive.assumed.remove(&uid);
            naive.pods.remove(&uid);
        }
        Step::Sought { uid } => {
            let uid = format!("p{uid:02}");
            cluster.sought(&uid);
            if naive.assumed.remove(&uid) {
                naive.pods.remove(&uid);
            }
        }
    }
}

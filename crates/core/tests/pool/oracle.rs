//! Whatever happens, the pool decides as the naive one does, wakes in time, and behaves the same when it is played
//! again, called by other names, or written down and restored in between.

use gpupool_core::pool::{
    Action, Config, Event, Occupants, PodId, Policy, Pool, Rebuilt, Refusal, Snapshot, Timestamp,
};
use proptest::prelude::*;

use crate::naive::Naive;
use crate::ops::{Story, pod, story};
use crate::watch::Watch;

type Outcome = Result<Vec<Action>, Refusal>;

/// Plays the story with all checks, and gives what the pool decided.
fn outcomes(story: &Story) -> Vec<(Timestamp, Event, Outcome)> {
    let mut pool = story.pool();
    let mut outcomes = Vec::new();
    story.play(&mut pool, |pool, now, event| {
        let outcome = pool.step(now, event.clone());
        outcomes.push((now, event, outcome));
    });
    outcomes
}

fn naive_of(story: &Story) -> Naive {
    let snapshot_of_cards = story.pool();
    let cards = snapshot_of_cards
        .cards()
        .map(|card| gpupool_core::pool::Card { uuid: card.uuid.clone(), index: card.index })
        .collect();
    Naive::new(Config { cards, policy: story.policy, qos: story.qos, check_requests: story.check_requests })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_written_down_of_each_event_comes_to_the_same_pool(story in story()) {
        let mut pool = story.pool();
        let mut rebuilt = Rebuilt::new(pool.snapshot());
        story.play(&mut pool, |pool, now, event| {
            if pool.step(now, event.clone()).is_ok() {
                let written = serde_json::to_string(&pool.last_change(&event)).unwrap();
                rebuilt.apply(serde_json::from_str(&written).unwrap());
            }
            assert_eq!(rebuilt.clone().pool().unwrap().snapshot(), pool.snapshot(), "{event:?}");
        });
    }

    #[test]
    fn the_pool_decides_as_the_naive_one(story in story()) {
        let mut naive = naive_of(&story);
        let mut pool = story.pool();
        let mut watch = Watch::default();
        let mut differs = Ok(());
        story.play(&mut pool, |pool, now, event| {
            let before = pool.clone();
            let outcome = pool.step(now, event.clone());
            let expected = naive.step(now, event.clone());
            if outcome != expected {
                differs = Err(TestCaseError::fail(format!("{event:?}\n pool: {outcome:?}\nnaive: {expected:?}")));
            }
            pool.check_invariants().unwrap();
            for queue in naive.queues() {
                for (position, waiting) in (1..).zip(queue) {
                    assert_eq!(pool.position(&waiting), Some(position), "`{waiting}`");
                }
            }
            match outcome {
                Ok(actions) => watch.step(&before, &event, &actions, pool),
                Err(_) => assert_eq!(before.snapshot(), pool.snapshot(), "a refused event changed something"),
            }
        });
        differs?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_is_due_before_the_deadline(story in story()) {
        let mut pool = story.pool();
        story.play(&mut pool, |pool, now, event| {
            let _ = pool.step(now, event);
            let at = pool.now();
            let last_quiet = pool.next_deadline().map_or(Timestamp(u64::MAX / 2), |due| {
                assert!(due > at, "due at {due}, but it is {at} already and the step is over");
                Timestamp(due.0 - 1)
            });
            let mut later = pool.clone();
            assert_eq!(later.step(last_quiet, Event::Tick), Ok(vec![]), "due before {last_quiet}");
        });
    }

    #[test]
    fn the_same_events_give_the_same_decisions(story in story()) {
        let mut again = story.pool();
        for (now, event, outcome) in outcomes(&story) {
            prop_assert_eq!(again.step(now, event), outcome);
        }
    }

    #[test]
    fn names_of_pods_decide_nothing(story in story()) {
        let mut renamed = story.pool();
        for (now, event, outcome) in outcomes(&story) {
            let outcome_renamed = renamed.step(now, rename_event(event));
            prop_assert_eq!(format!("{:?}", outcome_renamed), rename_text(&format!("{outcome:?}")));
        }
    }

    #[test]
    fn a_restored_pool_goes_on_as_the_old_one(story in story(), at in 0_usize..9) {
        let mut restored = None;
        for (place, (now, event, outcome)) in outcomes(&story).into_iter().enumerate() {
            let pool = restored.get_or_insert_with(|| story.pool());
            if place % 9 == at {
                let json = serde_json::to_string(&pool.snapshot()).unwrap();
                let snapshot: Snapshot = serde_json::from_str(&json).unwrap();
                let back = Pool::restore(snapshot).unwrap();
                prop_assert_eq!(back.snapshot(), pool.snapshot());
                prop_assert_eq!(back.next_deadline(), pool.next_deadline());
                *pool = back;
            }
            let event: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
            prop_assert_eq!(pool.step(now, event), outcome);
        }
    }

    #[test]
    fn static_never_preempts(story in crate::ops::story_of(Policy::Static)) {
        for (_, _, outcome) in outcomes(&story) {
            let preempts = outcome.iter().flatten().any(|action| matches!(action, Action::Preempted { .. }));
            prop_assert!(!preempts);
        }
    }
}

/// Pods are called `a` to `g`; renamed, the first in name order is the last.
fn rename(name: &PodId) -> PodId {
    (0..7).find(|number| pod(*number) == *name).map_or_else(|| name.clone(), |number| pod(6 - number))
}

fn rename_event(event: Event) -> Event {
    match event {
        Event::PodAdded { pod, spec } => Event::PodAdded { pod: rename(&pod), spec },
        Event::PodChanged { pod, spec } => Event::PodChanged { pod: rename(&pod), spec },
        Event::PodRemoved { pod } => Event::PodRemoved { pod: rename(&pod) },
        Event::GpuWanted { pod, only } => Event::GpuWanted { pod: rename(&pod), only },
        Event::WantGone { pod } => Event::WantGone { pod: rename(&pod) },
        Event::Released { pod, lease } => Event::Released { pod: rename(&pod), lease },
        Event::Idle { pod, idle } => Event::Idle { pod: rename(&pod), idle },
        Event::CardsSeen { occupied } => {
            let renamed = |by: Occupants| Occupants { pods: by.pods.iter().map(rename).collect(), ..by };
            Event::CardsSeen {
                occupied: occupied.into_iter().map(|(card, by)| (card, renamed(by))).collect(),
            }
        }
        other => other,
    }
}

/// Names stand alone in quotes in what is printed for debugging.
fn rename_text(text: &str) -> String {
    let quoted = text.split('"').map(|part| match part.len() {
        1 => rename(&part.into()).to_string(),
        _ => part.to_owned(),
    });
    quoted.collect::<Vec<_>>().join("\"")
}

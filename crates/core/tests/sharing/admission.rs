//! What admission makes of pods and templates: the table of ways in which people and programs write them.

use gpupool_core::sharing::admission::{admit, validate, validate_change};
use gpupool_core::sharing::{Dimension, Pod, Refusal, Rewrite, Update};
use proptest::prelude::*;

use crate::pods::{container, published};

/// A pod with a request, a limit and an annotation for both dimensions; an empty text stands for nothing.
fn pod(request: &str, limit: &str, annotation: &str) -> Pod {
    let text = (!annotation.is_empty()).then(|| annotation.to_owned());
    Pod {
        containers: vec![container("demo", (request, limit), (request, limit))],
        core_limit: text.clone(),
        memory_limit: text,
        ..published()
    }
}

/// The object as it is stored.
fn stored(pod: &Pod, rewrite: &Rewrite) -> Pod {
    let mut after = pod.clone();
    for (at, dimension, limit) in &rewrite.limits {
        let amount = match dimension {
            Dimension::Core => &mut after.containers[*at].core,
            Dimension::Memory => &mut after.containers[*at].memory,
        };
        amount.limit = Some(limit.clone());
    }
    for (dimension, text) in &rewrite.annotations {
        match dimension {
            Dimension::Core => after.core_limit.clone_from(text),
            Dimension::Memory => after.memory_limit.clone_from(text),
        }
    }
    after
}

fn create(written: &Pod) -> Pod {
    stored(written, &admit(written, None).unwrap().rewrite)
}

/// `written` is what the webhook sees: the stored object with the changes.
fn update(old: &Pod, written: &Pod, applied: Option<&Pod>) -> Pod {
    stored(written, &admit(written, Some(Update { old, applied })).unwrap().rewrite)
}

#[test]
fn the_published_pod_is_stored_with_its_limit_beside_it() {
    let written = pod("10", "100", "");
    assert_eq!(create(&written), pod("10", "10", "100"));
    assert_eq!(create(&written).share(), written.share());
}

#[test]
fn what_controllers_restores_and_undo_send_again_stays_as_it_is() {
    let sent = pod("10", "10", "100");
    assert_eq!(create(&sent), sent);
    assert_eq!(update(&pod("10", "10", "50"), &sent, None), sent);
}

#[test]
fn requests_alone_and_limits_alone() {
    assert_eq!(create(&pod("30", "", "")), pod("30", "30", ""));
    // Kubernetes itself makes requests of limits, in pods; a template stays as it is.
    assert_eq!(create(&pod("", "30", "")), pod("", "30", ""));
    assert_eq!(create(&pod("30", "", "60")), pod("30", "30", "60"));
}

#[test]
fn applying_the_same_manifest_again_changes_nothing() {
    let manifest = pod("10", "100", "");
    let live = create(&manifest);
    // Client-side: the limit that live lacks is sent again, the applied configuration stays as it was.
    let sent = pod("10", "100", "100");
    assert_eq!(update(&live, &sent, None), live);
    assert_eq!(update(&live, &sent, Some(&manifest)), live);
}

#[test]
fn a_limit_is_raised_and_lowered() {
    let live = create(&pod("10", "50", ""));
    for (limit, after) in [("100", pod("10", "10", "100")), ("20", pod("10", "10", "20"))] {
        let sent = pod("10", limit, "50");
        assert_eq!(update(&live, &sent, Some(&pod("10", limit, ""))), after);
        assert_eq!(update(&live, &sent, None), after, "server-side");
    }
}

#[test]
fn a_limit_lowered_to_the_request_is_seen_in_what_was_applied() {
    let live = create(&pod("10", "100", ""));
    // Nothing in the object tells; the applied configuration does.
    let sent = live.clone();
    assert_eq!(update(&live, &sent, Some(&pod("10", "10", ""))), pod("10", "10", ""));
    // Server-side nothing tells at all: the annotation has to be changed by hand.
    assert_eq!(update(&live, &sent, None), live);
    assert_eq!(update(&live, &pod("10", "10", "20"), None), pod("10", "10", "20"));
    assert_eq!(update(&live, &pod("10", "10", ""), None), pod("10", "10", ""));
}

#[test]
fn an_edited_annotation_is_stronger_than_what_was_applied_long_ago() {
    let live = create(&pod("10", "100", ""));
    let edited = update(&live, &pod("10", "10", "50"), None);
    assert_eq!(edited, pod("10", "10", "50"));
    // Somebody else changes something else.
    assert_eq!(update(&edited, &edited, None), edited);
    // The manifest is applied again, with its own limit or with the annotation in it.
    assert_eq!(update(&edited, &pod("10", "100", "50"), Some(&pod("10", "100", ""))), live);
    assert_eq!(update(&live, &pod("10", "10", "60"), Some(&pod("10", "10", "60"))), pod("10", "10", "60"));
}

#[test]
fn a_request_over_its_limit_is_refused_before_anything_is_moved() {
    let refusal = admit(&pod("50", "10", ""), None).unwrap_err();
    assert!(refusal.to_string().contains("requests 50 percent"), "{refusal}");
    assert!(matches!(admit(&pod("0.5", "0.5", ""), None), Err(Refusal::NoPercentage { .. })));
    assert!(matches!(admit(&pod("10", "0.5", ""), None), Err(Refusal::NoPercentage { .. })));
    for odd in ["x", "1e2", "+50", " 50", "101", "0", "000", "\u{0665}0"] {
        let refusal = admit(&pod("10", "10", odd), None).unwrap_err();
        assert!(matches!(refusal, Refusal::LimitAnnotation { .. }), "{odd}");
    }
}

#[test]
fn what_stands_is_not_judged_again() {
    let mut odd = pod("10", "10", "100");
    odd.compute_class = None;
    assert!(admit(&odd, None).is_err() && validate(&odd, None).is_err());
    assert_eq!(update(&odd, &odd, None), odd);
    assert_eq!(validate(&odd, Some(&odd)), Ok(()));
    let mut changed = odd.clone();
    changed.core_limit = Some("50".to_owned());
    assert!(admit(&changed, Some(Update { old: &odd, applied: None })).is_err());
}

#[test]
fn of_a_pod_neither_limit_nor_card_nor_policy_can_be_changed() {
    let live = pod("10", "10", "100");
    assert_eq!(validate_change(&live, &live), Ok(()));
    let changed = |change: fn(&mut Pod)| {
        let mut pod = live.clone();
        change(&mut pod);
        validate_change(&pod, &live).unwrap_err().to_string()
    };
    let text = changed(|pod| pod.core_limit = Some("50".to_owned()));
    assert!(
        text.contains(
            "the limit of alibabacloud.com/gpu-core.percentage is 100 and can't be changed on a pod"
        ),
        "{text}"
    );
    assert!(changed(|pod| pod.memory_limit = None).contains("delete the pod and create it anew"));
    assert!(changed(|pod| pod.card = Some("GPU-1".to_owned())).contains("written by gpupool alone"));
    assert!(changed(|pod| pod.policy = Some("static".to_owned())).contains("can't be changed on a pod"));
    // To say outright what is the case anyway changes nothing.
    assert_eq!(validate_change(&pod("10", "10", "10"), &pod("10", "10", "")), Ok(()));
}

#[test]
fn a_limit_is_stored_in_one_form_and_compared_as_a_number() {
    assert_eq!(create(&pod("10", "10", "050")), pod("10", "10", "50"));
    assert_eq!(create(&pod("10", "10", "0100")), pod("10", "10", "100"));
    // One that says what is the case anyway stays, in that form.
    assert_eq!(create(&pod("10", "10", "010")), pod("10", "10", "10"));
    assert_eq!(update(&pod("10", "10", "50"), &pod("10", "10", "050"), None), pod("10", "10", "50"));
    // Stored by an earlier version: the same limit in other words is no change, another limit is one.
    let before = pod("10", "10", "050");
    assert_eq!(validate_change(&pod("10", "10", "50"), &before), Ok(()));
    assert_eq!(validate_change(&before, &pod("10", "10", "50")), Ok(()));
    assert!(validate_change(&pod("10", "10", "51"), &before).is_err());
    // Nor does it make what stands be judged again.
    let mut odd = before;
    odd.compute_class = None;
    let after = update(&odd, &odd, None);
    assert_eq!((after.core_limit.as_deref(), validate(&after, Some(&odd))), (Some("50"), Ok(())));
}

#[test]
fn the_card_of_a_new_pod_is_not_its_authors_to_choose() {
    let mut chosen = pod("10", "10", "");
    chosen.card = Some("GPU-1".to_owned());
    assert_eq!(validate(&chosen, None), Err(Refusal::CardAnnotation));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (1_u32..=101).prop_map(|percent| percent.to_string()),
        Just("0.5".to_owned())
    ]
}

/// A number as somebody may write it.
fn with_zeros() -> impl Strategy<Value = String> {
    (0_usize..30, 0_u32..=130).prop_map(|(zeros, number)| format!("{}{number}", "0".repeat(zeros)))
}

proptest! {
    #[test]
    fn the_stored_form_means_what_was_written_and_is_stored_as_it_is(text in with_zeros()) {
        let written = pod("1", "1", &text);
        let number: u32 = text.parse().unwrap();
        let Ok(admitted) = admit(&written, None) else {
            prop_assert!(!(1..=100).contains(&number), "{}", text);
            return Ok(());
        };
        let form = number.to_string();
        let once = stored(&written, &admitted.rewrite);
        prop_assert_eq!(once.core_limit.as_deref(), Some(form.as_str()));
        prop_assert_eq!(once.share(), written.share());
        prop_assert_eq!(create(&once), once.clone());
        prop_assert_eq!(validate_change(&once, &written), Ok(()));
    }

    #[test]
    fn what_is_stored_is_admitted_again_without_a_change_and_means_the_same(
        request in text(), limit in text(), annotation in text(),
        old in text(), applied in prop::option::of((text(), text())),
    ) {
        let written = pod(&request, &limit, &annotation);
        let before = pod(&request, &request, &old);
        let applied = applied.map(|(limit, annotation)| pod(&request, &limit, &annotation));
        for update in [None, Some(Update { old: &before, applied: applied.as_ref() })] {
            let Ok(admitted) = admit(&written, update) else { continue };
            let stored = stored(&written, &admitted.rewrite);
            let again = admit(&stored, None);
            if let Ok(again) = again {
                prop_assert!(again.rewrite.is_empty(), "{:?}", again);
                prop_assert_eq!(&again.asked, &admitted.asked);
            } else {
                // Only what stood there before may be wrong.
                prop_assert_eq!(Some(&stored), update.map(|update| update.old));
            }
            // Kubernetes takes it.
            for container in &stored.containers {
                for dimension in Dimension::ALL {
                    let amount = container.amount(dimension);
                    prop_assert!(amount.request.is_none() || amount.request == amount.limit || admitted.asked.is_none());
                }
            }
        }
    }
}

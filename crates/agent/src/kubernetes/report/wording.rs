//! The sentences about processes that are ended, for the owners of their pods. Those about a pre-emption are the published
//! page's.

use std::time::Duration;

use gpupool_core::pool::{Millis, TerminationReason};

use crate::notice::{Cause, Termination};
use crate::pod::{Maker, PodRef};

/// Why the pod's GPU programs are told to go. `fixed`: the pod can't have another card.
pub(super) fn cause(termination: &Termination, beneficiary: Option<&PodRef>, fixed: bool) -> String {
    let other = beneficiary.map_or("another pod", |pod| pod.name.as_str());
    match &termination.cause {
        Cause::Pool(TerminationReason::Preempted { .. }) => format!("GPU is preempted by {other}."),
        Cause::Pool(TerminationReason::IdleRelease { .. }) => {
            format!("GPU is released for {other}, because the pod was idle.")
        }
        Cause::Pool(TerminationReason::CardLost) => {
            let card = termination.card.as_ref().map_or_else(String::new, |card| format!(" {card}"));
            let next = if fixed {
                "The pod keeps this card: delete it and create it again to have another."
            } else {
                "Started again, they wait for a card that works."
            };
            format!("GPU{card} does not work any more, and the pod's programs on it are ended. {next}")
        }
        Cause::Pool(TerminationReason::Stopped) => {
            "The pod was deleted or has finished, and its programs on the GPU are ended.".to_owned()
        }
        Cause::OverLimit(sentence) => format!("{sentence}."),
    }
}

/// The same programs, which did not go within the grace.
pub(super) fn killed(grace: Millis, why: &str) -> String {
    let seconds = Duration::from_millis(grace.0).as_secs_f64();
    format!("GPU programs of the pod did not end within {seconds} s of SIGTERM and are killed. {why}")
}

/// The kubelet has turned the pod away, and what its owner has to do.
pub(super) fn not_admitted(pod: &PodRef, maker: &Maker) -> String {
    let next = match maker {
        Maker::Nobody => format!(
            "Nobody makes it anew: kubectl delete pod {} -n {}, and create it again from its manifest.",
            pod.name, pod.namespace
        ),
        Maker::Controller(controller) => {
            format!("{controller} makes another in its place, and this one may be deleted.")
        }
        Maker::Kubelet => {
            "It is a static pod: move its manifest out of the kubelet's folder and back.".to_owned()
        }
    };
    format!(
        "The kubelet turned the pod away because gpupool had registered no card that works: node or kubelet had just \
         started, or all cards are lost. A pod that was turned away is never started again. {next}"
    )
}

#[cfg(test)]
mod tests {
    use gpupool_core::pool::Timestamp;

    use super::*;

    fn told(cause: Cause) -> Termination {
        Termination { cause, told_at: Timestamp(7), outlived: None, card: Some("GPU-1".into()) }
    }

    #[test]
    fn a_lost_card_is_named_and_what_to_do_depends_on_whether_the_pod_can_have_another() {
        let lost = told(Cause::Pool(TerminationReason::CardLost));
        let sentence = cause(&lost, None, false);
        assert!(sentence.starts_with("GPU GPU-1 does not work any more"), "{sentence}");
        assert!(sentence.ends_with("Started again, they wait for a card that works."), "{sentence}");
        assert!(cause(&lost, None, true).ends_with("create it again to have another."));
    }

    #[test]
    fn what_to_do_about_a_pod_that_was_turned_away_depends_on_who_makes_it_anew() {
        let pod = PodRef { namespace: "team".into(), name: "train".into(), uid: "1".into() };
        let said = |maker| not_admitted(&pod, &maker);
        assert!(said(Maker::Nobody).contains("kubectl delete pod train -n team, and create it again"));
        assert!(said(Maker::Controller("ReplicaSet a".into())).contains("ReplicaSet a makes another"));
        assert!(said(Maker::Kubelet).contains("move its manifest"));
    }

    #[test]
    fn who_waits_is_named_where_it_is_known() {
        let other = PodRef { namespace: "team".into(), name: "next".into(), uid: "2".into() };
        let idle = told(Cause::Pool(TerminationReason::IdleRelease { by: "2".into() }));
        assert_eq!(cause(&idle, Some(&other), false), "GPU is released for next, because the pod was idle.");
        assert!(cause(&idle, None, false).contains("for another pod"));
    }
}

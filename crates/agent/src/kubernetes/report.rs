//! What happens to a pod is told where its owner looks: Events and conditions.
//!
//! The writes about a pod are made one after the other, each until it is done or can't be done any more; those about
//! others go on beside them. Nobody waits for them.

mod pending;
mod wording;

use std::time::Duration;

use gpupool_core::pool::TerminationReason;
use gpupool_core::sharing::names::{
    ACCEPTED_CONDITION, EVENT_SOURCE, IDLE_RELEASE, KILL_CONDITION, KILLED, NOT_ADMITTED, PREEMPT, PREEMPTED,
    RECLAIM_CONDITION, REFUSED, TERMINATION_CONDITION,
};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::outage::causes;
use crate::notice::{Cause, Notice, Termination};
use crate::pod::PodRef;
use pending::Pending;

/// Notices that may wait for the reporter, which only takes them in.
pub(super) const QUEUE: usize = 1024;

/// Writes under way at the same time.
const AT_ONCE: usize = 8;

/// How long the API server may take for one.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);

/// One thing to write about one pod.
#[derive(Debug)]
struct Report {
    pod: PodRef,
    condition: Option<Value>,
    event: Option<Event>,
}

/// One write.
#[derive(Debug, Clone)]
enum Write {
    Event(Box<Event>),
    Condition { pod: PodRef, condition: Value },
}

impl Write {
    fn is_event(&self) -> bool {
        matches!(self, Self::Event(_))
    }

    /// Whether `older` need not be written any more once this is to be.
    fn replaces(&self, older: &Self) -> bool {
        let types = (self.condition("type"), older.condition("type"));
        matches!(types, (Some(mine), Some(theirs)) if mine == theirs)
    }

    fn condition(&self, field: &str) -> Option<&str> {
        match self {
            Self::Event(_) => None,
            Self::Condition { condition, .. } => condition.get(field)?.as_str(),
        }
    }
}

/// What all that is reported at a moment has in common.
struct Stamp<'a> {
    node: &'a str,
    now: Timestamp,
}

impl Stamp<'_> {
    /// The page shows whole seconds, as Kubernetes writes all of its times.
    fn written(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn reports(&self, notice: Notice) -> Vec<Report> {
        let number = u128::try_from(self.now.as_nanosecond()).unwrap_or_default();
        match notice {
            Notice::Preempted { victim, beneficiary, at } => {
                let of_victim = format!("GPU is preempted by {}.", beneficiary.name);
                let of_beneficiary = format!("GPU is preempted from {}.", victim.name);
                // One may take its card from several: the victim tells these apart.
                let of_both = u128::from(at.0) << 32 | u128::from(crc32fast::hash(victim.uid.as_bytes()));
                vec![
                    self.interruption(victim, (RECLAIM_CONDITION, PREEMPTED), of_victim, of_both),
                    self.interruption(beneficiary, (RECLAIM_CONDITION, PREEMPT), of_beneficiary, of_both),
                ]
            }
            Notice::Ended { pod, termination, beneficiary, fixed } => {
                self.ended(pod, &termination, beneficiary, fixed)
            }
            Notice::Rejected { pod, why } => vec![Report {
                condition: Some(self.condition(ACCEPTED_CONDITION, "False", why.reason, &why.sentence)),
                event: Some(self.event(&pod, REFUSED, why.sentence, number)),
                pod,
            }],
            Notice::NotAdmitted { pod, maker } => {
                let sentence = wording::not_admitted(&pod, &maker);
                // Named after the pod: it is told once, however often the object is seen.
                let event =
                    self.event(&pod, NOT_ADMITTED, sentence, u128::from(crc32fast::hash(pod.uid.as_bytes())));
                vec![Report { condition: None, event: Some(event), pod }]
            }
            Notice::Admitted { pod } => {
                let sentence = "the pod has its place in the node's pool.";
                let condition = self.condition(ACCEPTED_CONDITION, "True", "Accepted", sentence);
                vec![Report { pod, condition: Some(condition), event: None }]
            }
            Notice::Found { pod, reason, sentence } => {
                let event = self.event(&pod, reason, sentence, number);
                vec![Report { pod, condition: None, event: Some(event) }]
            }
        }
    }

    fn ended(
        &self,
        pod: PodRef,
        termination: &Termination,
        beneficiary: Option<PodRef>,
        fixed: bool,
    ) -> Vec<Report> {
        let why = wording::cause(termination, beneficiary.as_ref(), fixed);
        let (names, message) = match termination.outlived {
            Some(grace) => ((KILL_CONDITION, KILLED), wording::killed(grace, &why)),
            None => ((TERMINATION_CONDITION, termination.cause.reason()), why),
        };
        // The same name when it is told again after a restart; another for each reason and pod.
        let about = format!("{}{}", pod.uid, names.1);
        let number = u128::from(termination.told_at.0) << 32 | u128::from(crc32fast::hash(about.as_bytes()));
        let idle = matches!(termination.cause, Cause::Pool(TerminationReason::IdleRelease { .. }));
        let other = beneficiary.filter(|_| idle && termination.outlived.is_none()).map(|beneficiary| {
            let message = format!("GPU is released by {}, which was idle.", pod.name);
            self.interruption(beneficiary, (TERMINATION_CONDITION, IDLE_RELEASE), message, number)
        });
        std::iter::once(self.interruption(pod, names, message, number)).chain(other).collect()
    }

    /// Both as structured data and as an Event.
    fn interruption(
        &self,
        pod: PodRef,
        (type_, reason): (&str, &str),
        message: String,
        number: u128,
    ) -> Report {
        let condition = Some(self.condition(type_, "True", reason, &message));
        Report { condition, event: Some(self.event(&pod, reason, message, number)), pod }
    }

    fn condition(&self, type_: &str, status: &str, reason: &str, message: &str) -> Value {
        let now = self.written();
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now,
        })
    }

    /// `number` sets it apart from others about the pod.
    fn event(&self, pod: &PodRef, reason: &str, message: String, number: u128) -> Event {
        Event {
            metadata: ObjectMeta {
                // The same name when the write is repeated, because its answer was lost: no second Event.
                name: Some(format!("{}.{:x}", pod.name, number)),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(pod.namespace.clone()),
                name: Some(pod.name.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource {
                component: Some(EVENT_SOURCE.to_owned()),
                host: Some(self.node.to_owned()),
            }),
            reporting_component: Some(EVENT_SOURCE.to_owned()),
            reporting_instance: Some(self.node.to_owned()),
            first_timestamp: Some(Time(self.now)),
            last_timestamp: Some(Time(self.now)),
            count: Some(1),
            ..Event::default()
        }
    }
}

impl Report {
    /// In this order.
    fn writes(self) -> impl Iterator<Item = Write> {
        let Self { pod, condition, event } = self;
        let event = event.map(|event| Write::Event(Box::new(event)));
        event.into_iter().chain(condition.map(|condition| Write::Condition { pod, condition }))
    }
}

/// Writes what comes, until the agent goes down.
pub(super) async fn write(client: Client, node: String, mut notices: mpsc::Receiver<Notice>) {
    let (mut pending, mut attempts) = (Pending::default(), JoinSet::new());
    loop {
        while attempts.len() < AT_ONCE
            && let Some((uid, write)) = pending.take(Instant::now())
        {
            let client = client.clone();
            attempts.spawn(async move {
                let outcome = attempt(&client, &write).await;
                (uid, write, outcome)
            });
        }
        let next = pending.next_time().filter(|_| attempts.len() < AT_ONCE);
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok((uid, _, Outcome::Done)) => pending.done(&uid, Instant::now()),
                Ok((uid, write, Outcome::Again)) => pending.failed(&uid, write, Instant::now()),
                Err(failure) => std::panic::resume_unwind(failure.into_panic()),
            },
            notice = notices.recv() => {
                let Some(notice) = notice else { return };
                for report in (Stamp { node: &node, now: Timestamp::now() }).reports(notice) {
                    if let Some(uid) = pending.add(report, Instant::now()) {
                        warn!("too many pods wait to be told something; the one with UID {uid} is not told");
                    }
                }
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// How an attempt went.
enum Outcome {
    /// Written, or never to be.
    Done,
    /// The API server may take it later.
    Again,
}

async fn attempt(client: &Client, write: &Write) -> Outcome {
    let (what, pod) = match write {
        Write::Event(event) => {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            let pod = &event.involved_object;
            ("write an Event about", format!("{}/{}", of(&pod.namespace), of(&pod.name)))
        }
        Write::Condition { pod, .. } => ("write a condition of", pod.to_string()),
    };
    let failure = match tokio::time::timeout(WRITTEN_WITHIN, send(client, write)).await {
        Ok(Ok(())) => return Outcome::Done,
        Ok(Err(Error::Api(status))) if is_final(status.code) => {
            // 409: written before, or another pod by now. 404: the pod has gone.
            if !matches!(status.code, 404 | 409) {
                warn!("cannot {what} {pod}: {}", status.message);
            }
            return Outcome::Done;
        }
        Ok(Err(failure)) => causes(&failure),
        Err(_) => "the API server does not answer".to_owned(),
    };
    warn!("cannot {what} {pod}: {failure}; trying again");
    Outcome::Again
}

async fn send(client: &Client, write: &Write) -> Result<(), Error> {
    match write {
        Write::Event(event) => {
            let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
            let events: Api<Event> = Api::namespaced(client.clone(), namespace);
            events.create(&PostParams::default(), event).await.map(drop)
        }
        Write::Condition { pod, condition } => {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
            // With the UID the write is refused when another pod has the name by now.
            let patch = json!({
                "metadata": {"uid": pod.uid},
                "status": {"conditions": [condition]},
            });
            pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
        }
    }
}

/// Whether another try of the same write would be answered the same: its own fault, not the server's.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 429
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gpupool_core::pool::{self, Millis};
    use gpupool_core::sharing::names::UNACCOUNTED;

    use super::*;
    use crate::pod::Rejection;

    fn stamped(notice: Notice) -> Vec<Report> {
        Stamp { node: "node", now: Timestamp::UNIX_EPOCH }.reports(notice)
    }

    fn pod(uid: &str) -> PodRef {
        PodRef { namespace: "team".to_owned(), name: "train".to_owned(), uid: uid.to_owned() }
    }

    /// A report with a condition alone.
    pub(super) fn accepted(uid: &str) -> Report {
        stamped(Notice::Admitted { pod: pod(uid) }).remove(0)
    }

    /// A report with an Event and a condition.
    pub(super) fn refused(uid: &str, number: u32) -> Report {
        let why = Rejection { reason: "Invalid", sentence: format!("reason {number}") };
        stamped(Notice::Rejected { pod: pod(uid), why }).remove(0)
    }

    impl Write {
        pub(super) fn status(&self) -> Option<&str> {
            self.condition("status")
        }
    }

    #[test]
    fn what_the_check_finds_is_an_event_and_no_condition() {
        let sentence = "300 MiB of a card that team/train takes are in no ledger".to_owned();
        let notice = Notice::Found { pod: pod("1"), reason: UNACCOUNTED, sentence: sentence.clone() };
        let reports = stamped(notice);
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].condition, None);
        let event = reports[0].event.clone().unwrap();
        assert_eq!(event.reason.as_deref(), Some(UNACCOUNTED));
        assert_eq!(event.message, Some(sentence));
        assert_eq!(event.metadata.name.as_deref(), Some("train.0"));
    }

    fn ended(cause: Cause, killed: bool) -> Notice {
        let outlived = killed.then_some(Millis(30_000));
        let termination =
            Termination { cause, told_at: pool::Timestamp(7), outlived, card: Some("GPU-1".into()) };
        let beneficiary = Some(PodRef { name: "next".to_owned(), ..pod("2") });
        Notice::Ended { pod: pod("1"), termination, beneficiary, fixed: false }
    }

    /// Of each report: pod, type and reason of the condition, which is the Event's reason too.
    fn told(notice: Notice) -> Vec<(String, String, String)> {
        let told = stamped(notice).into_iter().map(|report| {
            let (condition, event) = (report.condition.unwrap(), report.event.unwrap());
            assert_eq!(condition["reason"].as_str(), event.reason.as_deref());
            assert_eq!(condition["message"].as_str(), event.message.as_deref());
            assert_eq!(condition["status"], "True");
            let text = |field: &str| condition[field].as_str().unwrap().to_owned();
            (report.pod.uid, text("type"), text("reason"))
        });
        told.collect()
    }

    #[test]
    fn every_termination_has_an_event_and_a_condition_with_its_own_reason_and_so_has_the_killing() {
        let by = || pool::PodId::from("2");
        let causes = [
            (Cause::Pool(TerminationReason::IdleRelease { by: by() }), "GPUShareIdleReleased"),
            (Cause::Pool(TerminationReason::CardLost), "GPUShareCardLost"),
            (Cause::Pool(TerminationReason::Stopped), "GPUShareStopped"),
            (Cause::OverLimit("too much".to_owned()), "GPUShareEvicted"),
        ];
        let (ending, killing) = ("Interruption.GPUShareTermination", "Interruption.GPUShareKill");
        let line =
            |uid: &str, type_: &str, reason: &str| (uid.to_owned(), type_.to_owned(), reason.to_owned());
        let killed = line("1", killing, "GPUShareKilled");
        for (cause, reason) in causes {
            let mut expected = vec![line("1", ending, reason)];
            if matches!(cause, Cause::Pool(TerminationReason::IdleRelease { .. })) {
                expected.push(line("2", ending, "GPUShareIdleRelease"));
            }
            assert_eq!(told(ended(cause.clone(), false)), expected);
            assert_eq!(told(ended(cause, true)), std::slice::from_ref(&killed));
        }
        // That one was told in the published words when it began.
        let preempted = Cause::Pool(TerminationReason::Preempted { by: by() });
        assert_eq!(told(ended(preempted, true)), [killed]);
    }

    #[test]
    fn what_is_told_again_after_a_restart_is_the_same_event_and_no_two_others_are() {
        let names = || -> Vec<String> {
            let lost = || Cause::Pool(TerminationReason::CardLost);
            let idle = Cause::Pool(TerminationReason::IdleRelease { by: "2".into() });
            let notices = [ended(lost(), false), ended(lost(), true), ended(idle, false)];
            let reports = notices.into_iter().flat_map(stamped);
            reports.map(|report| report.event.unwrap().metadata.name.unwrap()).collect()
        };
        assert_eq!(names(), names());
        assert_eq!(names().into_iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn only_the_writes_own_fault_ends_it() {
        assert!([400, 403, 404, 409, 422].into_iter().all(is_final));
        assert!(![429, 500, 502, 503, 504].into_iter().any(is_final));
    }
}

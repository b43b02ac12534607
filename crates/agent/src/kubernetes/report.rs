//! What happens to a pod is told where its owner looks: Events and conditions.
//!
//! Writes are made one after the other, each until it is done or can't be done any more. Nobody waits for them.

use std::time::Duration;

use gpupool_core::sharing::names::{
    ACCEPTED_CONDITION, EVENT_SOURCE, PREEMPT, PREEMPTED, RECLAIM_CONDITION, REFUSED,
};
use gpupool_k8s::Backoff;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

use super::outage::causes;
use crate::notice::Notice;
use crate::pod::PodRef;

/// Between the attempts of a write that the API server does not take.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// One thing to write about one pod.
#[derive(Debug)]
struct Report {
    pod: PodRef,
    condition: Option<Value>,
    event: Option<(&'static str, String)>,
    /// What sets its Event apart from others about the pod.
    number: u128,
}

impl Notice {
    fn reports(self, now: &str, number: u128) -> Vec<Report> {
        match self {
            Self::Preempted { victim, beneficiary, at } => {
                let of_victim = format!("GPU is preempted by {}.", beneficiary.name);
                let of_beneficiary = format!("GPU is preempted from {}.", victim.name);
                // One may take its card from several: the victim tells these apart.
                let of_both = u128::from(at.0) << 32 | u128::from(crc32fast::hash(victim.uid.as_bytes()));
                vec![
                    Report::reclaim(victim, PREEMPTED, of_victim, now, of_both),
                    Report::reclaim(beneficiary, PREEMPT, of_beneficiary, now, of_both),
                ]
            }
            Self::Rejected { pod, why } => vec![Report {
                pod,
                condition: Some(condition(ACCEPTED_CONDITION, "False", why.reason, &why.sentence, now)),
                event: Some((REFUSED, why.sentence)),
                number,
            }],
            Self::Admitted { pod } => {
                let sentence = "the pod has its place in the node's pool.";
                let condition = condition(ACCEPTED_CONDITION, "True", "Accepted", sentence, now);
                vec![Report { pod, condition: Some(condition), event: None, number }]
            }
            Self::Found { pod, reason, sentence } => {
                vec![Report { pod, condition: None, event: Some((reason, sentence)), number }]
            }
        }
    }
}

impl Report {
    fn reclaim(pod: PodRef, reason: &'static str, message: String, now: &str, number: u128) -> Self {
        let condition = condition(RECLAIM_CONDITION, "True", reason, &message, now);
        Self { pod, condition: Some(condition), event: Some((reason, message)), number }
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    })
}

/// Writes what comes, until the agent goes down.
pub(super) async fn write(client: Client, node: String, mut notices: mpsc::UnboundedReceiver<Notice>) {
    let reporter = Reporter { client, node };
    while let Some(notice) = notices.recv().await {
        // The page shows whole seconds, as Kubernetes writes all of its times.
        let now = Timestamp::now();
        let written = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let number = u128::try_from(now.as_nanosecond()).unwrap_or_default();
        for report in notice.reports(&written, number) {
            if let Some((reason, message)) = &report.event {
                let event = reporter.event_of(&report, reason, message, now);
                reporter.event(&report.pod, &event).await;
            }
            if let Some(condition) = &report.condition {
                reporter.condition(&report.pod, condition).await;
            }
        }
    }
}

struct Reporter {
    client: Client,
    node: String,
}

impl Reporter {
    async fn event(&self, pod: &PodRef, event: &Event) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &pod.namespace);
        self.until_done(pod, "write an Event about", || async {
            events.create(&PostParams::default(), event).await.map(drop)
        })
        .await;
    }

    fn event_of(&self, report: &Report, reason: &str, message: &str, now: Timestamp) -> Event {
        let pod = &report.pod;
        Event {
            metadata: ObjectMeta {
                // The same name when the write is repeated, because its answer was lost: no second Event.
                name: Some(format!("{}.{:x}", pod.name, report.number)),
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
            message: Some(message.to_owned()),
            source: Some(EventSource {
                component: Some(EVENT_SOURCE.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(EVENT_SOURCE.to_owned()),
            reporting_instance: Some(self.node.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
    }

    async fn condition(&self, pod: &PodRef, condition: &Value) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        // With the UID the write is refused when another pod has the name by now.
        let patch = json!({
            "metadata": {"uid": pod.uid},
            "status": {"conditions": [condition]},
        });
        self.until_done(pod, "write a condition of", || async {
            let params = PatchParams::default();
            pods.patch_status(&pod.name, &params, &Patch::Strategic(&patch)).await.map(drop)
        })
        .await;
    }

    /// Tries until the API server has taken it, or says that it never will.
    async fn until_done<F: Future<Output = Result<(), Error>>>(
        &self,
        pod: &PodRef,
        what: &str,
        mut attempt: impl FnMut() -> F,
    ) {
        for failures in 1_u32.. {
            match attempt().await {
                Ok(()) => return,
                Err(Error::Api(status)) if is_final(status.code) => {
                    // 409: written before, or another pod by now. 404: the pod has gone.
                    if !matches!(status.code, 404 | 409) {
                        warn!("cannot {what} {pod}: {}", status.message);
                    }
                    return;
                }
                Err(failure) => warn!("cannot {what} {pod}: {}; trying again", causes(&failure)),
            }
            tokio::time::sleep(BACKOFF.delay(failures)).await;
        }
    }
}

/// Whether another try of the same write would be answered the same: its own fault, not the server's.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 429
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_check_finds_is_an_event_and_no_condition() {
        let pod = PodRef { namespace: "team".to_owned(), name: "train".to_owned(), uid: "1".to_owned() };
        let sentence = "team/train takes 300 MiB of a card and holds no lease".to_owned();
        let notice = Notice::Found { pod, reason: "GPUShareEvicted", sentence: sentence.clone() };
        let reports = notice.reports("2026-01-01T00:00:00Z", 1);
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].condition, None);
        assert_eq!(reports[0].event, Some(("GPUShareEvicted", sentence)));
    }
}

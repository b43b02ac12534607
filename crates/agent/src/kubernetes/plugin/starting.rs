//! Before a container starts: its pod must have its place in the pool.
//!
//! Under `static` this is where a pod gets its card when no scheduler extender has chosen one. The kubelet asks with
//! device tokens only; whose they are, it says itself over its list of pod resources. A refusal shows at the pod, and
//! the kubelet asks again.

use std::time::Duration;

use gpupool_core::pool::{CardUuid, Policy};
use gpupool_core::sharing::names::CARD_ANNOTATION;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;
use tracing::info;

use super::kubelet::Kubelet;
use crate::event::AgentEvent;
use crate::kubernetes::node::Known;
use crate::kubernetes::outage::causes;
use crate::kubernetes::pod_watch::SharingPods;
use crate::pod::PodOnNode;

/// How long the API server may take to answer here.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the say before containers of one resource start.
#[derive(Clone)]
pub(super) struct Starting {
    /// The resource whose tokens the kubelet names.
    pub(super) resource: &'static str,
    pub(super) kubelet: Kubelet,
    pub(super) client: Client,
    /// The name of this node.
    pub(super) node: String,
    pub(super) seen: SharingPods,
    pub(super) policy: watch::Receiver<Known>,
    pub(super) task: mpsc::Sender<AgentEvent>,
}

impl Starting {
    /// Whether the container that has these tokens may start.
    pub(super) async fn check(&self, ids: &[String]) -> Result<(), Status> {
        match self.pod_of(ids).await {
            Ok(pod) => self.place(pod).await.map_err(Status::failed_precondition),
            Err(sentence) if *self.policy.borrow() == Known::Policy(Some(Policy::Static)) => {
                Err(Status::unavailable(sentence))
            }
            // A pool finds a card for whoever comes, as soon as the watch has told of it.
            Err(sentence) => {
                info!("{sentence}; its container starts all the same");
                Ok(())
            }
        }
    }

    /// The pod that has these tokens, as the API server has it.
    async fn pod_of(&self, ids: &[String]) -> Result<PodOnNode, String> {
        let (namespace, name) = self.owner_of(ids).await?;
        if let Some(pod) = self.seen.get(&namespace, &name) {
            return Ok(pod);
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let pod = match tokio::time::timeout(PATIENCE, pods.get(&name)).await {
            Ok(Ok(pod)) => pod,
            Ok(Err(failure)) => {
                return Err(format!("cannot read pod {namespace}/{name}: {}", causes(&failure)));
            }
            Err(_) => {
                return Err(format!("cannot read pod {namespace}/{name}: the API server does not answer"));
            }
        };
        PodOnNode::read(&pod, &self.node)
            .ok_or_else(|| format!("pod {namespace}/{name} asks for no share of a card of this node"))
    }

    async fn owner_of(&self, ids: &[String]) -> Result<(String, String), String> {
        let list = self.kubelet.pod_resources().await.map_err(|status| {
            format!("cannot read from the kubelet whose container starts: {}", status.message())
        })?;
        let owner = list.pods.iter().find(|pod| {
            let devices = pod.containers.iter().flat_map(|container| &container.devices);
            let mut ours = devices.filter(|devices| devices.resource_name == self.resource);
            ours.any(|devices| devices.ids.iter().any(|id| ids.contains(id)))
        });
        let owner = owner.ok_or("the kubelet does not say whose container starts")?;
        Ok((owner.namespace.clone(), owner.name.clone()))
    }

    /// Gets the pod its place, and writes down the card where it has one of its own.
    async fn place(&self, pod: PodOnNode) -> Result<(), String> {
        let (reference, annotated) = (pod.reference.clone(), pod.card.clone());
        let (answer, place) = oneshot::channel();
        let asked = self.task.send(AgentEvent::Starting { pod, answer }).await;
        let (Ok(()), Ok(place)) = (asked, place.await) else {
            return Err("the agent is going down".to_owned());
        };
        match place.map_err(|why| why.sentence)? {
            Some(card) if annotated.as_ref() != Some(&card) => {
                self.annotate(&reference.namespace, &reference.name, &reference.uid, &card).await
            }
            _ => Ok(()),
        }
    }

    async fn annotate(&self, namespace: &str, name: &str, uid: &str, card: &CardUuid) -> Result<(), String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({"metadata": {"uid": uid, "annotations": {(CARD_ANNOTATION): card.as_str()}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let written = tokio::time::timeout(PATIENCE, pods.patch(name, &params, &patch)).await;
        let failure = match written {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(failure)) => causes(&failure),
            Err(_) => "the API server does not answer".to_owned(),
        };
        Err(format!("cannot write card {card} on pod {namespace}/{name}: {failure}"))
    }
}

//! Binding a pod to its node, with its card where it has one.
//!
//! Only the scheduler gets this far, and it has held the node against all that it looks at; but an answer binds for good,
//! so what is bound is read anew here: the pod, and the node that was offered for it.

use std::collections::BTreeMap;

use gpupool_core::placement::{Demand, PlacementPod, Unfit};
use gpupool_core::sharing::Refusal;
use gpupool_core::sharing::names::CARD_ANNOTATION;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use kube::api::{Api, ObjectMeta, PostParams};

use super::offers::NotOffered;
use super::wire::BindArguments;
use super::{Extender, demand, node_taints};
use crate::api_server::bounded;

/// Why a pod was not bound. The scheduler tries again, and shows the text until then.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    #[error("{0}")]
    NotOffered(#[from] NotOffered),
    #[error("cannot read the {what}: {source}")]
    Read { what: &'static str, source: kube::Error },
    #[error("the pod asks for no share of a card and for no whole one, and is not for gpupool to bind")]
    AsksForNothing,
    #[error("node {node} has the taint {taint}, which the pod does not tolerate")]
    Tainted { node: String, taint: String },
    #[error("the pod was replaced by another of the same name")]
    Replaced,
    #[error("the pod is bound to node {0} already")]
    Bound(String),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("node {node} does not fit any more: {unfit}")]
    Unfit { node: String, unfit: Unfit },
    #[error("the API server did not bind the pod: {0}")]
    NotBound(kube::Error),
}

/// Binds the pod. The card counts from the moment it is picked; where the binding is refused, it is free again.
pub(super) async fn bind(extender: &Extender, arguments: &BindArguments) -> Result<(), BindError> {
    let _one_at_a_time = extender.begin_binding(&arguments.uid, &arguments.node)?;
    let client = &extender.shared.client;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &arguments.namespace);
    let nodes: Api<Node> = Api::all(client.clone());
    let (pod, node) = tokio::join!(bounded(pods.get(&arguments.name)), bounded(nodes.get(&arguments.node)));
    let pod = pod.map_err(|source| BindError::Read { what: "pod", source })?;
    let node = node.map_err(|source| BindError::Read { what: "node", source })?;
    if pod.metadata.uid.as_deref() != Some(&arguments.uid) {
        return Err(BindError::Replaced);
    }
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Err(BindError::Bound(node));
    }
    let demand = demand::of(&pod)?;
    if demand == Demand::None {
        return Err(BindError::AsksForNothing);
    }
    if let Some(taint) = node_taints::untolerated(&node, &pod) {
        return Err(BindError::Tainted { node: arguments.node.clone(), taint });
    }
    let card = {
        let mut cluster = extender.cluster();
        cluster.sought(&arguments.uid);
        let card = cluster
            .card(demand, &arguments.node)
            .map_err(|unfit| BindError::Unfit { node: arguments.node.clone(), unfit })?;
        cluster.assume(
            &arguments.uid,
            PlacementPod { node: arguments.node.clone(), demand, card: card.clone() },
        );
        card
    };
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(arguments.name.clone()),
            namespace: Some(arguments.namespace.clone()),
            uid: Some(arguments.uid.clone()),
            annotations: card.map(|card| BTreeMap::from([(CARD_ANNOTATION.to_owned(), card.to_string())])),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(arguments.node.clone()),
            ..ObjectReference::default()
        },
    };
    let parameters = PostParams::default();
    let answer =
        pods.create_subresource::<_, serde_json::Value>("binding", &arguments.name, &parameters, &binding);
    if let Err(failure) = bounded(answer).await {
        // Only a refusal is sure not to have bound it. After a broken connection the card stays reserved until the pod is
        // seen, or until the scheduler comes with it again.
        if matches!(failure, kube::Error::Api(_)) {
            extender.cluster().sought(&arguments.uid);
        }
        return Err(BindError::NotBound(failure));
    }
    Ok(())
}

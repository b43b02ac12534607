//! Binding a pod to its node, with its card where it has one.

use std::collections::BTreeMap;

use gpupool_core::placement::{PlacementPod, Unfit};
use gpupool_core::sharing::Refusal;
use gpupool_core::sharing::names::CARD_ANNOTATION;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::api::{Api, ObjectMeta, PostParams};

use super::wire::BindArguments;
use super::{Extender, demand};
use crate::api_server::bounded;

/// Why a pod was not bound. The scheduler tries again, and shows the text until then.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    #[error("cannot read the pod: {0}")]
    Read(kube::Error),
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
pub(super) async fn bind(extender: &Extender, asked: &BindArguments) -> Result<(), BindError> {
    let pods: Api<Pod> = Api::namespaced(extender.shared.client.clone(), &asked.namespace);
    let pod = bounded(pods.get(&asked.name)).await.map_err(BindError::Read)?;
    if pod.metadata.uid.as_deref() != Some(&asked.uid) {
        return Err(BindError::Replaced);
    }
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Err(BindError::Bound(node));
    }
    let demand = demand::of(&pod)?;
    let card = {
        let mut cluster = extender.cluster();
        cluster.sought(&asked.uid);
        let card = cluster
            .card(demand, &asked.node)
            .map_err(|unfit| BindError::Unfit { node: asked.node.clone(), unfit })?;
        cluster.assume(&asked.uid, PlacementPod { node: asked.node.clone(), demand, card: card.clone() });
        card
    };
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(asked.name.clone()),
            namespace: Some(asked.namespace.clone()),
            uid: Some(asked.uid.clone()),
            annotations: card.map(|card| BTreeMap::from([(CARD_ANNOTATION.to_owned(), card.to_string())])),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(asked.node.clone()),
            ..ObjectReference::default()
        },
    };
    let parameters = PostParams::default();
    let answer =
        pods.create_subresource::<_, serde_json::Value>("binding", &asked.name, &parameters, &binding);
    if let Err(failure) = bounded(answer).await {
        // Only a refusal is sure not to have bound it. After a broken connection the pick stands until the pod is
        // seen, or until the scheduler comes with it again.
        if matches!(failure, kube::Error::Api(_)) {
            extender.cluster().sought(&asked.uid);
        }
        return Err(BindError::NotBound(failure));
    }
    Ok(())
}

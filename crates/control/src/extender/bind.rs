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
pub(super) async fn bind(extender: &Extender, arguments: &BindArguments) -> Result<(), BindError> {
    let pods: Api<Pod> = Api::namespaced(extender.shared.client.clone(), &arguments.namespace);
    let pod = bounded(pods.get(&arguments.name)).await.map_err(BindError::Read)?;
    if pod.metadata.uid.as_deref() != Some(&arguments.uid) {
        return Err(BindError::Replaced);
    }
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Err(BindError::Bound(node));
    }
    let demand = demand::of(&pod)?;
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

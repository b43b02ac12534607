//! Follows the cluster: what nodes and pods are, as far as placement depends on them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use gpupool_core::placement::{Card, PlacementNode, PlacementPod};
use gpupool_core::pool::CardUuid;
use gpupool_core::sharing::names::{POLICY_IN_FORCE_LABEL, POLICY_LABEL, POOL_CARDS_ANNOTATION};
use gpupool_core::sharing::{self, Policy, PoolCard};
use gpupool_k8s::pod::{self, has_finished};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tracing::warn;

use super::{Extender, demand};
use crate::api_server::WatchBackoff;

/// Never ends.
pub(super) async fn follow(extender: Extender) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(extender.shared.client.clone());
    let pods: Api<Pod> = Api::all(extender.shared.client.clone());
    // Pods without the label ask for no share, or were refused for want of it.
    let sharing = watcher::Config::default().labels(POLICY_LABEL);
    let mut nodes = watcher(nodes, watcher::Config::default()).backoff(WatchBackoff::default()).boxed();
    let mut pods = watcher(pods, sharing).backoff(WatchBackoff::default()).boxed();
    let mut listed = OpenListing::default();
    loop {
        tokio::select! {
            Some(event) = nodes.next() => match event {
                Ok(event) => take_node(&extender, &mut listed, event),
                Err(failure) => warn!(%failure, "the extender cannot watch nodes; trying again"),
            },
            Some(event) = pods.next() => match event {
                Ok(event) => take_pod(&extender, &mut listed, event),
                Err(failure) => warn!(%failure, "the extender cannot watch pods; trying again"),
            },
            else => return,
        }
    }
}

/// Names and uids of listings that are not complete yet.
#[derive(Default)]
struct OpenListing {
    nodes: HashSet<String>,
    pods: HashSet<String>,
}

fn take_node(extender: &Extender, listed: &mut OpenListing, event: Event<PartialObjectMeta<Node>>) {
    let mut cluster = extender.cluster();
    match event {
        Event::Init => listed.nodes.clear(),
        Event::InitApply(node) => {
            let name = node.metadata.name.clone().unwrap_or_default();
            cluster.node_seen(&name, placement_node(&node));
            listed.nodes.insert(name);
        }
        Event::InitDone => {
            cluster.keep_only(Some(&std::mem::take(&mut listed.nodes)), None);
            extender.shared.nodes_known.store(true, Ordering::Release);
        }
        Event::Apply(node) => {
            cluster.node_seen(node.metadata.name.as_deref().unwrap_or_default(), placement_node(&node));
        }
        Event::Delete(node) => cluster.node_gone(node.metadata.name.as_deref().unwrap_or_default()),
    }
}

fn take_pod(extender: &Extender, listed: &mut OpenListing, event: Event<Pod>) {
    let mut cluster = extender.cluster();
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    match event {
        Event::Init => listed.pods.clear(),
        Event::InitApply(pod) => {
            listed.pods.insert(uid(&pod));
            observe_pod(&mut cluster, &uid(&pod), &pod);
        }
        Event::InitDone => {
            cluster.keep_only(None, Some(&std::mem::take(&mut listed.pods)));
            extender.shared.pods_known.store(true, Ordering::Release);
        }
        Event::Apply(pod) => observe_pod(&mut cluster, &uid(&pod), &pod),
        Event::Delete(pod) => cluster.pod_gone(&uid(&pod)),
    }
}

fn observe_pod(cluster: &mut gpupool_core::placement::Cluster, uid: &str, pod: &Pod) {
    if has_finished(pod) {
        cluster.pod_gone(uid);
        return;
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let placed = node.and_then(|node| {
        let demand = demand::of(pod).ok()?;
        Some(PlacementPod { node, demand, card: pod::card(pod) })
    });
    cluster.pod_seen(uid, placed);
}

fn placement_node(node: &PartialObjectMeta<Node>) -> PlacementNode {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(POLICY_IN_FORCE_LABEL));
    let annotations = node.metadata.annotations.as_ref();
    let cards = annotations.and_then(|annotations| annotations.get(POOL_CARDS_ANNOTATION));
    let cards = cards.and_then(|text| match sharing::cards::parse(text) {
        Ok(cards) => Some(cards.into_iter().map(card).collect()),
        Err(failure) => {
            warn!(node = node.metadata.name.as_deref().unwrap_or_default(), %failure);
            None
        }
    });
    PlacementNode { policy: Policy::in_force(label.map(String::as_str)), cards }
}

fn card(card: PoolCard) -> Card {
    Card { uuid: CardUuid::from(card.uuid), index: card.index, healthy: card.healthy }
}

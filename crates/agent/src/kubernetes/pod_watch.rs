//! This node's pods, watched. While the API server is away, everything stays as it was.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::outage::Outage;
use super::pod_object::{gone, not_admitted};
use crate::event::AgentEvent;
use crate::pod::{PodNews, PodOnNode};

/// The selector of a node's pods.
pub(super) fn on_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// The pods that share, by namespace and name, as the watch saw them last.
#[derive(Debug, Clone, Default)]
pub(super) struct SharingPods(Arc<Mutex<BTreeMap<(String, String), PodOnNode>>>);

impl SharingPods {
    /// A pod by its names.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<PodOnNode> {
        self.with(|pods| pods.get(&(namespace.to_owned(), name.to_owned())).cloned())
    }

    fn put(&self, pod: PodOnNode) {
        let names = (pod.reference.namespace.clone(), pod.reference.name.clone());
        self.with(|pods| pods.insert(names, pod));
    }

    fn remove(&self, pod: &Pod) {
        let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        self.with(|pods| pods.remove(&(namespace.unwrap_or_default(), name.unwrap_or_default())));
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<(String, String), PodOnNode>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells the pool's task of this node's pods until the agent goes down.
pub(super) async fn follow(client: Client, node: String, seen: SharingPods, task: mpsc::Sender<AgentEvent>) {
    let config = watcher::Config::default().fields(&on_node(&node));
    let mut events = pin!(watcher(Api::<Pod>::all(client), config).default_backoff());
    let mut outage = Outage::of("this node's pods");
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let news = match event {
            Ok(event) => {
                outage.is_over();
                if let Event::Apply(pod) | Event::InitApply(pod) = &event
                    && let Some(news) = not_admitted(pod, &node)
                    && task.send(AgentEvent::Pods(news)).await.is_err()
                {
                    return;
                }
                news(event, &node, &mut listed, &seen)
            }
            Err(failure) => {
                outage.begins(&failure);
                None
            }
        };
        if let Some(news) = news
            && task.send(AgentEvent::Pods(news)).await.is_err()
        {
            return;
        }
    }
}

fn news(event: Event<Pod>, node: &str, listed: &mut Vec<PodOnNode>, seen: &SharingPods) -> Option<PodNews> {
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(pod) => {
            listed.extend(PodOnNode::read(&pod, node));
            None
        }
        Event::InitDone => {
            seen.with(BTreeMap::clear);
            let pods = std::mem::take(listed);
            pods.iter().cloned().for_each(|pod| seen.put(pod));
            Some(PodNews::Listed(pods))
        }
        Event::Apply(pod) => {
            if let Some(pod) = PodOnNode::read(&pod, node) {
                seen.put(pod.clone());
                Some(PodNews::Present(pod))
            } else {
                seen.remove(&pod);
                gone(&pod, node)
            }
        }
        Event::Delete(pod) => {
            seen.remove(&pod);
            gone(&pod, node)
        }
    }
}

//! The API server is asked for the pods of programs that wait to be known.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tracing::warn;

use super::pod_watch::on_node;
use crate::event::AgentEvent;
use crate::inquiry::{Inbox, Inquiry};
use crate::pod::{PodNews, PodOnNode};

/// Between two lists: however many strangers call, the API server is not flooded.
const PAUSE: Duration = Duration::from_secs(1);

impl Inbox {
    /// Answers until the agent goes down. Everybody who asks meanwhile is answered by the same list.
    pub(super) async fn answer(mut self, client: Client, node: String, task: mpsc::Sender<AgentEvent>) {
        let pods: Api<Pod> = Api::all(client);
        let on_node = ListParams::default().fields(&on_node(&node));
        let mut open: Vec<Inquiry> = Vec::new();
        loop {
            if open.is_empty() {
                let Some(first) = self.0.recv().await else { return };
                open.push(first);
            }
            while let Ok(another) = self.0.try_recv() {
                open.push(another);
            }
            open.retain(|inquiry| !inquiry.answered.is_closed());
            match pods.list(&on_node).await {
                Ok(list) => {
                    let asked = |pod: &PodOnNode| open.iter().any(|inquiry| inquiry.pod == pod.id);
                    let pods = list.items.iter().filter_map(|pod| PodOnNode::read(pod, &node));
                    for pod in pods.filter(asked) {
                        if task.send(AgentEvent::Pods(PodNews::Present(pod))).await.is_err() {
                            return;
                        }
                    }
                    for inquiry in open.drain(..) {
                        // The program may have hung up.
                        let _ = inquiry.answered.send(());
                    }
                }
                Err(failure) => warn!("cannot ask the API server for this node's pods: {failure}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

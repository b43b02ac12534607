//! A program calls whose pod nobody has told of yet: the watch lags behind. The API server is asked, and the program
//! waits a moment.

use std::time::Duration;

use gpupool_core::pool::PodId;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::{mpsc, oneshot};

use super::pod_watch::on_node;
use crate::event::AgentEvent;
use crate::log::say;
use crate::pod::{PodNews, PodOnNode};

/// How long a program waits at most. The shim waits longer for its welcome, and so reads what it is refused with.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two lists: however many strangers call, the API server is not flooded.
const PAUSE: Duration = Duration::from_secs(1);

/// Inquiries that may wait.
const QUEUE: usize = 64;

struct Inquiry {
    pod: PodId,
    answered: oneshot::Sender<()>,
}

/// Where to ask for a pod.
#[derive(Debug, Clone)]
pub(crate) struct Inquiries(mpsc::Sender<Inquiry>);

/// The other end.
pub(super) struct Inbox(mpsc::Receiver<Inquiry>);

/// Both ends.
pub(super) fn channel() -> (Inquiries, Inbox) {
    let (ask, asked) = mpsc::channel(QUEUE);
    (Inquiries(ask), Inbox(asked))
}

impl Inquiries {
    /// Waits until the pool's task has heard of the pod, or nobody can say anything about it.
    pub(crate) async fn ask_for(&self, pod: PodId) {
        let (answered, answer) = oneshot::channel();
        let asking = async {
            if self.0.send(Inquiry { pod, answered }).await.is_ok() {
                // Without an answer the pool's task decides by what it knows.
                let _ = answer.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, asking).await;
    }
}

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
                    for pod in list.items.iter().filter_map(PodOnNode::read).filter(asked) {
                        if task.send(AgentEvent::Pods(PodNews::Present(pod))).await.is_err() {
                            return;
                        }
                    }
                    for inquiry in open.drain(..) {
                        // The program may have hung up.
                        let _ = inquiry.answered.send(());
                    }
                }
                Err(failure) => say(&format!("cannot ask the API server for this node's pods: {failure}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

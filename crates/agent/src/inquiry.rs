//! A program calls whose pod nobody has told of yet: the watch lags behind. The API server is asked, and the program
//! waits a moment. Here is the way to whoever asks it.

use std::time::Duration;

use gpupool_core::pool::PodId;
use tokio::sync::{mpsc, oneshot};

/// How long a program waits at most. The shim waits longer for its welcome, and so reads what it is refused with.
const PATIENCE: Duration = Duration::from_secs(5);

/// Inquiries that may wait.
const QUEUE: usize = 64;

/// A pod that somebody waits for.
pub(crate) struct Inquiry {
    /// Which.
    pub(crate) pod: PodId,
    /// Told once the pool's task has heard of it, or nobody can say anything about it.
    pub(crate) answered: oneshot::Sender<()>,
}

/// Where to ask for a pod.
#[derive(Debug, Clone)]
pub(crate) struct Inquiries(mpsc::Sender<Inquiry>);

/// The other end.
pub(crate) struct Inbox(pub(crate) mpsc::Receiver<Inquiry>);

/// Both ends.
pub(crate) fn channel() -> (Inquiries, Inbox) {
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

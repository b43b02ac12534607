//! What the pool's task is told by the tasks around it. Who tells it does not know the task, and the task does not
//! know who told it.

use std::sync::Arc;

use gpupool_core::pool::{self, PodId, Policy, Qos};
use gpupool_wire::CardUuid;
use gpupool_wire::message::Hello;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::admin_api::{Reply, Request};
use crate::core_limit::meter::Shares;
use crate::environment::{PeerSocket, ProcessHandle};
use crate::metrics::Scrape;
use crate::pod::{PodNews, PodOnNode, Rejection};
use crate::usage_audit::observe::Observation;

/// A connection for as long as the agent lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// One thing that happened.
#[derive(Debug)]
pub(crate) enum AgentEvent {
    /// Somebody connected.
    Connected {
        /// The agent's end.
        socket: Arc<dyn PeerSocket>,
        /// The caller's user.
        user: u32,
        /// The caller.
        held: Box<dyn ProcessHandle>,
        /// How it was taken in, or nothing when there are too many.
        accepted: oneshot::Sender<Option<Accepted>>,
    },
    /// A program says something.
    Frame {
        /// On which connection.
        from: ConnectionId,
        /// What.
        frame: Frame,
        /// Told when the next frame may come.
        done: oneshot::Sender<()>,
    },
    /// A person or tool asks.
    Request {
        /// On which connection.
        from: ConnectionId,
        /// What.
        request: Request,
        /// Where the answer goes.
        answer: oneshot::Sender<Reply>,
    },
    /// Somebody wants every status from now on.
    Watch {
        /// Where the packets of each status appear.
        answer: oneshot::Sender<watch::Receiver<Arc<Vec<Vec<u8>>>>>,
    },
    /// A connection brought something that is no message, or came out of turn. It is cut.
    Rubbish {
        /// Which connection.
        from: ConnectionId,
    },
    /// A connection is over: nothing more comes from it, and nothing can be sent there.
    Over {
        /// Which.
        from: ConnectionId,
        /// Told once the agent's end is not used any more, so that it can be closed.
        let_go: oneshot::Sender<()>,
    },
    /// The agent's end of a connection that was over is closed, with all that lay unread in it.
    Closed {
        /// Which.
        from: ConnectionId,
    },
    /// NVML was asked.
    Looked(Observation),
    /// NVML was asked for the shares of pods with a core limit.
    Metered(Vec<Shares>),
    /// The API server says something about this node's pods.
    Pods(PodNews),
    /// A container of a pod is about to start.
    Starting {
        /// Which pod.
        pod: PodOnNode,
        /// Told once the pod has its place: the card that it is fixed to, if it is to one.
        answer: oneshot::Sender<Result<Option<pool::CardUuid>, Rejection>>,
    },
    /// What holds on this node of a cluster.
    Sharing {
        /// The policy in force; `None`: cards are not shared.
        policy: Option<Policy>,
        /// Its quality of service; `None`: as before.
        qos: Option<Qos>,
    },
    /// Does the task still answer?
    Alive {
        /// Told at once.
        answer: oneshot::Sender<()>,
    },
    /// Somebody reads the metrics.
    Scrape {
        /// Where they go.
        answer: oneshot::Sender<Scrape>,
    },
}

/// A connection that was taken in.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Its number.
    pub(crate) id: ConnectionId,
    /// Taken by those of its pod's or user's connections that wait for room in the inbox.
    pub(crate) turns: Arc<Semaphore>,
    /// The caller's pod, where nothing is known about it yet but its name.
    pub(crate) unheard_of: Option<PodId>,
    /// Whether the caller may ask what people ask: programs in a cluster's pods may not.
    pub(crate) may_ask: bool,
}

/// A program's words.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Frame {
    /// It introduces itself.
    Hello(Hello),
    /// It wants a card.
    Acquire(CardUuid),
    /// It needs none any more.
    Release,
    /// It speaks these versions of the protocol, from the oldest to the newest, and this agent none of them.
    Foreign(u16, u16),
}

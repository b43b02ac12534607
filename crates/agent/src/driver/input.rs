//! What the driver is told by the tasks around it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpupool_wire::CardUuid;
use gpupool_wire::message::Hello;
use tokio::sync::{oneshot, watch};
use tokio_seqpacket::UnixSeqpacket;

use super::ConnectionId;
use crate::accounting::observe::Observation;
use crate::control::{Reply, Request};
use crate::core_limit::meter::Shares;
use crate::metrics::Scrape;
use crate::peer::Held;

/// One thing that happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// Somebody connected.
    Connected {
        /// The agent's end.
        socket: Arc<UnixSeqpacket>,
        /// The caller's user.
        user: u32,
        /// The caller.
        held: Held,
        /// The connection's number, or nothing when there are too many.
        accepted: oneshot::Sender<Option<ConnectionId>>,
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
    /// A connection is over.
    Closed {
        /// Which.
        from: ConnectionId,
    },
    /// NVML was asked.
    Looked(Observation),
    /// NVML was asked for the shares of pods with a core limit.
    Metered(Vec<Shares>),
    /// Somebody reads the metrics.
    Scrape {
        /// Where they go.
        answer: oneshot::Sender<Scrape>,
    },
}

/// A program's words.
#[derive(Debug)]
pub(crate) enum Frame {
    /// It introduces itself, perhaps with the descriptor of its ledger.
    Hello(Hello, Option<OwnedFd>),
    /// It wants a card.
    Acquire(CardUuid),
    /// It needs none any more.
    Release,
}

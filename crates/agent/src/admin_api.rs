//! What people and tools say to the agent, and what it answers: JSON in control packets on the agent's socket.
//!
//! A text travels in pieces: each packet is the frame's header, one byte that says whether more follows, and a piece,
//! in packets of at most [`LONGEST_PACKET`] bytes from the agent and
//! [`MAX_FRAME`](gpupool_wire::message::MAX_FRAME) bytes to it. `docs/status-schema.md` describes [`Status`] for programs that read it.

pub mod client;
mod status;

use gpupool_core::pool::Policy;
use gpupool_core::share::Share;
use gpupool_wire::message::{FrameKind, Header};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes as _;

pub use crate::cards::SimulatedDriver;
pub use status::{
    CardStatus, EndingStatus, HeldBackStatus, Hold, HoldStatus, LeaseStatus, NotHeldStatus, PodStatus,
    QosStatus, QueueStatus, Status, StrangerStatus, TerminationStatus, WhyHeldBack, WhyNotHeld,
};

/// What stands before a piece: the header and the byte that says whether more follows.
const BEFORE: usize = size_of::<Header>() + 1;

/// Longest packet from the agent, in bytes.
pub const LONGEST_PACKET: usize = 60 * 1024;

/// Longest request that the agent puts together, in bytes. Real ones have some hundred.
pub const LONGEST_REQUEST: usize = 60 * 1024;

/// A request to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// The caller is a `gpupool run`: it and its descendants are a pod from now on.
    Register(Register),
    /// How things stand.
    Status {},
    /// How things stand, now and after every change, until the caller hangs up.
    Watch {},
    /// End a pod: SIGTERM to its processes, SIGKILL after the grace. Answered once it is gone.
    Stop {
        /// The pod's name.
        name: String,
    },
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Register {
    /// The pod's name: 1 to 253 bytes without control characters, unique on the node.
    pub name: String,
    /// Of a card's computing time.
    pub core: Share,
    /// Of a card's memory.
    pub memory: Share,
    /// Higher goes first in the queue.
    pub priority: i32,
}

/// An answer of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "camelCase")]
pub enum Reply {
    /// The pod exists.
    Registered(Registered),
    /// How things stand.
    Status(Box<Status>),
    /// The pod is gone.
    Stopped(Stopped),
    /// No.
    Refused(RefusedReply),
}

/// What a command needs to find the cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// Set when the agent's cards are simulated.
    pub simulated: Option<SimulatedDriver>,
}

/// How a pod was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// Processes that were told to terminate.
    pub terminated: u32,
    /// Those of them that had to be killed when the grace was over.
    pub killed: u32,
}

/// Why the agent says no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReply {
    /// The reason as a word that never changes.
    pub reason: RefusalReason,
    /// The sentence for people.
    pub sentence: String,
}

/// The reasons for which a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalReason {
    /// The requests of all pods would exceed the cards.
    NoRoom,
    /// The name is taken, or is no name.
    Name,
    /// No pod of that name.
    UnknownPod,
    /// The pod belongs to another user.
    NotYours,
    /// The request could not be read.
    Malformed,
    /// Anything else; the sentence says it.
    Other,
}

/// A policy as users write it.
pub(crate) const fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::SharePool => "share-pool",
        Policy::Static => "static",
    }
}

/// The packets that carry an answer.
pub fn reply_packets(reply: &Reply) -> serde_json::Result<Vec<Vec<u8>>> {
    packets(reply, LONGEST_PACKET)
}

/// The packets that carry a request.
pub fn request_packets(request: &Request) -> serde_json::Result<Vec<Vec<u8>>> {
    packets(request, gpupool_wire::message::MAX_FRAME)
}

fn packets<T: Serialize>(value: &T, longest: usize) -> serde_json::Result<Vec<Vec<u8>>> {
    let text = serde_json::to_vec(value)?;
    let pieces: Vec<&[u8]> = text.chunks(longest - BEFORE).collect();
    let last = pieces.len().saturating_sub(1);
    let packet = |(number, piece): (usize, &&[u8])| {
        let mut packet = Vec::with_capacity(BEFORE + piece.len());
        packet.extend_from_slice(Header::new(FrameKind::Control).as_bytes());
        packet.push(u8::from(number < last));
        packet.extend_from_slice(piece);
        packet
    };
    Ok(pieces.iter().enumerate().map(packet).collect())
}

/// Puts a text together from the bodies of its packets.
#[derive(Debug, Default)]
pub struct Assembler {
    text: Vec<u8>,
}

/// What a packet's body did.
#[derive(Debug, PartialEq, Eq)]
pub enum Fragment {
    /// More must follow.
    More,
    /// The text is complete.
    Whole(Vec<u8>),
    /// Not a body of this protocol, or longer than allowed.
    Rubbish,
}

impl Assembler {
    /// Adds the body of one packet; the whole text may have at most `longest` bytes.
    pub fn add(&mut self, body: &[u8], longest: usize) -> Fragment {
        let Some((more, piece)) = body.split_first() else { return Fragment::Rubbish };
        if *more > 1 || self.text.len() + piece.len() > longest {
            return Fragment::Rubbish;
        }
        self.text.extend_from_slice(piece);
        if *more == 1 { Fragment::More } else { Fragment::Whole(std::mem::take(&mut self.text)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_comes_back_whole() {
        let piece = LONGEST_PACKET - BEFORE;
        for length in [0, 1, piece - 2, piece, 3 * piece + 7] {
            let text = "x".repeat(length);
            let mut assembler = Assembler::default();
            let mut whole = None;
            for packet in packets(&text, LONGEST_PACKET).unwrap() {
                assert!(packet.len() <= LONGEST_PACKET);
                assert!(whole.is_none(), "a packet after the last");
                match assembler.add(&packet[size_of::<Header>()..], usize::MAX / 2) {
                    Fragment::More => {}
                    Fragment::Whole(text) => whole = Some(text),
                    Fragment::Rubbish => panic!("rubbish"),
                }
            }
            assert_eq!(serde_json::from_slice::<String>(&whole.unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn an_endless_text_is_rubbish_as_soon_as_it_is_too_long() {
        let mut assembler = Assembler::default();
        assert_eq!(assembler.add(&[1, b'a', b'b'], 3), Fragment::More);
        assert_eq!(assembler.add(&[1, b'a', b'b'], 3), Fragment::Rubbish);
        assert_eq!(assembler.add(&[], 3), Fragment::Rubbish);
        assert_eq!(assembler.add(&[2, b'a'], 3), Fragment::Rubbish);
    }

    #[test]
    fn requests_are_read_strictly() {
        let text = r#"{"request":"register","name":"A","core":{"request":50,"limit":100},
                       "memory":{"request":50,"limit":50},"priority":0}"#;
        assert!(
            matches!(serde_json::from_str(text), Ok(Request::Register(register)) if register.name == "A")
        );
        assert!(serde_json::from_str::<Request>(&text.replace("\"limit\":100", "\"limit\":49")).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"request":"status"}"#).is_ok());
        assert!(serde_json::from_str::<Request>(r#"{"request":"stop"}"#).is_err());
    }
}

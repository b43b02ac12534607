//! One connection: packets in, events for the pool's task; answers to people's requests out.
//!
//! Everything that comes is hostile until it has been read. Rubbish ends the conversation; nothing ends the agent.

use std::sync::Arc;

use gpupool_core::pool::PodId;
use gpupool_wire::message::{self, DecodeError, MAX_FRAME, Message};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::admin_api::{
    self, Assembler, Fragment, LONGEST_REQUEST, RefusalReason, RefusedReply, Reply, Request,
};
use crate::event::{Accepted, AgentEvent, ConnectionId, Frame};
use crate::inquiry::Inquiries;
use crate::packet_socket::{PacketSocket, Received};

/// Frames of unknown kinds that a newer program may send on one connection.
const MOST_UNKNOWN: usize = 64;

/// Why a conversation ends.
#[derive(Debug)]
enum End {
    /// The other end hung up, or the agent goes down.
    Over,
    /// It sent something that is no message.
    Rubbish,
}

/// Holds a conversation to its end, and closes its connection. It has its `place` until it is taken in.
pub(super) async fn converse(
    socket: PacketSocket,
    place: Option<OwnedSemaphorePermit>,
    inbox: mpsc::Sender<AgentEvent>,
    inquiries: Option<Inquiries>,
) {
    let accepted = be_accepted(&socket, &inbox).await;
    // Another may come in its place.
    drop(place);
    let Some(accepted) = accepted else { return socket.close().await };
    let from = accepted.id;
    let mut conversation = Conversation {
        socket,
        inbox,
        from,
        turns: accepted.turns,
        may_ask: accepted.may_ask,
        inquiry: accepted.unheard_of.zip(inquiries),
        request: Assembler::default(),
    };
    let end = conversation.run().await;
    let Conversation { socket, inbox, .. } = conversation;
    // The inbox is closed when the agent goes down.
    if let Err(End::Rubbish) = end {
        let _ = inbox.send(AgentEvent::Rubbish { from }).await;
    }
    let (let_go, gone) = oneshot::channel();
    let _ = inbox.send(AgentEvent::Over { from, let_go }).await;
    let _ = gone.await;
    socket.close().await;
    let _ = inbox.send(AgentEvent::Closed { from }).await;
}

/// Tells the pool's task who has come; nothing when it does not take the connection in.
async fn be_accepted(socket: &PacketSocket, inbox: &mpsc::Sender<AgentEvent>) -> Option<Accepted> {
    let socket = socket.shared();
    // A caller that can't be known has ended, or is outside the agent's view: either way there is nobody to serve.
    let (user, held) = super::introduce(&socket).ok()?;
    let (accepted, answer) = oneshot::channel();
    let connected = AgentEvent::Connected { socket, user, held: Box::new(held), accepted };
    inbox.send(connected).await.ok()?;
    answer.await.ok()?
}

struct Conversation {
    socket: PacketSocket,
    inbox: mpsc::Sender<AgentEvent>,
    from: ConnectionId,
    /// How many of its pod's or user's connections may stand in line at the inbox.
    turns: Arc<Semaphore>,
    /// Whether people's requests are answered here.
    may_ask: bool,
    /// The caller's pod, and where to ask for it, where nothing is known about it.
    inquiry: Option<(PodId, Inquiries)>,
    request: Assembler,
}

impl Conversation {
    async fn run(&mut self) -> Result<(), End> {
        let mut packet = vec![0; MAX_FRAME];
        let mut unknown = 0;
        loop {
            let length = match self.socket.receive(&mut packet).await {
                Ok(Received::Packet(length)) => length,
                Ok(Received::Rubbish) => return Err(End::Rubbish),
                Ok(Received::HungUp) | Err(_) => return Err(End::Over),
            };
            let message = match message::decode(packet.get(..length).unwrap_or_default()) {
                Ok(message) => message,
                Err(DecodeError::UnknownKind(_)) if unknown < MOST_UNKNOWN => {
                    unknown += 1;
                    continue;
                }
                Err(DecodeError::Version(version)) => {
                    self.say(Frame::Foreign(version, version)).await?;
                    continue;
                }
                Err(_) => return Err(End::Rubbish),
            };
            match message {
                Message::Hello(hello) if !hello.is_understood() => {
                    let (oldest, newest) = hello.versions();
                    self.say(Frame::Foreign(oldest, newest)).await?;
                }
                Message::Hello(hello) => {
                    if let Some((pod, inquiries)) = self.inquiry.take() {
                        inquiries.ask_for(pod).await;
                    }
                    self.say(Frame::Hello(*hello)).await?;
                }
                Message::Acquire(acquire) => self.say(Frame::Acquire(acquire.only())).await?,
                Message::Release(_) => self.say(Frame::Release).await?,
                Message::Control(body) => match self.request.add(body, LONGEST_REQUEST) {
                    Fragment::More => {}
                    Fragment::Whole(text) => self.answer(&text).await?,
                    Fragment::Rubbish => return Err(End::Rubbish),
                },
                Message::Welcome(_) | Message::Refused(_) | Message::Granted(_) => return Err(End::Rubbish),
            }
        }
    }

    /// Hands a program's words to the pool's task and waits until it has dealt with them.
    async fn say(&self, frame: Frame) -> Result<(), End> {
        let (done, dealt_with) = oneshot::channel();
        self.tell(AgentEvent::Frame { from: self.from, frame, done }).await?;
        dealt_with.await.map_err(|_| End::Over)
    }

    /// Answers a person's request.
    async fn answer(&self, text: &[u8]) -> Result<(), End> {
        let request = match serde_json::from_slice(text) {
            Ok(request) => request,
            Err(failure) => {
                let sentence = format!("the agent does not understand the request: {failure}");
                return self
                    .reply(&Reply::Refused(RefusedReply { reason: RefusalReason::Malformed, sentence }))
                    .await;
            }
        };
        if !self.may_ask {
            let sentence = "this agent answers questions from the node itself: ask there".to_owned();
            return self
                .reply(&Reply::Refused(RefusedReply { reason: RefusalReason::NotYours, sentence }))
                .await;
        }
        if matches!(request, Request::Watch {}) {
            return self.stream().await;
        }
        let (answer, reply) = oneshot::channel();
        self.tell(AgentEvent::Request { from: self.from, request, answer }).await?;
        let reply = reply.await.map_err(|_| End::Over)?;
        self.reply(&reply).await
    }

    /// Sends every status until the other end hangs up. Whoever reads slowly gets only the latest.
    async fn stream(&self) -> Result<(), End> {
        let (answer, statuses) = oneshot::channel();
        self.tell(AgentEvent::Watch { answer }).await?;
        let mut statuses = statuses.await.map_err(|_| End::Over)?;
        loop {
            statuses.changed().await.map_err(|_| End::Over)?;
            let packets = Arc::clone(&statuses.borrow_and_update());
            self.send(&packets).await?;
        }
    }

    async fn reply(&self, reply: &Reply) -> Result<(), End> {
        let packets = admin_api::reply_packets(reply).map_err(|_| End::Over)?;
        self.send(&packets).await
    }

    async fn send(&self, packets: &[Vec<u8>]) -> Result<(), End> {
        let socket = self.socket.shared();
        for packet in packets {
            socket.send(packet).await.map_err(|_| End::Over)?;
        }
        Ok(())
    }

    async fn tell(&self, event: AgentEvent) -> Result<(), End> {
        // It is never closed.
        let _turn = self.turns.acquire().await.map_err(|_| End::Over)?;
        self.inbox.send(event).await.map_err(|_| End::Over)
    }
}

//! One connection: packets in, events for the pool's task; answers to people's requests out.
//!
//! Everything that comes is hostile until it has been read. Rubbish ends the conversation; nothing ends the agent.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpupool_core::pool::PodId;
use gpupool_wire::message::{self, MAX_FRAME, Message};
use tokio::sync::{mpsc, oneshot};
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::OwnedAncillaryMessage;

use crate::admin_api::{
    self, Assembler, Fragment, LONGEST_REQUEST, RefusalReason, RefusedReply, Reply, Request,
};
use crate::event::{AgentEvent, ConnectionId, Frame};
use crate::inquiry::Inquiries;

/// Room for a header and more descriptors than anybody has a reason to send. What does not fit is closed unseen.
const ANCILLARY: usize = 64;

/// Why a conversation ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The other end hung up, or the agent goes down.
    Over,
    /// It sent something that is no message.
    Rubbish,
}

/// Holds a conversation to its end.
pub(super) async fn converse(
    socket: Arc<UnixSeqpacket>,
    inbox: mpsc::Sender<AgentEvent>,
    inquiries: Option<Inquiries>,
) {
    // A caller that can't be known has ended, or is outside the agent's view: either way there is nobody to serve.
    let Ok((user, held)) = super::introduce(&socket) else { return };
    let (accepted, id) = oneshot::channel();
    let connected =
        AgentEvent::Connected { socket: Arc::clone(&socket) as _, user, held: Box::new(held), accepted };
    if inbox.send(connected).await.is_err() {
        return;
    }
    let Ok(Some(accepted)) = id.await else { return };
    let from = accepted.id;
    let mut conversation = Conversation {
        socket,
        inbox,
        from,
        may_ask: accepted.may_ask,
        inquiry: accepted.unheard_of.zip(inquiries),
        request: Assembler::default(),
    };
    if let Err(End::Rubbish) = conversation.run().await {
        // The inbox is closed when the agent goes down.
        let _ = conversation.inbox.send(AgentEvent::Rubbish { from }).await;
    }
    let _ = conversation.inbox.send(AgentEvent::Closed { from }).await;
}

struct Conversation {
    socket: Arc<UnixSeqpacket>,
    inbox: mpsc::Sender<AgentEvent>,
    from: ConnectionId,
    /// Whether people's requests are answered here.
    may_ask: bool,
    /// The caller's pod, and where to ask for it, where nothing is known about it.
    inquiry: Option<(PodId, Inquiries)>,
    request: Assembler,
}

impl Conversation {
    async fn run(&mut self) -> Result<(), End> {
        let mut packet = vec![0; MAX_FRAME];
        loop {
            // Nothing that a program could hand over is of any use here.
            let (length, _) = receive(&self.socket, &mut packet).await?;
            let message =
                message::decode(packet.get(..length).unwrap_or_default()).map_err(|_| End::Rubbish)?;
            match message {
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
        for packet in packets {
            self.socket.send(packet).await.map_err(|_| End::Over)?;
        }
        Ok(())
    }

    async fn tell(&self, event: AgentEvent) -> Result<(), End> {
        self.inbox.send(event).await.map_err(|_| End::Over)
    }
}

/// The next packet, with the first descriptor that came with it; others are closed.
pub(crate) async fn receive(
    socket: &UnixSeqpacket,
    packet: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), End> {
    let mut ancillary = [0; ANCILLARY];
    let received = socket.recv_with_ancillary(packet, &mut ancillary).await;
    let (info, ancillary) = received.map_err(|_| End::Over)?;
    let mut descriptor = None;
    for message in ancillary.into_messages() {
        if let OwnedAncillaryMessage::FileDescriptors(descriptors) = message {
            for other in descriptors {
                descriptor.get_or_insert(other);
            }
        }
    }
    match info.bytes_read() {
        0 => Err(End::Over),
        _ if info.truncated() => Err(End::Rubbish),
        length => Ok((length, descriptor)),
    }
}

//! The conversation with the agent: introduce, ask for a card, wait for it, come back after the agent was away.
//!
//! Pure but for [`AgentLink`], which stands for the socket, the clock and standard error. It decides what is said
//! and how often; it knows nothing of CUDA.

use gpupool_wire::message::{Acquire, DecodeError, Hello, Message, RefusalReason, decode};
use gpupool_wire::{CardUuid, NO_CARD};
use zerocopy::IntoBytes;

use super::waiting::{AWAY_LINE, Absence, OTHER_VERSION, UNABLE_LINE, Wait, waiting_line};
use crate::text::Text;

/// How long an agent that took the connection may take to answer a greeting, in milliseconds.
const GREETING_TIMEOUT_MS: u64 = 10_000;
/// The same where a running program only looks after a lost connection.
const SINGLE_TRY_TIMEOUT_MS: u64 = 100;

/// A packet's room.
pub(crate) type Buffer = [u8; gpupool_wire::message::MAX_FRAME];

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A packet of this length.
    Packet(usize),
    /// Nothing within the time.
    Nothing,
    /// The connection is over.
    Gone,
}

/// The world outside the conversation.
pub(crate) trait AgentLink {
    /// Milliseconds of a clock that never goes back.
    fn now(&mut self) -> u64;
    /// Makes a new connection in place of any old one; if not, whether waiting may help.
    fn connect(&mut self) -> Result<(), Failure>;
    /// Whether there is a connection as far as this side knows.
    fn connected(&mut self) -> bool;
    /// Sends a packet; whether it went out.
    fn send(&mut self, packet: &[u8]) -> bool;
    /// Waits for a packet for at most so many milliseconds.
    fn receive(&mut self, buffer: &mut Buffer, milliseconds: u64) -> Received;
    /// Takes over the pages that came with a welcome; whether they are what they should be.
    fn adopt(&mut self, slot: u32) -> bool;
    /// The pod's place in the queue.
    fn position(&mut self) -> u32;
    /// Writes to standard error.
    fn say(&mut self, line: &[u8]);
    /// Sleeps for so many milliseconds.
    fn pause(&mut self, milliseconds: u64);
}

/// What a process is to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The lease it holds, 0 for none.
    pub(crate) lease: u64,
    /// The card of its first lease, or none yet.
    pub(crate) card: CardUuid,
    /// Its slot in the ledger; of meaning only with a lease.
    pub(crate) slot: u32,
}

impl Registration {
    /// A process that has just begun.
    pub(crate) const fn new() -> Self {
        Self { lease: 0, card: NO_CARD, slot: 0 }
    }

    const fn hello(&self) -> Hello {
        if self.lease == 0 {
            Hello::fresh(self.card)
        } else {
            Hello::resuming(self.lease, self.card, self.slot)
        }
    }
}

/// Why there is no answer of the wished kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The agent is not there, and the caller would not wait.
    Away,
    /// The agent said no; it was told to the user already.
    Refused(RefusalReason),
    /// This process may not make a socket, or has no room for one or for the pages. Waiting would not help.
    Unable,
}

/// Whether to wait for an agent that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// As long as it takes, saying so.
    UntilConnected,
    /// One attempt, in silence.
    Once,
}

/// Connects and introduces the process.
#[inline(never)]
pub(crate) fn introduce<S: AgentLink>(link: &mut S, me: &Registration, retry: Retry) -> Result<(), Failure> {
    let mut absence = Absence::none();
    loop {
        match greet(link, me, retry) {
            Err(Failure::Away) if retry == Retry::UntilConnected => {
                let now = link.now();
                if absence.due(now) {
                    link.say(AWAY_LINE);
                }
                let pause = absence.pause();
                link.pause(pause);
            }
            other => {
                if other == Err(Failure::Unable) && retry == Retry::UntilConnected {
                    link.say(UNABLE_LINE);
                }
                return other;
            }
        }
    }
}

#[inline(never)]
fn greet<S: AgentLink>(link: &mut S, me: &Registration, retry: Retry) -> Result<(), Failure> {
    link.connect()?;
    if !link.send(me.hello().as_bytes()) {
        return Err(Failure::Away);
    }
    let time = match retry {
        Retry::UntilConnected => GREETING_TIMEOUT_MS,
        Retry::Once => SINGLE_TRY_TIMEOUT_MS,
    };
    let end = link.now() + time;
    let mut buffer = [0; size_of::<Buffer>()];
    loop {
        let now = link.now();
        match link.receive(&mut buffer, end.saturating_sub(now)) {
            Received::Packet(length) => {
                let (reason, sentence) = match decode(buffer.get(..length).unwrap_or_default()) {
                    Ok(Message::Welcome(welcome)) => {
                        return if link.adopt(welcome.slot()) { Ok(()) } else { Err(Failure::Unable) };
                    }
                    Ok(Message::Refused(refused)) => (refused.reason(), refused.sentence_bytes()),
                    Err(DecodeError::Version(_)) => (RefusalReason::Version, OTHER_VERSION),
                    // A newer agent may say more than is known here, before its answer.
                    Err(DecodeError::UnknownKind(_)) if link.now() < end => continue,
                    _ => return Err(Failure::Away),
                };
                if retry == Retry::UntilConnected {
                    tell(link, sentence);
                }
                return Err(Failure::Refused(reason));
            }
            Received::Nothing if link.now() < end => {}
            Received::Nothing | Received::Gone => return Err(Failure::Away),
        }
    }
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Its id.
    pub(crate) lease: u64,
    /// The card.
    pub(crate) card: CardUuid,
}

/// Asks for a card and waits for it, for as long as it takes.
pub(crate) fn acquire<S: AgentLink>(link: &mut S, me: &Registration) -> Result<Grant, Failure> {
    let begin = link.now();
    let mut wait = Wait::begin(begin);
    let mut connected = link.connected();
    loop {
        if !connected {
            introduce(link, me, Retry::UntilConnected)?;
        }
        if link.send(Acquire::new(me.card).as_bytes())
            && let Some(grant) = await_grant(link, &mut wait)?
        {
            return Ok(grant);
        }
        // The agent may have come and gone since the last word; a new connection will tell.
        connected = false;
    }
}

/// Waits on one connection; nothing when it is over.
fn await_grant<S: AgentLink>(link: &mut S, wait: &mut Wait) -> Result<Option<Grant>, Failure> {
    let mut buffer = [0; size_of::<Buffer>()];
    loop {
        let now = link.now();
        if let Some(seconds) = wait.due(now) {
            let position = link.position();
            link.say(waiting_line(seconds, position).as_bytes());
        }
        match link.receive(&mut buffer, wait.until_next(now)) {
            Received::Packet(length) => match decode(buffer.get(..length).unwrap_or_default()) {
                Ok(Message::Granted(granted)) => {
                    return Ok(Some(Grant { lease: granted.lease(), card: granted.card() }));
                }
                Ok(Message::Refused(refused)) => {
                    tell(link, refused.sentence_bytes());
                    return Err(Failure::Refused(refused.reason()));
                }
                // Nothing else is an answer to this.
                _ => {}
            },
            Received::Nothing => {}
            Received::Gone => return Ok(None),
        }
    }
}

#[inline(never)]
fn tell<S: AgentLink>(link: &mut S, sentence: &[u8]) {
    link.say(Text::new().add(b"gpupool: ").add(sentence).add(b"\n").as_bytes());
}

#[cfg(test)]
mod tests;

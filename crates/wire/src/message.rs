//! Frames on the agent's `SOCK_SEQPACKET` socket: one frame, one packet.
//!
//! Every frame starts with a [`Header`]; its kind fixes what it has at least, so a packet that is shorter is refused as a
//! whole. All numbers are little endian. Descriptors travel beside a frame (`SCM_RIGHTS`) and are each side's own
//! business; which frames carry which is said at each of them.
//!
//! | direction | frame | answered by |
//! |---|---|---|
//! | shim → agent | [`Hello`] | [`Welcome`] or [`Refused`] |
//! | shim → agent | [`Acquire`] | [`Granted`] when the pod's turn has come, or [`Refused`] |
//! | shim → agent | [`Release`] | nothing |
//! | both ways | [`FrameKind::Control`] | JSON, which this room does not read |
//!
//! # Versions
//!
//! A container keeps the shim that it was started with for as long as it lives, and its agent is replaced meanwhile by a
//! newer one, or by an older one again. So:
//!
//! - The header, [`FrameKind::Control`], [`Hello`] and [`Refused`] are in version [`FIRST`], for ever: everybody can say who
//!   they are, and be told no.
//! - A hello says which versions its sender speaks. The agent answers in the newest that both do, or with
//!   [`RefusalReason::Version`]; who says nothing speaks [`FIRST`].
//! - Within a version, frames only grow at their ends and kinds are only added: a longer frame is read as far as it is
//!   known, and one of an unknown kind is passed over.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::text;
use crate::uuid::CardUuid;

/// First four bytes of every frame: "GPOL" in the order of the bytes.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPOL");

/// The version that those frames are in which everybody must understand.
pub const FIRST: u16 = 1;

/// The newest version that this build speaks. It changes only when an older peer could no longer be understood.
pub const VERSION: u16 = 1;

/// The oldest that it speaks.
pub const OLDEST: u16 = 1;

/// Longest frame of the shim's protocol, in bytes; a control packet may be longer.
pub const MAX_FRAME: usize = 4096;

/// Longest sentence of a [`Refused`], in bytes.
pub const MAX_SENTENCE: usize = 512;

/// Longest name of a pod, in bytes: a Kubernetes namespace (63), a slash and a name (253), with room to spare.
pub const MAX_POD_NAME: usize = 320;

/// What a frame is, by the number in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FrameKind {
    /// A person's or tool's request to the agent, or the answer: JSON follows the header.
    Control = 0,
    /// [`Hello`].
    Hello = 1,
    /// [`Welcome`].
    Welcome = 2,
    /// [`Refused`].
    Refused = 3,
    /// [`Acquire`].
    Acquire = 4,
    /// [`Granted`].
    Granted = 5,
    /// [`Release`].
    Release = 6,
}

impl FrameKind {
    /// The kind with this number, if there is one.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Control,
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Refused,
            4 => Self::Acquire,
            5 => Self::Granted,
            6 => Self::Release,
            _ => return None,
        })
    }

    /// Whether frames of this kind are in version [`FIRST`] for ever.
    const fn is_fixed(self) -> bool {
        matches!(self, Self::Control | Self::Hello | Self::Refused)
    }
}

/// What every frame starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    magic: U32,
    version: U16,
    kind: U16,
}

impl Header {
    /// The header of a frame of this kind, in the newest version that it can have.
    pub const fn new(kind: FrameKind) -> Self {
        let version = if kind.is_fixed() { FIRST } else { VERSION };
        Self { magic: U32::new(MAGIC), version: U16::new(version), kind: U16::new(kind as u16) }
    }
}

/// A process introduces itself, as its first frame on a new connection.
///
/// With `resume` set, the process holds that lease from before the agent (re)started. No descriptor travels with the
/// frame: the agent takes none from anybody, and finds the ledger in the process by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Hello {
    header: Header,
    resume: U64,
    card: CardUuid,
    slot: U32,
    oldest: U16,
    newest: U16,
}

impl Hello {
    /// A process that holds nothing yet. `card` is the one it was given earlier in its life, or [`crate::NO_CARD`].
    pub const fn fresh(card: CardUuid) -> Self {
        Self {
            header: Header::new(FrameKind::Hello),
            resume: U64::ZERO,
            card,
            slot: U32::new(u32::MAX),
            oldest: U16::new(OLDEST),
            newest: U16::new(VERSION),
        }
    }

    /// The same from a peer that speaks other versions, for tests.
    #[must_use]
    pub const fn speaking(self, oldest: u16, newest: u16) -> Self {
        Self { oldest: U16::new(oldest), newest: U16::new(newest), ..self }
    }

    /// The versions that the process speaks, from the oldest to the newest.
    pub const fn versions(&self) -> (u16, u16) {
        match (self.oldest.get(), self.newest.get()) {
            // From before hellos said it.
            (0, 0) => (FIRST, FIRST),
            said => said,
        }
    }

    /// Whether there is a version that the process speaks and this build does too.
    pub const fn is_understood(&self) -> bool {
        let (oldest, newest) = self.versions();
        oldest <= newest && oldest <= VERSION && newest >= OLDEST
    }

    /// A process that comes back with a lease, its card and its slot in the ledger. A lease id is never 0.
    pub const fn resuming(lease: u64, card: CardUuid, slot: u32) -> Self {
        Self { resume: U64::new(lease), slot: U32::new(slot), ..Self::fresh(card) }
    }

    /// The lease that the process says it holds.
    pub const fn resume(&self) -> Option<u64> {
        match self.resume.get() {
            0 => None,
            lease => Some(lease),
        }
    }

    /// The card that the process uses or used, or [`crate::NO_CARD`].
    pub const fn card(&self) -> CardUuid {
        self.card
    }

    /// The slot in the ledger that the process says is its own; only of interest when it resumes.
    pub const fn slot(&self) -> Option<u32> {
        match self.slot.get() {
            u32::MAX => None,
            slot => Some(slot),
        }
    }
}

/// The agent knows the caller and takes it in.
///
/// Three descriptors travel with the frame, in this order: limits page, ledger, card table. An answer to a resuming
/// [`Hello`] carries them too; the shim keeps the ledger that it has, and where the agent has not got that back, another
/// descriptor stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Welcome {
    header: Header,
    slot: U32,
    reserved: U32,
    pod: [u8; MAX_POD_NAME],
}

impl Welcome {
    /// Tells a process its slot in the ledger (an index) and the pod it belongs to.
    pub fn new(slot: u32, pod: &str) -> Self {
        Self {
            header: Header::new(FrameKind::Welcome),
            slot: U32::new(slot),
            reserved: U32::ZERO,
            pod: text::pack(pod),
        }
    }

    /// The process's slot in the ledger, below [`crate::ledger::SLOTS`].
    pub const fn slot(&self) -> u32 {
        self.slot.get()
    }

    /// The pod's name (`namespace/name` in a cluster), for messages to people.
    pub fn pod(&self) -> &str {
        text::unpack(&self.pod)
    }
}

/// Why the agent refuses. Numbers are part of the protocol; a shim takes an unknown one as [`RefusalReason::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RefusalReason {
    /// Anything that needs no number of its own; the sentence says it.
    Other = 0,
    /// The caller belongs to no pod that the agent knows.
    NotRegistered = 1,
    /// The pod's ledger has no free slot.
    NoSlot = 2,
    /// The agent speaks no version of the protocol that the caller speaks.
    Version = 3,
    /// The frame could not be read, or came out of turn.
    Malformed = 4,
    /// The card that the process must keep is lost or gone.
    CardGone = 5,
    /// The pod is being stopped or has been removed.
    Stopped = 6,
    /// As [`Self::Version`], and this node lets such programs run without gpupool.
    Unheld = 7,
}

impl RefusalReason {
    /// The reason with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::NotRegistered,
            2 => Self::NoSlot,
            3 => Self::Version,
            4 => Self::Malformed,
            5 => Self::CardGone,
            6 => Self::Stopped,
            7 => Self::Unheld,
            _ => Self::Other,
        }
    }
}

/// The agent says no, and why in one sentence that the user will read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Refused {
    header: Header,
    reason: U32,
    sentence: [u8; MAX_SENTENCE],
}

impl Refused {
    /// A refusal; a sentence over [`MAX_SENTENCE`] bytes is cut.
    pub fn new(reason: RefusalReason, sentence: &str) -> Self {
        Self {
            header: Header::new(FrameKind::Refused),
            reason: U32::new(reason as u32),
            sentence: text::pack(sentence),
        }
    }

    /// Why, as a number of the protocol; an unknown one reads as [`RefusalReason::Other`].
    pub const fn reason(&self) -> RefusalReason {
        RefusalReason::from_number(self.reason.get())
    }

    /// The sentence for the user.
    pub fn sentence(&self) -> &str {
        text::unpack(&self.sentence)
    }

    /// The sentence as the bytes that it came in, UTF-8 or not, for who only hands it on.
    pub fn sentence_bytes(&self) -> &[u8] {
        text::bytes(&self.sentence)
    }
}

/// A process wants its pod to hold a card. Its pod's place in the queue is read from the limits page meanwhile.
///
/// Asking again on a new connection changes nothing: the place belongs to the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Acquire {
    header: Header,
    only: CardUuid,
}

impl Acquire {
    /// Any card, or with `only` other than [`crate::NO_CARD`] that one: a process keeps its first card.
    pub const fn new(only: CardUuid) -> Self {
        Self { header: Header::new(FrameKind::Acquire), only }
    }

    /// The one card that will do, or [`crate::NO_CARD`] for any.
    pub const fn only(&self) -> CardUuid {
        self.only
    }
}

/// The pod holds a card from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Granted {
    header: Header,
    lease: U64,
    card: CardUuid,
    index: U32,
    reserved: U32,
}

impl Granted {
    /// A lease (id never 0) of the card at `index` of the card table.
    pub const fn new(lease: u64, card: CardUuid, index: u32) -> Self {
        Self {
            header: Header::new(FrameKind::Granted),
            lease: U64::new(lease),
            card,
            index: U32::new(index),
            reserved: U32::ZERO,
        }
    }

    /// The lease's number, never 0; the agent's journal keeps counting across restarts.
    pub const fn lease(&self) -> u64 {
        self.lease.get()
    }

    /// The card's uuid.
    pub const fn card(&self) -> CardUuid {
        self.card
    }

    /// The card's index in the card table, from 0.
    pub const fn index(&self) -> u32 {
        self.index.get()
    }
}

/// This process's last context is gone and its slot in the ledger is zero.
///
/// The pod's lease ends when every one of its processes has said so or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Release {
    header: Header,
}

impl Release {
    /// The frame.
    pub const fn new() -> Self {
        Self { header: Header::new(FrameKind::Release) }
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = {
    assert!(size_of::<Header>() == 8);
    assert!(size_of::<Hello>() == 40);
    assert!(size_of::<Welcome>() == 16 + MAX_POD_NAME);
    assert!(size_of::<Refused>() == 12 + MAX_SENTENCE);
    assert!(size_of::<Acquire>() == 24);
    assert!(size_of::<Granted>() == 40);
    assert!(size_of::<Release>() == 8);
    assert!(size_of::<Refused>() <= MAX_FRAME);
};

/// A frame that has been recognised. It borrows the packet, so nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The JSON bytes of a control packet, unread.
    Control(&'a [u8]),
    /// A process introduces itself.
    Hello(&'a Hello),
    /// It is taken in.
    Welcome(&'a Welcome),
    /// It is turned away.
    Refused(&'a Refused),
    /// It wants a card.
    Acquire(&'a Acquire),
    /// It has one.
    Granted(&'a Granted),
    /// It needs none any more.
    Release(&'a Release),
}

/// Why a packet is no frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than a [`Header`]: the packet's length in bytes.
    #[error("a packet of {0} bytes is too short for a gpupool frame")]
    TooShort(usize),
    /// The first four bytes are not [`MAGIC`].
    #[error("this is not a gpupool frame (it starts with {0:#010x})")]
    Foreign(u32),
    /// The peer speaks another version.
    #[error(
        "the peer speaks protocol version {0}, this side {OLDEST} to {VERSION}: use programs of the same release"
    )]
    Version(u16),
    /// The number is no [`FrameKind`].
    #[error("frames of kind {0} are unknown here")]
    UnknownKind(u16),
    /// Something is missing of what the kind has at least.
    #[error("a frame of kind {kind:?} has more than {length} bytes")]
    Length {
        /// The kind that the header names.
        kind: FrameKind,
        /// The packet's length in bytes.
        length: usize,
    },
}

/// Recognises one packet.
pub fn decode(packet: &[u8]) -> Result<Message<'_>, DecodeError> {
    let (header, body) = Header::ref_from_prefix(packet).map_err(|_| DecodeError::TooShort(packet.len()))?;
    if header.magic.get() != MAGIC {
        return Err(DecodeError::Foreign(header.magic.get()));
    }
    let (version, number) = (header.version.get(), header.kind.get());
    let kind = FrameKind::from_number(number);
    let (oldest, newest) =
        if kind.is_some_and(FrameKind::is_fixed) { (FIRST, FIRST) } else { (OLDEST, VERSION) };
    if version < oldest || version > newest {
        return Err(DecodeError::Version(version));
    }
    let kind = kind.ok_or(DecodeError::UnknownKind(number))?;
    Ok(match kind {
        FrameKind::Control => Message::Control(body),
        FrameKind::Hello => Message::Hello(known(packet, kind)?),
        FrameKind::Welcome => Message::Welcome(known(packet, kind)?),
        FrameKind::Refused => Message::Refused(known(packet, kind)?),
        FrameKind::Acquire => Message::Acquire(known(packet, kind)?),
        FrameKind::Granted => Message::Granted(known(packet, kind)?),
        FrameKind::Release => Message::Release(known(packet, kind)?),
    })
}

/// The frame, as far as this build knows it.
fn known<T>(packet: &[u8], kind: FrameKind) -> Result<&T, DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(packet)
        .map(|(frame, _)| frame)
        .map_err(|_| DecodeError::Length { kind, length: packet.len() })
}

#[cfg(all(test, not(loom)))]
mod tests;

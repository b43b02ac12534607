//! Honest programs: what the shim does in a GPU program, a word or an allocation at a time.
//!
//! They take memory only while they hold a lease, within their pod's limit as their ledger counts it, and give their
//! lease back when nothing of theirs is on the card. They end, fork, become another program and are stopped at any moment,
//! also between a driver's call and its being counted.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use fastrand::Rng;
use gpupool_core::pool::PodId;
use gpupool_wire::ledger::Slot;
use gpupool_wire::message::{self, Hello, Message, RefusalReason};
use gpupool_wire::{CardUuid, NO_CARD};

use super::gpus::{CONTEXT, card_of};
use super::kernel::{Kernel, Packet, Said};
use crate::event::Frame;
use crate::pages::LedgerFile;
use crate::procfs::ProcessKey;
use crate::shared_memory;

/// After how long an agent that has not answered a greeting counts as away, in milliseconds.
const GREETING_TIMEOUT: u64 = 10_000;

/// How far a program is with the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no connection, or one on which nobody has answered.
    Unknown,
    /// It has said hello at that moment.
    Greeting(u64),
    Known,
    /// It waits for a card.
    Asking,
}

/// A lease in a program's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) lease: u64,
    pub(super) card: CardUuid,
}

/// A refusal, which is the end of a program that has no lease.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) reason: RefusalReason,
    pub(super) sentence: String,
    /// When it had said hello.
    pub(super) greeted_at: u64,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) pod: PodId,
    pub(super) socket: Option<usize>,
    pub(super) stage: Stage,
    pub(super) leased: Option<Leased>,
    /// The card of its first lease: its driver knows no other.
    bound: CardUuid,
    slot: u32,
    ledger: Option<LedgerFile>,
    pub(super) has_context: bool,
    /// What it has counted in its slot, in bytes.
    counted: u64,
    /// A release that nobody could hear.
    owes_release: bool,
    /// It was told that it gets no card, and ends.
    pub(super) refused: Option<Refusal>,
    /// Its lease was lost with a part of the journal.
    pub(super) was_forgotten: bool,
}

/// What became of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Did {
    Nothing,
    Something(&'static str),
    /// It has started another of its pod.
    Forked,
    Ended,
}

impl Program {
    pub(super) fn new(pod: PodId) -> Self {
        Self {
            pod,
            socket: None,
            stage: Stage::Unknown,
            leased: None,
            bound: NO_CARD,
            slot: 0,
            ledger: None,
            has_context: false,
            counted: 0,
            owes_release: false,
            refused: None,
            was_forgotten: false,
        }
    }

    /// Takes in what lies in its socket; what the agent's end has said before it was closed can still be read.
    pub(super) fn read(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        let Some(socket) = self.socket else { return Did::Nothing };
        let Some(open) = kernel.sockets.get_mut(&socket) else {
            self.lose_connection(kernel);
            return Did::Something("notices that its connection is gone");
        };
        let Some(packet) = open.to_caller.pop_front() else {
            if kernel.is_open(socket) {
                return Did::Nothing;
            }
            self.lose_connection(kernel);
            return Did::Something("notices that its connection is over");
        };
        self.take_in(kernel, me, &packet)
    }

    fn take_in(&mut self, kernel: &mut Kernel, me: ProcessKey, packet: &Packet) -> Did {
        match message::decode(&packet.frame).expect("the agent sends messages") {
            Message::Welcome(welcome) => {
                if self.leased.is_none() {
                    self.adopt(kernel, me, packet, welcome.slot());
                }
                if matches!(self.stage, Stage::Greeting(_)) {
                    self.stage = Stage::Known;
                }
                Did::Something("is welcomed")
            }
            Message::Granted(granted) if self.stage == Stage::Asking => {
                self.leased = Some(Leased { lease: granted.lease(), card: granted.card() });
                (self.bound, self.owes_release, self.stage) = (granted.card(), false, Stage::Known);
                self.was_forgotten = false;
                Did::Something("reads of its grant")
            }
            Message::Refused(refused) => {
                if self.leased.is_none() {
                    let greeted_at = if let Stage::Greeting(since) = self.stage { since } else { kernel.now };
                    let (reason, sentence) = (refused.reason(), refused.sentence().to_owned());
                    self.refused = Some(Refusal { reason, sentence, greeted_at });
                }
                self.lose_connection(kernel);
                Did::Something("is refused")
            }
            _ => Did::Something("reads what it has not asked for"),
        }
    }

    fn adopt(&mut self, kernel: &mut Kernel, me: ProcessKey, packet: &Packet, slot: u32) {
        let descriptor = packet.ledger.as_ref().expect("a welcome brings the ledger");
        let inode = shared_memory::inode(descriptor.as_fd()).expect("a file");
        let copy = || descriptor.try_clone().expect("a descriptor");
        self.ledger = Some(LedgerFile::adopt(copy(), inode).expect("a welcome brings the ledger"));
        self.slot = slot;
        kernel.processes.get_mut(&me).expect("a process").ledger = Some(Arc::new(copy()));
    }

    fn lose_connection(&mut self, kernel: &mut Kernel) {
        if let Some(socket) = self.socket.take() {
            kernel.hang_up(socket);
        }
        self.stage = Stage::Unknown;
    }

    fn say(&self, kernel: &mut Kernel, frame: Frame) -> bool {
        self.socket.is_some_and(|socket| kernel.say(socket, Said::Frame(frame)))
    }

    /// Connects and introduces itself, with its lease if it has one.
    fn greet(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        self.lose_connection(kernel);
        self.socket = Some(kernel.connect(me, 1000));
        let hello = match self.leased {
            Some(leased) => Hello::resuming(leased.lease, leased.card, self.slot),
            None => Hello::fresh(self.bound),
        };
        self.say(kernel, Frame::Hello(hello));
        self.stage = Stage::Greeting(kernel.now);
        Did::Something("says hello")
    }

    /// What it does when there is nothing to read. `serves` says whether an agent listens.
    pub(super) fn act(&mut self, kernel: &mut Kernel, me: ProcessKey, random: &mut Rng, serves: bool) -> Did {
        match self.stage {
            Stage::Unknown if self.leased.is_some() || self.owes_release || random.u8(..4) > 0 => {
                if serves {
                    self.greet(kernel, me)
                } else {
                    Did::Nothing
                }
            }
            Stage::Greeting(since) if kernel.now - since > GREETING_TIMEOUT => {
                self.lose_connection(kernel);
                Did::Something("gives up an agent that does not answer")
            }
            Stage::Known if self.owes_release && self.leased.is_none() => {
                self.owes_release = !self.say(kernel, Frame::Release);
                Did::Something("releases what it owed")
            }
            Stage::Known if self.leased.is_none() && random.u8(..4) > 0 => {
                if self.say(kernel, Frame::Acquire(self.bound)) {
                    self.stage = Stage::Asking;
                    return Did::Something("asks for a card");
                }
                Did::Nothing
            }
            _ if self.leased.is_some() => self.use_card(kernel, me, random),
            Stage::Asking => Did::Nothing,
            _ => self.turn(kernel, random),
        }
    }

    /// Something that a program does without a card.
    fn turn(&mut self, kernel: &mut Kernel, random: &mut Rng) -> Did {
        match random.u8(..10) {
            0 => Did::Ended,
            1..3 => Did::Forked,
            3 => {
                self.lose_connection(kernel);
                Did::Something("loses its connection")
            }
            _ => Did::Nothing,
        }
    }

    fn use_card(&mut self, kernel: &mut Kernel, me: ProcessKey, random: &mut Rng) -> Did {
        match random.u8(..20) {
            _ if !self.has_context => self.allocate(kernel, me, random, CONTEXT),
            0..8 => {
                let bytes = random.u64(1..8) << 28;
                self.allocate(kernel, me, random, bytes)
            }
            8..11 => {
                let all = self.counted.saturating_sub(CONTEXT);
                self.free(kernel, me, random.u64(..=all))
            }
            // Whoever greets has the connection for itself.
            11..14 if !matches!(self.stage, Stage::Greeting(_)) => self.give_back(kernel, me),
            14 => self.become_another(kernel, me),
            15 => Did::Ended,
            16 => self.turn(kernel, random),
            _ => {
                self.with_slot(|ledger, slot| {
                    if let Some(slot) = ledger.slot(slot) {
                        slot.mark_submitted();
                    }
                });
                Did::Something("works")
            }
        }
    }

    pub(super) fn card(&self) -> u32 {
        card_of(&self.bound)
    }

    pub(super) fn on_card(&self, kernel: &Kernel, me: ProcessKey) -> u64 {
        kernel.gpus.bytes(self.card(), me)
    }

    fn with_slot<T>(&self, look: impl FnOnce(gpupool_wire::ledger::Ledger<'_>, u32) -> T) -> T {
        let ledger = self.ledger.as_ref().expect("who has been granted a card has a ledger");
        ledger.with(|ledger| look(ledger, self.slot)).expect("a ledger")
    }

    /// As the shim does it: announced, taken, counted. It may be killed in between.
    fn allocate(&mut self, kernel: &mut Kernel, me: ProcessKey, random: &mut Rng, bytes: u64) -> Did {
        let dies = random.u8(..60);
        let card = self.card();
        let limit = kernel.limits.get(&self.pod).copied().unwrap_or(0);
        let before = self.on_card(kernel, me);
        if kernel.gpus.lost.contains(&card) || self.has_context && before < self.counted {
            // A context does not survive a reset of its card.
            return Did::Something("finds its card lost");
        }
        let done = self.with_slot(|ledger, slot| {
            let Ok(reservation) = ledger.reserve(slot, bytes, limit, |_| false) else { return None };
            if dies == 0 {
                return Some(Did::Ended);
            }
            if kernel.gpus.free(card) < bytes {
                reservation.cancel();
                return None;
            }
            let now = kernel.now;
            kernel.gpus.set(now, card, me, before + bytes);
            if dies == 1 {
                return Some(Did::Ended);
            }
            reservation.commit(bytes);
            None
        });
        if let Some(ended) = done {
            return ended;
        }
        if self.on_card(kernel, me) == before {
            return Did::Something("finds no room within its limit");
        }
        self.counted += bytes;
        if !std::mem::replace(&mut self.has_context, true) {
            self.with_slot(|ledger, slot| ledger.slot(slot).map(Slot::context_made));
        }
        Did::Something("allocates")
    }

    fn free(&mut self, kernel: &mut Kernel, me: ProcessKey, bytes: u64) -> Did {
        let (now, card, before) = (kernel.now, self.card(), self.on_card(kernel, me));
        // After a reset of the card there is less than was counted.
        kernel.gpus.set(now, card, me, before.saturating_sub(bytes));
        self.counted -= bytes;
        self.with_slot(|ledger, slot| {
            if let Some(slot) = ledger.slot(slot) {
                slot.release(bytes);
            }
        });
        Did::Something("frees")
    }

    /// Frees all, ends its context and gives its lease back.
    pub(super) fn give_back(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        if self.leased.is_none() {
            return Did::Nothing;
        }
        let all = self.counted;
        self.free(kernel, me, all);
        if std::mem::take(&mut self.has_context) {
            self.with_slot(|ledger, slot| ledger.slot(slot).map(Slot::context_gone));
        }
        (self.leased, self.was_forgotten) = (None, false);
        self.owes_release = !self.say(kernel, Frame::Release);
        Did::Something("gives its lease back")
    }

    /// `exec`: everything that the process had is gone, only the process itself stays.
    fn become_another(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        kernel.gpus.forget(me);
        self.lose_connection(kernel);
        kernel.processes.get_mut(&me).expect("a process").ledger = None;
        *self = Self::new(self.pod.clone());
        Did::Something("becomes another program")
    }
}

//! Lying programs and strangers: they say, write and take whatever a program can. They obey no limit and no signal but
//! SIGKILL.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use fastrand::Rng;
use gpupool_core::pool::PodId;
use gpupool_wire::message::{self, Hello, Message};
use gpupool_wire::{CardUuid, NO_CARD, ledger};

use super::gpus::{TOTAL, uuid_text};
use super::kernel::{Kernel, Said};
use super::programs::Did;
use crate::admin_api::Request;
use crate::cards::parse_uuid;
use crate::event::Frame;
use crate::procfs::ProcessKey;

/// Connections that it keeps open.
const MOST_SOCKETS: usize = 6;

#[derive(Debug, Default)]
pub(super) struct Liar {
    /// Nothing for a stranger.
    pub(super) pod: Option<PodId>,
    sockets: Vec<usize>,
    /// The last ledger that it was given: it can write there what it likes.
    ledger: Option<OwnedFd>,
    /// What it has heard of leases, true or not.
    lease: u64,
}

impl Liar {
    pub(super) fn new(pod: Option<PodId>) -> Self {
        Self { pod, ..Self::default() }
    }

    pub(super) fn act(&mut self, kernel: &mut Kernel, me: ProcessKey, random: &mut Rng, serves: bool) -> Did {
        match random.u8(..24) {
            0..3 if serves => self.connect(kernel, me),
            3..7 => self.say(kernel, random),
            7..10 => self.read(kernel, me),
            10..13 => self.scribble(random),
            13..17 => take(kernel, me, random),
            17 => {
                kernel.gpus.forget(me);
                Did::Something("lets go of all cards")
            }
            18 => self.hang_up(kernel, random),
            19 if random.bool() => Did::Forked,
            20 if random.u8(..4) == 0 => Did::Ended,
            21 => {
                let process = kernel.processes.get_mut(&me).expect("a process");
                process.ledger = None;
                Did::Something("hides its ledger")
            }
            _ => Did::Nothing,
        }
    }

    fn connect(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        if self.sockets.len() >= MOST_SOCKETS {
            return Did::Nothing;
        }
        self.sockets.push(kernel.connect(me, 2000));
        Did::Something("connects")
    }

    fn say(&mut self, kernel: &mut Kernel, random: &mut Rng) -> Did {
        let Some(socket) = random.choice(&self.sockets).copied() else { return Did::Nothing };
        let lease = if random.bool() { self.lease } else { random.u64(..12) };
        let slot = random.choice([0, 1, 2, 7, 1023, 1024, u32::MAX]).unwrap_or(0);
        let (said, what) = match random.u8(..10) {
            0..2 => (Said::Frame(Frame::Hello(Hello::fresh(any_card(kernel, random)))), "says hello"),
            2..4 => {
                let hello = Hello::resuming(lease, any_card(kernel, random), slot);
                (Said::Frame(Frame::Hello(hello)), "says that it comes back with a lease")
            }
            4..7 => (Said::Frame(Frame::Acquire(any_card(kernel, random))), "asks for a card"),
            7 => (Said::Frame(Frame::Release), "says that it needs no card"),
            8 => (Said::Rubbish, "says rubbish"),
            _ => {
                let names: Vec<&PodId> = kernel.limits.keys().collect();
                let name = random.choice(names).map_or_else(|| "nobody".to_owned(), PodId::to_string);
                (Said::Request(Request::Stop { name }), "wants a pod stopped that is not its own")
            }
        };
        if kernel.say(socket, said) { Did::Something(what) } else { self.forget(kernel, socket) }
    }

    fn forget(&mut self, kernel: &mut Kernel, socket: usize) -> Did {
        self.sockets.retain(|open| *open != socket);
        kernel.hang_up(socket);
        Did::Something("hangs up")
    }

    fn hang_up(&mut self, kernel: &mut Kernel, random: &mut Rng) -> Did {
        match random.choice(&self.sockets).copied() {
            Some(socket) => self.forget(kernel, socket),
            None => Did::Nothing,
        }
    }

    fn read(&mut self, kernel: &mut Kernel, me: ProcessKey) -> Did {
        for socket in self.sockets.clone() {
            let Some(open) = kernel.sockets.get_mut(&socket) else { continue };
            let Some(packet) = open.to_caller.pop_front() else { continue };
            if let Ok(Message::Granted(granted)) = message::decode(&packet.frame) {
                self.lease = granted.lease();
            }
            if let Some(ledger) = packet.ledger {
                let mapped = ledger.try_clone().expect("a descriptor");
                kernel.processes.get_mut(&me).expect("a process").ledger = Some(Arc::new(mapped));
                self.ledger = Some(ledger);
            }
            return Did::Something("reads a word");
        }
        Did::Nothing
    }

    /// Writes anything anywhere into its pod's ledger.
    fn scribble(&mut self, random: &mut Rng) -> Did {
        let Some(ledger) = &self.ledger else { return Did::Nothing };
        let slots = 128..128 + 8 * 64;
        let place =
            if random.bool() { random.u64(slots) & !7 } else { random.u64(..ledger::FILE_LENGTH as u64 - 8) };
        let word = match random.u8(..4) {
            0 => 0,
            1 => u64::MAX,
            2 => random.u64(..TOTAL),
            _ => random.u64(..),
        };
        // A limits page, which may stand in a ledger's place, can't be written to.
        let _ = rustix::io::pwrite(ledger.as_fd(), &word.to_ne_bytes(), place);
        Did::Something("writes into its ledger")
    }
}

/// Takes what it likes of any card.
pub(super) fn take(kernel: &mut Kernel, me: ProcessKey, random: &mut Rng) -> Did {
    let card = random.u32(..kernel.gpus.cards);
    if kernel.gpus.lost.contains(&card) {
        return Did::Nothing;
    }
    let most = if random.bool() { 2 << 30 } else { TOTAL };
    let bytes = random.u64(..most).min(kernel.gpus.free(card) + kernel.gpus.bytes(card, me));
    let now = kernel.now;
    kernel.gpus.set(now, card, me, bytes);
    Did::Something("takes what it likes")
}

fn any_card(kernel: &Kernel, random: &mut Rng) -> CardUuid {
    match random.u8(..8) {
        0 => [0x77; 16],
        1..5 => NO_CARD,
        _ => parse_uuid(&uuid_text(random.u32(..kernel.gpus.cards))).expect("a UUID"),
    }
}

//! The cards of the world and who is on them: what NVML shows, and against which everything is checked.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{CardUuid, PodId, Timestamp};

use super::kernel::Kernel;
use crate::cards::watch::Look;
use crate::cards::{Cards, Probe, ProbedCard};
use crate::procfs::ProcessKey;
use crate::usage_audit::observe::{Observation, Regular, Sighting};
use crate::usage_audit::{GpuProcess, TOLERANCE, WhyNotHeld};

/// Memory of each card.
pub(super) const TOTAL: u64 = 16 << 30;

/// What a context takes.
pub(super) const CONTEXT: u64 = 256 << 20;

/// What a process has on a card.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    /// Since when this has been more than a driver's own.
    pub(super) much_since: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Gpus {
    pub(super) cards: u32,
    /// Those that have fallen off the bus.
    pub(super) lost: BTreeSet<u32>,
    /// Those of which NVML can't say at the moment who is there.
    pub(super) mute: BTreeSet<u32>,
    pub(super) taken: BTreeMap<(u32, ProcessKey), Taken>,
}

impl Gpus {
    pub(super) fn new(cards: u32) -> Self {
        Self { cards, lost: BTreeSet::new(), mute: BTreeSet::new(), taken: BTreeMap::new() }
    }

    pub(super) fn bytes(&self, card: u32, key: ProcessKey) -> u64 {
        self.taken.get(&(card, key)).map_or(0, |taken| taken.bytes)
    }

    /// From now on the process has so many bytes on the card.
    pub(super) fn set(&mut self, now: u64, card: u32, key: ProcessKey, bytes: u64) {
        if bytes == 0 {
            self.taken.remove(&(card, key));
            return;
        }
        let before = self.taken.get(&(card, key)).and_then(|taken| taken.much_since);
        let much_since = (bytes > TOLERANCE).then(|| before.unwrap_or(now));
        self.taken.insert((card, key), Taken { bytes, much_since });
    }

    pub(super) fn forget(&mut self, key: ProcessKey) {
        self.taken.retain(|(_, holder), _| *holder != key);
    }

    /// Who is on a card.
    pub(super) fn on(&self, card: u32) -> impl Iterator<Item = (ProcessKey, Taken)> {
        self.taken
            .range((card, FIRST)..)
            .take_while(move |((on, _), _)| *on == card)
            .map(|((_, key), taken)| (*key, *taken))
    }

    /// Memory that nobody has.
    pub(super) fn free(&self, card: u32) -> u64 {
        TOTAL.saturating_sub(self.on(card).map(|(_, taken)| taken.bytes).sum())
    }

    pub(super) fn healthy(&self) -> Vec<u32> {
        (0..self.cards).filter(|card| !self.lost.contains(card)).collect()
    }
}

const FIRST: ProcessKey = ProcessKey { pid: 0, start: 0 };

impl Kernel {
    /// What NVML shows at this moment of the cards that the agent has found.
    pub(super) fn look(&self, known: &[u32], answers: u64, regular: bool) -> Observation {
        let gpus = &self.gpus;
        let says = |card: &&u32| if gpus.lost.contains(card) { regular } else { !gpus.mute.contains(card) };
        let told = known.iter().filter(says);
        let seen = told.clone().map(|card| uuid(*card)).collect();
        let there = told.filter(|card| !gpus.lost.contains(card));
        let sightings = there.flat_map(|card| gpus.on(*card).map(|(key, taken)| sighting(*card, key, taken)));
        let look = |card: &u32| Look {
            card: uuid(*card),
            lost: gpus.lost.contains(card),
            utilisation: Some(u32::from(gpus.on(*card).next().is_some())),
            processes: None,
            utilisation_of: None,
        };
        let regular = regular.then(|| Regular {
            looks: known.iter().map(look).collect(),
            counted: BTreeMap::<PodId, u64>::new(),
        });
        Observation { began: Timestamp(self.now), seen, sightings: sightings.collect(), answers, regular }
    }
}

fn sighting(card: u32, key: ProcessKey, taken: Taken) -> Sighting {
    let process = GpuProcess { pid: key.pid, card: uuid(card), bytes: Some(taken.bytes) };
    Sighting { key, process, why_not_held: WhyNotHeld::ShimNotLoaded }
}

pub(super) fn uuid_text(card: u32) -> String {
    format!("GPU-11111111-2222-3333-4444-55555555555{card}")
}

pub(super) fn uuid(card: u32) -> CardUuid {
    uuid_text(card).as_str().into()
}

/// The card of a UUID of the wire: the number is its last digit.
pub(super) fn card_of(bytes: &gpupool_wire::CardUuid) -> u32 {
    (bytes[15] & 0xf).into()
}

/// What an agent that starts finds of these cards.
pub(super) fn probe(cards: &[u32]) -> Cards {
    let card = |index: &u32| ProbedCard {
        uuid: uuid_text(*index),
        name: "a card in memory".to_owned(),
        total_memory: TOTAL,
        pci_domain: 0,
        pci_bus: *index,
        pci_device: 0,
        cc_major: 9,
        cc_minor: 0,
        attributes: Vec::new(),
        context_bytes: Some(CONTEXT),
    };
    let probe = Probe { driver_version: 13_000, driver: None, cards: cards.iter().map(card).collect() };
    Cards::new(&probe, cards).expect("a table")
}

//! The look itself, from the thread that asks NVML: what each card and each process does, and what the ledgers count
//! around that moment.
//!
//! NVML and the ledgers can't be read at one instant, and a program may allocate and free a thousand times in between.
//! So the ledgers are read several times around NVML's answer, and the most they counted is what counts: a ledger
//! never counts less than its pod holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpupool_core::pool::PodId;

use super::mapped::why_not_held;
use super::{GpuProcess, WhyNotHeld};
use crate::cards::watch::{Look, Watch};
use crate::pages::LedgerFile;
use crate::peer::HeldProcess;
use crate::procfs::{Proc, ProcessKey};

/// How often the cards are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// How often the ledgers are read before NVML answers, and again afterwards.
const READS: usize = 4;

/// What lies between two of these.
const BETWEEN_READS: Duration = Duration::from_millis(1);

/// The ledgers of all pods, where both the pool's task and the observing thread reach them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledgers(Arc<Mutex<BTreeMap<PodId, Arc<LedgerFile>>>>);

impl Ledgers {
    /// From now on these are the ledgers.
    pub(crate) fn replace(&self, ledgers: BTreeMap<PodId, Arc<LedgerFile>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ledgers;
    }

    /// Raises each pod's figure to what its ledger counts now, in bytes.
    fn raise(&self, most: &mut BTreeMap<PodId, u64>) {
        let ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (pod, ledger) in ledgers {
            let Some(counted) = ledger.with(|ledger| ledger.charged()) else { continue };
            let figure = most.entry(pod).or_default();
            *figure = counted.max(*figure);
        }
    }
}

/// A process that NVML shows on a card of the pool, known by more than its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The process.
    pub(crate) key: ProcessKey,
    /// Where it is and what it takes.
    pub(crate) process: GpuProcess,
    /// Why the shim does not hold it, if it does not.
    pub(crate) why_not_held: WhyNotHeld,
}

/// One look at everything.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// The cards.
    pub(crate) looks: Vec<Look>,
    /// The processes on them that were still there afterwards.
    pub(crate) sightings: Vec<Sighting>,
    /// The most that each pod's ledger counted meanwhile, in bytes.
    pub(crate) counted: BTreeMap<PodId, u64>,
}

/// Looks at the cards and at who uses them.
#[derive(Debug)]
pub(crate) struct Observer {
    watch: Watch,
    ledgers: Ledgers,
    proc: Proc,
    /// What was found of those that were seen last time: a map is long, and a program's preload does not change.
    known: BTreeMap<ProcessKey, WhyNotHeld>,
}

impl Observer {
    /// Looks through an open NVML and at these ledgers.
    pub(crate) fn new(watch: Watch, ledgers: Ledgers) -> Self {
        Self { watch, ledgers, proc: Proc::default(), known: BTreeMap::new() }
    }

    /// Looks once a second for as long as `tell` wants to hear more, from a thread of its own: a card that hangs may
    /// keep a question waiting for long, and must not keep the pool waiting.
    pub(crate) fn run(mut self, tell: impl Fn(Observation) -> bool + Send + 'static) -> std::io::Result<()> {
        let looking = move || {
            while tell(self.observe()) {
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("cards".to_owned()).spawn(looking).map(drop)
    }

    fn observe(&mut self) -> Observation {
        let mut counted = BTreeMap::new();
        self.read_ledgers(&mut counted);
        let looks = self.watch.look();
        self.read_ledgers(&mut counted);
        let sightings = looks.iter().flat_map(|look| self.sightings_on(look)).collect::<Vec<_>>();
        self.known = sightings.iter().map(|seen| (seen.key, seen.why_not_held)).collect();
        Observation { looks, sightings, counted }
    }

    fn read_ledgers(&self, most: &mut BTreeMap<PodId, u64>) {
        for _ in 0..READS {
            self.ledgers.raise(most);
            std::thread::sleep(BETWEEN_READS);
        }
    }

    fn sightings_on(&self, look: &Look) -> Vec<Sighting> {
        let sighting = |(pid, bytes): &(u32, Option<u64>)| {
            // Gone meanwhile, or outside this view of processes.
            let key = HeldProcess::by_id(&self.proc, *pid).ok()?.key;
            let known = self.known.get(&key).copied();
            Some(Sighting {
                key,
                process: GpuProcess { pid: *pid, card: look.card.clone(), bytes: *bytes },
                why_not_held: known.unwrap_or_else(|| why_not_held(&self.proc, key)),
            })
        };
        look.processes.iter().filter_map(sighting).collect()
    }
}

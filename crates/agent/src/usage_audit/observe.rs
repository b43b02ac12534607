//! The look itself, from the thread that asks NVML: what each card and each process does, and what the ledgers count
//! around that moment.
//!
//! NVML and the ledgers can't be read at one instant, and a program may allocate and free a thousand times in between.
//! So the ledgers are read several times around NVML's answer, and the most they counted is what counts: a ledger
//! never counts less than its pod holds.
//!
//! In between the pool's task may ask for a look at who is on the cards, and for nothing else: it reads no ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use gpupool_core::pool::{CardUuid, PodId, Timestamp};

use super::mapped::why_not_held;
use super::{GpuProcess, WhyNotHeld};
use crate::cards::watch::{Look, Watch};
use crate::clock::BootClock;
use crate::pages::LedgerFile;
use crate::peer::HeldProcess;
use crate::procfs::{Proc, ProcessKey};
use crate::worker::{NOBODY_LISTENS, Workers};

/// How often the cards are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// How much of the time looks that are asked for can take at most: one in so long, whoever makes the agent ask.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

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

/// One look at who is on the cards.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// When it began. Whoever hears of it may have been stopped since, or the whole machine asleep.
    pub(crate) began: Timestamp,
    /// The cards of which NVML said who is there.
    pub(crate) seen: BTreeSet<CardUuid>,
    /// The processes on them that were still there afterwards.
    pub(crate) sightings: Vec<Sighting>,
    /// The last request for a look that came before this one began; 0 where none did.
    pub(crate) answers: u64,
    /// What else a look in its turn shows; nothing in one that was asked for in between.
    pub(crate) regular: Option<Regular>,
}

/// What is looked at once a second only.
#[derive(Debug, Default)]
pub(crate) struct Regular {
    /// The cards.
    pub(crate) looks: Vec<Look>,
    /// The most that each pod's ledger counted meanwhile, in bytes.
    pub(crate) counted: BTreeMap<PodId, u64>,
}

/// Asks for looks in between.
#[derive(Debug)]
pub(crate) struct LookRequests {
    last: u64,
    sender: mpsc::Sender<u64>,
}

impl LookRequests {
    /// The second value is for the [`Observer`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<u64>) {
        let (sender, requests) = mpsc::channel();
        (Self { last: 0, sender }, requests)
    }

    /// The number of the next request. Whoever is told it waits for an [`Observation::answers`] of at least as much, that
    /// is for a look that begins after this was asked.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Sends the next request.
    pub(crate) fn send(&mut self) {
        self.last += 1;
        // An observer that has ended looks no more, and what has not been seen is not granted.
        let _ = self.sender.send(self.last);
    }
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

    /// Looks once a second, and when asked to, for as long as `tell` wants to hear more, from a thread of its own: a
    /// card that hangs may keep a question waiting for long, and must not keep the pool waiting.
    pub(crate) fn run(
        mut self,
        workers: &Workers,
        requests: mpsc::Receiver<u64>,
        tell: impl Fn(Observation) -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        workers.start("cards", move || {
            let (mut answers, mut next_regular) = (0, Instant::now());
            loop {
                let begin = Instant::now();
                answers = requests.try_iter().last().unwrap_or(answers);
                let regular = begin >= next_regular;
                if regular {
                    next_regular = begin + PERIOD;
                }
                if !tell(self.observe(answers, regular)) {
                    return NOBODY_LISTENS.to_owned();
                }
                match requests.recv_timeout(next_regular.saturating_duration_since(Instant::now())) {
                    Ok(request) => {
                        answers = request;
                        std::thread::sleep(BETWEEN_LOOKS.saturating_sub(begin.elapsed()));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(PERIOD),
                }
            }
        })
    }

    fn observe(&mut self, answers: u64, regular: bool) -> Observation {
        let began = BootClock.read();
        let (processes, regular) = if regular {
            let mut counted = BTreeMap::new();
            self.read_ledgers(&mut counted);
            let looks = self.watch.look();
            self.read_ledgers(&mut counted);
            let processes = looks.iter().map(|look| (look.card.clone(), look.processes.clone())).collect();
            (processes, Some(Regular { looks, counted }))
        } else {
            (self.watch.processes(), None)
        };
        let seen = processes.iter().filter(|(_, processes)| processes.is_some());
        let seen = seen.map(|(card, _)| card.clone()).collect();
        let listed = processes.iter().filter_map(|(card, processes)| Some((card, processes.as_ref()?)));
        let sightings: Vec<_> = listed.flat_map(|(card, list)| self.sightings_on(card, list)).collect();
        self.known = sightings.iter().map(|seen| (seen.key, seen.why_not_held)).collect();
        Observation { began, seen, sightings, answers, regular }
    }

    fn read_ledgers(&self, most: &mut BTreeMap<PodId, u64>) {
        for _ in 0..READS {
            self.ledgers.raise(most);
            std::thread::sleep(BETWEEN_READS);
        }
    }

    fn sightings_on(&self, card: &CardUuid, processes: &[(u32, Option<u64>)]) -> Vec<Sighting> {
        let sighting = |(pid, bytes): &(u32, Option<u64>)| {
            // Gone meanwhile, or outside this view of processes.
            let key = HeldProcess::by_id(&self.proc, *pid).ok()?.key;
            let known = self.known.get(&key).copied();
            Some(Sighting {
                key,
                process: GpuProcess { pid: *pid, card: card.clone(), bytes: *bytes },
                why_not_held: known.unwrap_or_else(|| why_not_held(&self.proc, key)),
            })
        };
        processes.iter().filter_map(sighting).collect()
    }
}

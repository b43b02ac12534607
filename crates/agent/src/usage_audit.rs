//! What NVML shows of each pod, held against what the pod's ledger counts.
//!
//! The shim counts what it sees. What goes past it (a library that binds to the driver by itself, a program without
//! the shim) NVML still shows, and so does a driver that takes more than anybody counted. Looks come in here, once a
//! second, and [`Finding`]s go out, each one once: this room reads no clock, no file and no ledger, knows nothing of NVML
//! and signals nobody.

pub(crate) mod mapped;
pub(crate) mod observe;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use gpupool_core::pool::{CardUuid, PodId};
use serde::{Deserialize, Serialize};

/// How many looks in a row must show the same before it counts as lasting: what NVML says is some milliseconds older
/// than what the ledger says.
pub(crate) const LOOKS: usize = 3;

/// What NVML may show of a pod, or of all strangers on a card together, beyond what is counted or allowed, in bytes.
///
/// Contexts are charged as measured on this machine and explicit memory to the byte, so what is left are drivers'
/// buffers that a program's code brings along, and a display server without a screen: some MiB each. A bare context is
/// several times as large. It is one figure whatever the number of processes: otherwise many small ones would hide
/// what a large one takes.
pub(crate) const TOLERANCE: u64 = 64 << 20;

/// Why the shim does not hold a GPU process, as far as its memory map tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WhyNotHeld {
    /// The program has no dynamic loader, so nothing can be preloaded into it.
    StaticProgram,
    /// The program is for 32-bit machines, and the shim for 64-bit ones.
    ThirtyTwoBit,
    /// The program's loader is not glibc's, for which the shim is made.
    OtherLoader,
    /// The shim is not loaded: the preload was removed, or the program runs with privileges that ignore it.
    ShimNotLoaded,
    /// The shim is loaded, and the driver was reached past it: `RTLD_DEEPBIND`, `dlmopen`, or a driver of its own.
    PastTheShim,
    /// The shim in it speaks no version of the protocol that the agent speaks, and the agent was told to let such programs
    /// run.
    OtherVersion,
    /// Its memory map can't be read.
    Unknown,
}

impl fmt::Display for WhyNotHeld {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::StaticProgram => "it is a static program, into which nothing can be preloaded",
            Self::ThirtyTwoBit => "it is a 32-bit program, and the shim is for 64-bit ones",
            Self::OtherLoader => "its loader is not glibc's, for which the shim is made",
            Self::ShimNotLoaded => "the shim is not loaded in it",
            Self::PastTheShim => "it reaches the driver past the shim (RTLD_DEEPBIND or dlmopen)",
            Self::OtherVersion => "the shim in it is of another release, which the agent does not understand",
            Self::Unknown => "its memory map cannot be read",
        })
    }
}

/// A process that NVML shows on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuProcess {
    /// Its id in the agent's pid namespace.
    pub(crate) pid: u32,
    /// The card.
    pub(crate) card: CardUuid,
    /// Device memory it takes there, in bytes; `None` where NVML does not say.
    pub(crate) bytes: Option<u64>,
}

/// One look at one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The pod.
    pub(crate) pod: PodId,
    /// Its GPU processes that the shim holds.
    pub(crate) held: Vec<GpuProcess>,
    /// Those that it does not hold.
    pub(crate) not_held: Vec<(GpuProcess, WhyNotHeld)>,
    /// The most that its ledger counted around this look, in bytes; `None` while nobody has the ledger.
    pub(crate) counted: Option<u64>,
    /// The card that it has a lease of, and what that allows, in bytes.
    pub(crate) lease: Option<(CardUuid, u64)>,
}

impl Reading {
    /// Device memory that NVML shows of the pod, in bytes; `None` where NVML does not say it of every process.
    pub(crate) fn seen(&self) -> Option<u64> {
        self.processes().try_fold(0_u64, |sum, process| Some(sum.saturating_add(process.bytes?)))
    }

    /// Bytes that NVML shows and the ledger does not count; `None` where either is not known.
    pub(crate) fn unaccounted(&self) -> Option<u64> {
        Some(self.seen()?.saturating_sub(self.counted?))
    }

    fn processes(&self) -> impl Iterator<Item = &GpuProcess> {
        self.held.iter().chain(self.not_held.iter().map(|(process, _)| process))
    }

    /// On the card where it takes the most beyond what it may; `None` where NVML does not say it of every process.
    pub(crate) fn taken(&self) -> Option<Taken> {
        self.seen()?;
        let cards: BTreeSet<&CardUuid> = self.processes().map(|process| &process.card).collect();
        let on = |card: &CardUuid| {
            let here = self.processes().filter(|process| process.card == *card);
            let seen = here.filter_map(|process| process.bytes).fold(0, u64::saturating_add);
            let lease = self.lease.as_ref().filter(|(leased, _)| leased == card);
            Taken { seen, limit: lease.map_or(0, |(_, limit)| *limit) }
        };
        Some(cards.into_iter().map(on).max_by_key(|taken| taken.excess()).unwrap_or_default())
    }
}

/// What a pod takes of a card's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    /// By what NVML shows.
    pub(crate) seen: u64,
    /// What its lease of that card allows; 0 without one.
    pub(crate) limit: u64,
}

impl Taken {
    fn excess(self) -> u64 {
        self.seen.saturating_sub(self.limit)
    }
}

/// Something that whoever runs the node should hear of. Each is said once, when it has lasted for [`LOOKS`] looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A pod takes more than its ledger counts.
    Unaccounted {
        /// The pod.
        pod: PodId,
        /// The least by which it did so in these looks, in bytes.
        bytes: u64,
    },
    /// That is over.
    Accounted {
        /// The pod.
        pod: PodId,
    },
    /// A pod has a GPU process that the shim does not hold. Said again only after all such were gone.
    NotHeld {
        /// The pod.
        pod: PodId,
        /// The process.
        process: GpuProcess,
        /// Why it is not held.
        why: WhyNotHeld,
    },
    /// A pod takes more than its lease allows, by what NVML shows: its ledger, which it can write, says nothing here.
    /// Said at every look for as long as it lasts.
    OverLimit {
        /// The pod.
        pod: PodId,
        /// What it took in that of these looks in which it was over the least.
        taken: Taken,
    },
    /// A process of no pod uses a card of the pool.
    Stranger(GpuProcess),
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaccounted { pod, bytes } => {
                write!(
                    out,
                    "{pod} takes {} MiB of its card that its ledger does not count",
                    mebibytes(*bytes)
                )
            }
            Self::Accounted { pod } => write!(out, "{pod} takes no more than its ledger counts again"),
            Self::NotHeld { pod, process, why } => {
                write!(out, "process {} of {pod} uses a card and is not held: {why}", process.pid)
            }
            Self::OverLimit { pod, taken: Taken { seen, limit: 0 } } => {
                write!(out, "{pod} takes {} MiB of a card and holds no lease", mebibytes(*seen))
            }
            Self::OverLimit { pod, taken: Taken { seen, limit } } => {
                let (seen, limit) = (mebibytes(*seen), mebibytes(*limit));
                write!(out, "{pod} takes {seen} MiB of its card, and its limit is {limit} MiB")
            }
            Self::Stranger(process) => {
                let taken = match process.bytes {
                    Some(bytes) => format!(" and takes {} MiB there", mebibytes(bytes)),
                    None => String::new(),
                };
                write!(out, "process {} of no pod uses card {}{taken}", process.pid, process.card)
            }
        }
    }
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

/// What the last looks showed.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pods: BTreeMap<PodId, Account>,
    /// How often in a row a process of no pod was seen.
    strangers: BTreeMap<(CardUuid, u32), usize>,
}

/// The last looks at one pod.
#[derive(Debug, Default)]
struct Account {
    looks: VecDeque<Look>,
    unaccounted: bool,
    /// How often in a row a process was seen that is not held.
    not_held: BTreeMap<u32, usize>,
    said_not_held: bool,
}

/// What one look left behind. One that did not see everything has no figures, and nothing follows from it.
#[derive(Debug, Clone, Copy)]
struct Look {
    figures: Option<Figures>,
    taken: Option<Taken>,
}

#[derive(Debug, Clone, Copy)]
struct Figures {
    seen: u64,
    counted: u64,
}

impl Accounts {
    /// Takes in one look at all pods that NVML shows something of, and at the processes of no pod.
    pub(crate) fn look(&mut self, readings: &[Reading], strangers: &[GpuProcess]) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.pods.retain(|pod, _| readings.iter().any(|reading| reading.pod == *pod));
        for reading in readings {
            self.pods.entry(reading.pod.clone()).or_default().look(reading, &mut findings);
        }
        self.strangers.retain(|(card, pid), _| strangers.iter().any(|it| it.pid == *pid && it.card == *card));
        for stranger in strangers {
            let looks = self.strangers.entry((stranger.card.clone(), stranger.pid)).or_default();
            *looks = looks.saturating_add(1);
            if *looks == LOOKS {
                findings.push(Finding::Stranger(stranger.clone()));
            }
        }
        findings
    }

    /// What was seen of a pod no longer counts: its processes were ended.
    pub(crate) fn forget(&mut self, pod: &PodId) {
        self.pods.remove(pod);
    }
}

impl Account {
    fn look(&mut self, reading: &Reading, findings: &mut Vec<Finding>) {
        let figures = reading.seen().zip(reading.counted);
        self.looks.push_back(Look {
            figures: figures.map(|(seen, counted)| Figures { seen, counted }),
            taken: reading.taken(),
        });
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        self.watch_processes(reading, findings);
        self.watch_ledger(&reading.pod, findings);
        self.watch_limit(&reading.pod, findings);
    }

    fn watch_processes(&mut self, reading: &Reading, findings: &mut Vec<Finding>) {
        self.not_held.retain(|pid, _| reading.not_held.iter().any(|(process, _)| process.pid == *pid));
        self.said_not_held &= !self.not_held.is_empty();
        for (process, why) in &reading.not_held {
            let looks = self.not_held.entry(process.pid).or_default();
            *looks = looks.saturating_add(1);
            if *looks >= LOOKS && !self.said_not_held {
                self.said_not_held = true;
                let pod = reading.pod.clone();
                findings.push(Finding::NotHeld { pod, process: process.clone(), why: *why });
            }
        }
    }

    fn watch_ledger(&mut self, pod: &PodId, findings: &mut Vec<Finding>) {
        let figures: Vec<Figures> = self.looks.iter().filter_map(|look| look.figures).collect();
        if figures.len() < LOOKS {
            return;
        }
        let seen = figures.iter().map(|look| look.seen).min().unwrap_or(0);
        let counted = figures.iter().map(|look| look.counted).max().unwrap_or(0);
        // The least that was seen over the most that was counted: what comes and goes is no excess.
        let bytes = seen.saturating_sub(counted);
        let calm = figures.iter().all(|look| look.seen.saturating_sub(look.counted) <= TOLERANCE);
        if bytes > TOLERANCE && !self.unaccounted {
            self.unaccounted = true;
            findings.push(Finding::Unaccounted { pod: pod.clone(), bytes });
        } else if calm && self.unaccounted {
            self.unaccounted = false;
            findings.push(Finding::Accounted { pod: pod.clone() });
        }
    }

    fn watch_limit(&self, pod: &PodId, findings: &mut Vec<Finding>) {
        let taken: Vec<Taken> = self.looks.iter().filter_map(|look| look.taken).collect();
        let least = taken.iter().min_by_key(|taken| taken.excess()).filter(|_| taken.len() >= LOOKS);
        if let Some(least) = least.filter(|least| least.excess() > TOLERANCE) {
            findings.push(Finding::OverLimit { pod: pod.clone(), taken: *least });
        }
    }
}

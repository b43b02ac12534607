//! The smallest set of pods that makes room on one card.
//!
//! Knows numbers only; who may be chosen at all is decided in [`super::preempt`].

use super::fit::Load;

/// A pod that may be asked to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What its lease gives back.
    pub(super) load: Load,
    pub(super) idle: bool,
}

/// How bad a set is: how many pods it has, then how many of them work. Fewer is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub(super) pods: u32,
    pub(super) busy: u32,
}

impl Cost {
    const NOTHING: Self = Self { pods: 0, busy: 0 };
    const IMPOSSIBLE: Self = Self { pods: u32::MAX, busy: 0 };

    fn with(self, candidate: Candidate) -> Self {
        if self == Self::IMPOSSIBLE {
            return self;
        }
        Self { pods: self.pods + 1, busy: self.busy + u32::from(!candidate.idle) }
    }
}

/// The set of least cost that gives back at least `missing` in both dimensions, as places in `candidates`; of
/// equals the one that takes those that come earlier. `None` when all together don't suffice.
///
/// Exact, by counting for every tail of the list what each shortage costs at best: at most 100 candidates (each
/// holds a percent) times 101 × 101 shortages.
pub(super) fn smallest(missing: Load, candidates: &[Candidate]) -> Option<(Cost, Vec<usize>)> {
    let all = candidates.iter().fold(Load::default(), |sum, candidate| sum.plus(candidate.load));
    if !missing.within(all) {
        return None;
    }
    let tails = tail_costs(missing, candidates);
    let cost = tails.cost(0, missing);
    let mut open = missing;
    let mut chosen = Vec::new();
    for (place, candidate) in candidates.iter().enumerate() {
        let rest = open.beyond(candidate.load);
        if open != Load::default() && tails.cost(place + 1, rest).with(*candidate) == tails.cost(place, open)
        {
            chosen.push(place);
            open = rest;
        }
    }
    Some((cost, chosen))
}

/// For each tail of the candidates and each shortage up to `missing`, the least cost of ending it.
struct TailCosts {
    missing: Load,
    rows: Vec<Vec<Cost>>,
}

impl TailCosts {
    fn cost(&self, tail: usize, open: Load) -> Cost {
        self.rows[tail][place_of(self.missing, open)]
    }
}

/// Where a shortage stands in a row.
const fn place_of(missing: Load, open: Load) -> usize {
    (open.core * (missing.memory + 1) + open.memory) as usize
}

fn tail_costs(missing: Load, candidates: &[Candidate]) -> TailCosts {
    let shortages =
        || (0..=missing.core).flat_map(|core| (0..=missing.memory).map(move |memory| Load { core, memory }));
    let nobody = shortages()
        .map(|open| if open == Load::default() { Cost::NOTHING } else { Cost::IMPOSSIBLE })
        .collect();
    let mut rows: Vec<Vec<Cost>> = vec![nobody];
    for candidate in candidates.iter().rev() {
        let shorter = &rows[rows.len() - 1];
        let row = shortages()
            .map(|open| {
                let left_out = shorter[place_of(missing, open)];
                let taken = shorter[place_of(missing, open.beyond(candidate.load))].with(*candidate);
                left_out.min(taken)
            })
            .collect();
        rows.push(row);
    }
    rows.reverse();
    TailCosts { missing, rows }
}

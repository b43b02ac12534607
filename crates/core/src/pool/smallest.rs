//! The smallest set of pods that makes room on one card.
//!
//! Knows numbers only; who may be chosen at all is decided in [`super::preempt`].

use super::load::Load;

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
    pub(super) const NOTHING: Self = Self { pods: 0, busy: 0 };
    const IMPOSSIBLE: Self = Self { pods: u32::MAX, busy: 0 };

    pub(super) fn with(self, candidate: Candidate) -> Self {
        if self == Self::IMPOSSIBLE {
            return self;
        }
        Self { pods: self.pods + 1, busy: self.busy + u32::from(!candidate.idle) }
    }

    /// What both sets cost together; both can be had.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self { pods: self.pods + other.pods, busy: self.busy + other.busy }
    }
}

/// The set of least cost that gives back at least `missing` in both dimensions, as places in `candidates`; of
/// equals the one that takes those that come earlier. `None` when all together don't suffice.
///
/// Exact: first walks forward over the shortages that can be left after each candidate, taken or not, then back
/// over what ending each of them costs at best. There are at most 101 × 101 of them, and at most 100 candidates
/// (each holds a percent); with the shares that people use there are a handful.
pub(super) fn smallest(missing: Load, candidates: &[Candidate]) -> Option<(Cost, Vec<usize>)> {
    let all = candidates.iter().fold(Load::default(), |sum, candidate| sum.plus(candidate.load));
    if !missing.within(all) {
        return None;
    }
    let levels = costs(candidates, shortages(missing, candidates));
    let cost = levels[0].cost(missing);
    let mut open = missing;
    let mut chosen = Vec::new();
    for (place, candidate) in candidates.iter().enumerate() {
        if open == Load::default() {
            break;
        }
        let rest = open.beyond(candidate.load);
        if levels[place + 1].cost(rest).with(*candidate) == levels[place].cost(open) {
            chosen.push(place);
            open = rest;
        }
    }
    Some((cost, chosen))
}

/// What may still be missing before a candidate is considered, and what ending it costs with those that follow.
struct Level(Vec<(Load, Cost)>);

impl Level {
    fn cost(&self, open: Load) -> Cost {
        let found = self.0.binary_search_by_key(&open, |(shortage, _)| *shortage);
        found.map_or(Cost::IMPOSSIBLE, |place| self.0[place].1)
    }
}

/// The levels before each candidate and after the last, costs yet unknown.
fn shortages(missing: Load, candidates: &[Candidate]) -> Vec<Level> {
    let mut levels = vec![Level(vec![(missing, Cost::IMPOSSIBLE)])];
    for (place, candidate) in candidates.iter().enumerate() {
        let open = levels[place].0.iter().map(|(shortage, _)| *shortage);
        let mut next: Vec<_> = open.flat_map(|open| [open, open.beyond(candidate.load)]).collect();
        next.sort_unstable();
        next.dedup();
        levels.push(Level(next.into_iter().map(|shortage| (shortage, Cost::IMPOSSIBLE)).collect()));
    }
    levels
}

/// Fills in the costs, from the last level back.
fn costs(candidates: &[Candidate], mut levels: Vec<Level>) -> Vec<Level> {
    for place in (0..levels.len()).rev() {
        let (before, after) = levels.split_at_mut(place + 1);
        for (open, cost) in &mut before[place].0 {
            *cost = match (candidates.get(place), after.first()) {
                _ if *open == Load::default() => Cost::NOTHING,
                (Some(candidate), Some(after)) => {
                    after.cost(*open).min(after.cost(open.beyond(candidate.load)).with(*candidate))
                }
                _ => Cost::IMPOSSIBLE,
            };
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All sets that suffice, the best first.
    fn by_trying_all(missing: Load, candidates: &[Candidate]) -> Option<(Cost, Vec<usize>)> {
        let sets = (0_u32..1 << candidates.len()).filter_map(|bits| {
            let places: Vec<_> = (0..candidates.len()).filter(|place| bits & (1 << place) != 0).collect();
            let load = places.iter().fold(Load::default(), |sum, place| sum.plus(candidates[*place].load));
            let cost = places.iter().fold(Cost::NOTHING, |cost, place| cost.with(candidates[*place]));
            missing.within(load).then_some((cost, places))
        });
        sets.min()
    }

    proptest! {
        #[test]
        fn the_smallest_set_is_found(
            core in 0..=100_u32,
            memory in 0..=100_u32,
            pods in proptest::collection::vec((1..40_u32, 1..40_u32, any::<bool>()), 0..11),
        ) {
            let missing = Load { core, memory };
            let candidates: Vec<_> = pods
                .into_iter()
                .map(|(core, memory, idle)| Candidate { load: Load { core, memory }, idle })
                .collect();
            prop_assert_eq!(smallest(missing, &candidates), by_trying_all(missing, &candidates));
        }
    }

    #[test]
    fn a_hundred_of_a_percent_each_are_no_trouble() {
        let one = Candidate { load: Load { core: 1, memory: 1 }, idle: false };
        let (cost, places) = smallest(Load { core: 90, memory: 70 }, &[one; 100]).unwrap();
        assert_eq!(cost, Cost { pods: 90, busy: 90 });
        assert_eq!(places, (0..90).collect::<Vec<_>>());
    }
}

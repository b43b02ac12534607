//! What must be true at every moment, read from the simulated cards and compared with what the agent says.

use std::collections::{BTreeMap, BTreeSet};

use crate::card_holders::{Holder, holders};
use crate::programs::Programs;
use crate::scene::Scene;

/// Fails when a card is over-committed, a pod takes more than its limit, or holds a context without a lease.
pub(crate) fn check(node: &Scene, programs: &Programs) {
    let contexts = Contexts::seen(node, programs);
    check_limits(&contexts.holders, node, programs);
    check_leases(&contexts, node, programs);
}

/// The holders of one moment, and how many rounds their programs had done shortly before.
struct Contexts {
    holders: Vec<Holder>,
    rounds: BTreeMap<String, u64>,
}

impl Contexts {
    fn seen(node: &Scene, programs: &Programs) -> Self {
        let rounds = programs.rounds_by_name();
        Self { holders: holders(node.machine()), rounds }
    }
}

fn check_limits(holders: &[Holder], node: &Scene, programs: &Programs) {
    let mut pods: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for holder in holders {
        if let Some(name) = programs.pod_of(holder.pid) {
            *pods.entry((holder.card, name)).or_default() += holder.memory;
        }
    }
    let mut taken: BTreeMap<usize, u32> = BTreeMap::new();
    for ((card, name), memory) in &pods {
        let limit = programs.limit_of(name);
        *taken.entry(*card).or_default() += limit;
        let total = node.machine().card(*card).expect("the card exists").total_memory();
        let most = total * u64::from(limit) / 100;
        assert!(*memory <= most, "{name} takes {memory} bytes of card {card}, its limit is {most}");
    }
    for (card, limits) in taken {
        assert!(limits <= 100, "limits of {limits} % on card {card}: {pods:?}\n{}", node.describe());
    }
}

/// Whoever has the same context before and after the agent was asked must have had a lease on that card when it was.
/// It is the same context if the program has done no round meanwhile: each round ends with giving its context up.
fn check_leases(before: &Contexts, node: &Scene, programs: &Programs) {
    let status = node.status();
    let after: BTreeSet<(usize, u32)> =
        holders(node.machine()).iter().map(|holder| (holder.card, holder.pid)).collect();
    let leased: BTreeSet<(usize, &str)> = status
        .leases
        .iter()
        .map(|lease| (usize::try_from(lease.card).expect("a card's index is small"), lease.pod.as_str()))
        .collect();
    for holder in before.holders.iter().filter(|holder| after.contains(&(holder.card, holder.pid))) {
        let Some(name) = programs.pod_of(holder.pid) else { continue };
        if before.rounds.get(&name) != Some(&programs.rounds_of(&name)) {
            continue;
        }
        assert!(
            leased.contains(&(holder.card, name.as_str())),
            "{name} (process {}) has a context on card {} and no lease there\n{}",
            holder.pid,
            holder.card,
            node.describe()
        );
    }
}

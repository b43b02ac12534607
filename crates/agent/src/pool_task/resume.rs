//! Taking up where an earlier agent stopped: who still lives is held again, who died meanwhile is released, and the
//! cards and settings are those of today.

use gpupool_core::pool::{Card, Event, PodId, Qos};
use tracing::info;

use super::PoolTask;
use crate::procfs::ProcessKey;
use crate::registry::PodEntry;

impl PoolTask {
    /// Brings what the journal said up to date, and writes it down anew.
    pub(super) fn take_up(&mut self, qos: Qos) {
        // Whatever the earlier agent saw there may have changed: nothing is granted before the first look.
        self.apply(&Event::CardsUnseen);
        let mut ended = self.hold_runs();
        ended.extend(self.hold_processes());
        let pods: Vec<PodId> = self.registry.pods().map(|(pod, _)| pod.clone()).collect();
        for pod in &pods {
            self.find_ledger(pod);
        }
        for key in ended {
            self.process_ended(key);
        }
        for pod in &pods {
            self.retire(pod);
        }
        if self.pool.qos() != qos {
            self.apply(&Event::QosChanged { qos });
        }
        self.compare_cards();
        self.repeat_signals();
        self.continue_stopping();
        self.finish();
        self.write_snapshot();
    }

    /// Holds the `gpupool run` of every pod; gives back those that have ended.
    fn hold_runs(&mut self) -> Vec<ProcessKey> {
        let runs: Vec<(ProcessKey, PodId)> =
            self.registry.pods().filter_map(|(pod, entry)| Some((entry.run?, pod.clone()))).collect();
        let mut ended = Vec::new();
        for (key, pod) in runs {
            let held = self.environment.processes.hold(key);
            match held.map(|held| held.watch_exit(self.environment.exits.clone())) {
                Ok(Ok(())) => self.environment.identity.learn(key, &pod),
                _ => ended.push(key),
            }
            self.members.add_run(key, pod);
        }
        ended
    }

    /// Holds every GPU process; gives back those that have ended.
    fn hold_processes(&mut self) -> Vec<ProcessKey> {
        let processes: Vec<(ProcessKey, PodId)> =
            self.registry.processes().map(|(key, process)| (key, process.pod.clone())).collect();
        let mut ended = Vec::new();
        for (key, pod) in processes {
            let held = self.environment.processes.hold(key);
            match held.map(|held| self.hold_again(key, held)) {
                Ok(Ok(())) => self.environment.identity.learn(key, &pod),
                _ => ended.push(key),
            }
        }
        ended
    }

    /// Cards may have come, gone or fallen off the bus.
    fn compare_cards(&mut self) {
        let known: Vec<_> = self.pool.cards().map(|card| (card.uuid.clone(), card.lost)).collect();
        for (card, lost) in &known {
            match self.environment.cards.find(card) {
                None if !lost => {
                    info!("card {card} is not on this machine any more: it counts as lost");
                    self.apply(&Event::CardLost { card: card.clone() });
                }
                Some(_) if *lost => self.apply(&Event::CardBack { card: card.clone() }),
                _ => {}
            }
        }
        let new: Vec<Card> = self
            .environment
            .cards
            .for_pool()
            .into_iter()
            .filter(|card| known.iter().all(|(known, _)| *known != card.uuid))
            .collect();
        for card in new {
            self.apply(&Event::CardAdded { card });
        }
    }

    /// The earlier agent may have been killed between a decision and its signals.
    fn repeat_signals(&mut self) {
        let ending: Vec<(PodId, bool)> = self
            .pool
            .leases()
            .filter_map(|lease| Some((lease.pod.clone(), lease.ending?.killed_at.is_some())))
            .collect();
        for (pod, killed) in ending {
            self.end_holders(&pod, killed);
        }
    }

    fn continue_stopping(&mut self) {
        let stopping: Vec<(PodId, PodEntry)> = self
            .registry
            .pods()
            .filter(|(_, entry)| entry.stopping && entry.reference.is_none())
            .map(|(pod, entry)| (pod.clone(), entry.clone()))
            .collect();
        for (pod, entry) in stopping {
            self.begin_stop(&pod, &entry);
        }
    }
}

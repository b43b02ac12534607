//! The processes that are known by pidfd: the pods' GPU programs, and the `gpupool run` of each pod.

use std::collections::BTreeMap;

use gpupool_core::pool::{PodId, Timestamp};

use crate::environment::ProcessHandle;
use crate::event::ConnectionId;
use crate::procfs::ProcessKey;

/// A GPU program that is held by its pidfd.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) held: Box<dyn ProcessHandle>,
    pub(super) connection: Option<ConnectionId>,
    /// It has asked for a card on this connection and was not answered yet. One question, one answer: a grant that
    /// nobody asked for would be taken for the answer to a later question.
    pub(super) asked: bool,
    /// Until when it must ask again, or count as not waiting any more.
    pub(super) confirm_by: Option<Timestamp>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Members {
    programs: BTreeMap<ProcessKey, Member>,
    runs: BTreeMap<ProcessKey, PodId>,
}

impl Members {
    pub(super) fn get(&self, key: &ProcessKey) -> Option<&Member> {
        self.programs.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ProcessKey) -> Option<&mut Member> {
        self.programs.get_mut(key)
    }

    pub(super) fn contains_key(&self, key: &ProcessKey) -> bool {
        self.programs.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: ProcessKey, member: Member) {
        self.programs.insert(key, member);
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) -> Option<Member> {
        self.programs.remove(key)
    }

    /// Where a program waits for the answer to its question, which it gets now.
    pub(super) fn answer(&mut self, key: ProcessKey) -> Option<ConnectionId> {
        let member = self.programs.get_mut(&key).filter(|member| member.asked)?;
        let connection = member.connection?;
        member.asked = false;
        Some(connection)
    }

    /// Those that have not come back in time; each is given once.
    pub(super) fn take_silent(&mut self, now: Timestamp) -> Vec<ProcessKey> {
        let late = |member: &Member| member.confirm_by.is_some_and(|deadline| deadline <= now);
        let mut silent = Vec::new();
        for (key, member) in self.programs.iter_mut().filter(|(_, member)| late(member)) {
            member.confirm_by = None;
            silent.push(*key);
        }
        silent
    }

    /// The pod whose `gpupool run` this process is.
    pub(super) fn run_of(&self, key: ProcessKey) -> Option<&PodId> {
        self.runs.get(&key)
    }

    pub(super) fn add_run(&mut self, key: ProcessKey, pod: PodId) {
        self.runs.insert(key, pod);
    }

    pub(super) fn remove_run(&mut self, key: ProcessKey) -> Option<PodId> {
        self.runs.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::LivingProcess;

    const KEY: ProcessKey = ProcessKey { pid: 7, start: 1 };

    fn one(connection: Option<ConnectionId>, confirm_by: Option<Timestamp>) -> Members {
        let mut members = Members::default();
        members
            .insert(KEY, Member { held: Box::new(LivingProcess(KEY)), connection, asked: true, confirm_by });
        members
    }

    #[test]
    fn one_question_has_one_answer() {
        let mut members = one(Some(ConnectionId(3)), None);
        assert_eq!(members.answer(KEY), Some(ConnectionId(3)));
        assert_eq!(members.answer(KEY), None);
    }

    #[test]
    fn a_question_without_a_connection_stays_open() {
        let mut members = one(None, None);
        assert_eq!(members.answer(KEY), None);
        members.get_mut(&KEY).unwrap().connection = Some(ConnectionId(4));
        assert_eq!(members.answer(KEY), Some(ConnectionId(4)));
    }

    #[test]
    fn who_does_not_come_back_is_given_up_once_and_not_before_its_time() {
        let mut members = one(None, Some(Timestamp(10)));
        assert!(members.take_silent(Timestamp(9)).is_empty());
        assert_eq!(members.take_silent(Timestamp(10)), [KEY]);
        assert!(members.take_silent(Timestamp(11)).is_empty());
    }
}

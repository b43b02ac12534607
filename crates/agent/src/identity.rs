//! Who is calling: from a process to the pod it belongs to.
//!
//! Nothing that a process says about itself is believed, neither its words nor its environment. Standalone, a
//! process belongs to the nearest of its ancestors that the agent knows; in a cluster its cgroup says it
//! ([`cgroup`]).

mod cgroup;

use std::collections::BTreeMap;

use gpupool_core::pool::PodId;
use thiserror::Error;

use crate::procfs::{ProcessKey, ProcessTable, Stat};

pub(crate) use cgroup::Cgroups;

/// How often a walk starts again because a process on the way ended under it.
const ATTEMPTS: u32 = 8;

/// How far up the walk goes. Deeper trees than this are somebody's joke.
const DEEPEST: u32 = 1024;

/// Why a caller has no pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Stranger {
    /// No ancestor is known.
    #[error(
        "process {0} was not started by gpupool run: start it with gpupool run --core R[:L] --memory R[:L] -- command"
    )]
    Unregistered(u32),
    /// It ended before it could be looked at.
    #[error("process {0} has ended")]
    Gone(u32),
    /// The tree above it never stood still.
    #[error("the ancestors of process {0} change too fast to be followed: try again")]
    Restless(u32),
    /// In a cluster: its cgroup is no pod's.
    #[error("process {0} is in no pod of this node: where Kubernetes shares the cards, only pods get one")]
    NoPod(u32),
}

/// Finds the pod of a process.
pub(crate) trait Identify: std::fmt::Debug {
    /// The pod that `caller` belongs to. The caller is alive: somebody holds its pidfd and looked; where its
    /// parent's id is known from then, it need not be looked up.
    fn pod_of(&self, caller: ProcessKey, parent: Option<u32>) -> Result<PodId, Stranger>;

    /// From now on `process` and its descendants belong to `pod`, unless something else is known of them.
    fn learn(&mut self, _process: ProcessKey, _pod: &PodId) {}

    /// `process` has ended.
    fn forget(&mut self, _process: ProcessKey) {}
}

/// Standalone identity: the nearest known ancestor, the process itself included.
///
/// Known are the registered `gpupool run` processes and everybody who was found to belong to one, so that a
/// program's children keep their place when `gpupool run` itself was killed.
#[derive(Debug)]
pub(crate) struct Ancestry<P> {
    processes: P,
    known: BTreeMap<ProcessKey, PodId>,
}

impl<P: ProcessTable> Ancestry<P> {
    /// Nobody is known yet.
    pub(crate) fn new(processes: P) -> Self {
        Self { processes, known: BTreeMap::new() }
    }

    fn walk(&self, caller: ProcessKey, parent: Option<u32>) -> Result<Option<&PodId>, Moved> {
        if let Some(pod) = self.known.get(&caller) {
            return Ok(Some(pod));
        }
        let mut here = match parent {
            Some(parent) => Stat { key: caller, parent },
            None => self.look(caller)?,
        };
        for _ in 0..DEEPEST {
            if here.parent == 0 {
                return Ok(None);
            }
            let parent = self.processes.stat(here.parent).ok_or(Moved)?;
            // A parent younger than its child is another process under a dead one's id.
            if parent.key.start > here.key.start {
                return Err(Moved);
            }
            if let Some(pod) = self.known.get(&parent.key) {
                return Ok(Some(pod));
            }
            here = parent;
        }
        Ok(None)
    }

    fn look(&self, key: ProcessKey) -> Result<Stat, Moved> {
        self.processes.stat(key.pid).filter(|stat| stat.key == key).ok_or(Moved)
    }
}

/// A process on the way ended: its children have another parent now.
struct Moved;

impl<P: ProcessTable> Identify for Ancestry<P> {
    fn pod_of(&self, caller: ProcessKey, mut parent: Option<u32>) -> Result<PodId, Stranger> {
        for _ in 0..ATTEMPTS {
            match self.walk(caller, parent.take()) {
                Ok(Some(pod)) => return Ok(pod.clone()),
                Ok(None) => return Err(Stranger::Unregistered(caller.pid)),
                Err(Moved) if self.look(caller).is_err() => return Err(Stranger::Gone(caller.pid)),
                Err(Moved) => {}
            }
        }
        Err(Stranger::Restless(caller.pid))
    }

    fn learn(&mut self, process: ProcessKey, pod: &PodId) {
        self.known.insert(process, pod.clone());
    }

    /// Its children are found through their new parent, or not at all.
    fn forget(&mut self, process: ProcessKey) {
        self.known.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fixture;

    fn key(pid: u32, start: u64) -> ProcessKey {
        ProcessKey { pid, start }
    }

    #[test]
    fn the_nearest_registered_ancestor_decides() {
        let (_place, proc) =
            fixture::of(&[(1, 0, 1), (10, 1, 100), (11, 10, 110), (12, 11, 120), (13, 12, 130)]);
        let mut ancestry = Ancestry::new(proc);
        ancestry.learn(key(10, 100), &"outer".into());
        assert_eq!(ancestry.pod_of(key(13, 130), None), Ok("outer".into()));
        ancestry.learn(key(12, 120), &"inner".into());
        assert_eq!(ancestry.pod_of(key(13, 130), None), Ok("inner".into()));
        assert_eq!(ancestry.pod_of(key(11, 110), None), Ok("outer".into()));
    }

    #[test]
    fn without_a_registered_ancestor_the_refusal_says_what_to_type() {
        let (_place, proc) = fixture::of(&[(1, 0, 1), (10, 1, 100)]);
        let refused = Ancestry::new(proc).pod_of(key(10, 100), None).unwrap_err();
        assert_eq!(refused, Stranger::Unregistered(10));
        assert!(refused.to_string().contains("gpupool run"));
    }

    #[test]
    fn a_registered_process_whose_id_was_given_out_again_lends_its_pod_to_nobody() {
        let (_place, proc) = fixture::of(&[(1, 0, 1), (10, 1, 500), (11, 10, 510)]);
        let mut ancestry = Ancestry::new(proc);
        ancestry.learn(key(10, 100), &"long gone".into());
        assert_eq!(ancestry.pod_of(key(11, 510), None), Err(Stranger::Unregistered(11)));
    }

    #[test]
    fn a_parent_younger_than_its_child_is_never_followed() {
        let (_place, proc) = fixture::of(&[(1, 0, 1), (10, 1, 900), (11, 10, 110)]);
        let mut ancestry = Ancestry::new(proc);
        ancestry.learn(key(10, 900), &"newcomer".into());
        assert_eq!(ancestry.pod_of(key(11, 110), None), Err(Stranger::Restless(11)));
    }

    #[test]
    fn children_of_a_known_member_are_known_after_the_first_ancestor_died() {
        let (_place, proc) = fixture::of(&[(1, 0, 1), (11, 1, 110), (12, 11, 120)]);
        let mut ancestry = Ancestry::new(proc);
        ancestry.learn(key(10, 100), &"a".into());
        ancestry.learn(key(11, 110), &"a".into());
        ancestry.forget(key(10, 100));
        assert_eq!(ancestry.pod_of(key(12, 120), None), Ok("a".into()));
    }

    #[test]
    fn a_parent_that_was_another_meanwhile_is_looked_up_again() {
        let (_place, proc) = fixture::of(&[(1, 0, 1), (10, 1, 100), (11, 10, 110), (12, 1, 900)]);
        let mut ancestry = Ancestry::new(proc);
        ancestry.learn(key(10, 100), &"a".into());
        // 11 had parent 12 when it was held; that has ended, its id belongs to a younger process, and 10 took 11 over.
        assert_eq!(ancestry.pod_of(key(11, 110), Some(12)), Ok("a".into()));
        assert_eq!(ancestry.pod_of(key(11, 110), Some(77)), Ok("a".into()));
    }

    #[test]
    fn a_caller_that_ended_is_called_gone() {
        let (_place, proc) = fixture::of(&[(1, 0, 1)]);
        assert_eq!(Ancestry::new(proc).pod_of(key(99, 5), None), Err(Stranger::Gone(99)));
    }
}

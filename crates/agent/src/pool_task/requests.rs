//! What people ask for: to register a pod, to see how things stand, to stop a pod.

use gpupool_core::pool::{Event, PodId, PodSpec, Refusal};
use tokio::sync::oneshot;
use tracing::warn;

use super::PoolTask;
use crate::admin_api::{RefusalReason, RefusedReply, Register, Registered, Reply, Request};
use crate::event::ConnectionId;
use crate::registry::{PodEntry, Record};

/// Longest name of a pod, in bytes: that of a Kubernetes object.
const LONGEST_NAME: usize = 253;

/// A refusal for a person.
pub(super) fn refused(reason: RefusalReason, sentence: String) -> Reply {
    Reply::Refused(RefusedReply { reason, sentence })
}

impl PoolTask {
    /// Answers a request, at once or when it is done.
    pub(super) fn request(&mut self, from: ConnectionId, request: Request, answer: oneshot::Sender<Reply>) {
        let reply = match request {
            Request::Register(register) => self.register(from, register),
            Request::Status {} => Reply::Status(Box::new(self.status())),
            Request::Stop { name } => match self.stop(from, &PodId::from(name), answer) {
                None => return,
                Some((reply, answer)) => {
                    // Whoever asked may have hung up.
                    let _ = answer.send(reply);
                    return;
                }
            },
            Request::Watch {} => {
                refused(RefusalReason::Malformed, "watch has an answer of its own".to_owned())
            }
        };
        let registered = matches!(reply, Reply::Registered(_));
        if registered {
            // The pod is in the journal before its program starts.
            self.finish();
        }
        // Whoever asked may have hung up.
        let _ = answer.send(reply);
    }

    fn register(&mut self, from: ConnectionId, register: Register) -> Reply {
        if self.cluster.is_some() {
            let sentence =
                "this agent serves the pods of a Kubernetes node: start one with kubectl".to_owned();
            return refused(RefusalReason::Other, sentence);
        }
        if let Err(sentence) = check_name(&register.name) {
            return refused(RefusalReason::Name, sentence);
        }
        let pod = PodId::from(register.name);
        let Some(connection) = self.connections.get(from) else {
            return refused(RefusalReason::Other, "the connection is gone".to_owned());
        };
        let (user, key) = (connection.user, connection.key);
        let spec =
            PodSpec { core: register.core, memory: register.memory, priority: register.priority, card: None };
        // The answer to the first time was lost: the agent was killed in between.
        if self.members.run_of(key) == Some(&pod)
            && self.pool.pod(&pod).is_some_and(|view| *view.spec == spec)
        {
            return Reply::Registered(Registered { simulated: self.settings.simulated.clone() });
        }
        if let Some(mine) = self.members.run_of(key) {
            return refused(RefusalReason::Other, format!("process {} runs `{mine}` already", key.pid));
        }
        if self.registry.pod(&pod).is_some() {
            let sentence =
                format!("`{pod}` is already on this node: choose another name, or wait until it has ended");
            return refused(RefusalReason::Name, sentence);
        }
        let watched = match self.connections.get_mut(from).and_then(|connection| connection.held.take()) {
            Some(held) => held.watch_exit(self.environment.exits.clone()),
            None => return refused(RefusalReason::Other, "this connection is a program's".to_owned()),
        };
        if let Err(failure) = watched {
            return refused(
                RefusalReason::Other,
                format!("the agent cannot watch process {}: {failure}", key.pid),
            );
        }
        if let Err(refusal) = self.step(&Event::PodAdded { pod: pod.clone(), spec }) {
            return refused(reason_of(&refusal), refusal.to_string());
        }
        self.environment.identity.learn(key, &pod);
        self.members.add_run(key, pod.clone());
        let entry = PodEntry { run: Some(key), reference: None, user, ledger: None, stopping: false };
        self.record(Record::Pod { pod: pod.clone(), entry });
        // Ready before a program asks; where that fails now, it is tried again then.
        if let Err(failure) = self.open_files(&pod) {
            warn!("cannot share memory with {pod}: {failure}");
        }
        Reply::Registered(Registered { simulated: self.settings.simulated.clone() })
    }
}

fn reason_of(refusal: &Refusal) -> RefusalReason {
    match refusal {
        Refusal::NoRoom { .. } | Refusal::NoRoomOnCard { .. } | Refusal::NoCardFits { .. } => {
            RefusalReason::NoRoom
        }
        Refusal::PodExists { .. } | Refusal::PodLeaving { .. } => RefusalReason::Name,
        _ => RefusalReason::Other,
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(format!("a name has 1 to {LONGEST_NAME} bytes, and this one has {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("a name has no control characters".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        assert!(check_name("train-41").is_ok());
        assert!(check_name(&"x".repeat(253)).is_ok());
        for wrong in ["", "a\nb", "\u{1b}[31m", &"x".repeat(254)] {
            assert!(check_name(wrong).is_err(), "{wrong:?}");
        }
    }
}

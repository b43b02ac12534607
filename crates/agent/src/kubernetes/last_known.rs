//! What the agent last knew of its node, kept beside the journal: which policy is in force, and the pool's cards.
//!
//! An agent that starts registers with the kubelet by that, before API server and driver have said anything: a kubelet
//! turns a pod away for good when nobody has registered what it asks for. What they say later counts more.

use std::io::ErrorKind;
use std::path::PathBuf;

use gpupool_core::pool::Policy;
use gpupool_core::sharing::PoolCard;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::{info, warn};

use super::node::Known;

/// Form of the file. Another one counts as no file.
const VERSION: u32 = 1;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    policy: Option<Policy>,
    cards: Vec<PoolCard>,
}

/// The file.
#[derive(Debug)]
pub(super) struct LastKnown {
    path: PathBuf,
    content: Option<Content>,
}

impl LastKnown {
    /// Reads it. A file that cannot be understood is as good as none: it is made anew.
    pub(super) fn read(path: PathBuf) -> Self {
        let content = match std::fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).ok().filter(|content: &Content| content.version == VERSION)
            }
            Err(missing) if missing.kind() == ErrorKind::NotFound => None,
            Err(failure) => {
                warn!(
                    "cannot read {}: {failure}; nothing is advertised before the API server answers",
                    path.display()
                );
                None
            }
        };
        Self { path, content }
    }

    /// The policy that was in force.
    pub(super) fn policy(&self) -> Known {
        self.content.as_ref().map_or(Known::NotYet, |content| Known::Policy(content.policy))
    }

    /// The cards that the pool had.
    pub(super) fn cards(&self) -> Vec<PoolCard> {
        self.content.as_ref().map_or_else(Vec::new, |content| content.cards.clone())
    }

    /// Keeps what is known, until the agent goes down.
    pub(super) async fn keep(
        mut self,
        mut policy: watch::Receiver<Known>,
        mut cards: watch::Receiver<Vec<PoolCard>>,
    ) {
        loop {
            let now = (*policy.borrow_and_update(), cards.borrow_and_update().clone());
            if let (Known::Policy(policy), false) = (now.0, now.1.is_empty()) {
                self.write(Content { version: VERSION, policy, cards: now.1 });
            }
            tokio::select! {
                changed = policy.changed() => if changed.is_err() { return },
                changed = cards.changed() => if changed.is_err() { return },
            }
        }
    }

    fn write(&mut self, content: Content) {
        if self.content.as_ref() == Some(&content) {
            return;
        }
        let next = self.path.with_extension("next");
        let written = serde_json::to_vec(&content)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&next, text))
            .and_then(|()| std::fs::rename(&next, &self.path));
        match written {
            Ok(()) => self.content = Some(content),
            // The next change tries again; until then an agent that starts advertises what was.
            Err(failure) => info!("cannot write {}: {failure}", self.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> PoolCard {
        PoolCard { uuid: "GPU-1".to_owned(), index: 0, healthy: true }
    }

    #[tokio::test]
    async fn what_was_known_is_known_to_the_next_agent() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.last-known");
        let first = LastKnown::read(path.clone());
        assert_eq!((first.policy(), first.cards()), (Known::NotYet, vec![]));
        let (policy, known) = watch::channel(Known::NotYet);
        let (cards, health) = watch::channel(Vec::new());
        let keeping = tokio::spawn(first.keep(known, health));
        cards.send_replace(vec![card()]);
        policy.send_replace(Known::Policy(Some(Policy::Static)));
        let next = || LastKnown::read(path.clone());
        while next().cards().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!((next().policy(), next().cards()), (Known::Policy(Some(Policy::Static)), vec![card()]));
        policy.send_replace(Known::Policy(None));
        while next().policy() != Known::Policy(None) {
            tokio::task::yield_now().await;
        }
        // No cards are known for the moment: what was is kept.
        cards.send_replace(Vec::new());
        drop((policy, cards));
        keeping.await.unwrap();
        assert_eq!(next().cards(), [card()]);
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_form_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.last-known");
        for text in [
            "",
            "{",
            r#"{"version":2,"policy":null,"cards":[]}"#,
            r#"{"version":1,"policy":"all","cards":[]}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(LastKnown::read(path.clone()).policy(), Known::NotYet, "{text}");
        }
    }
}

//! The agent's own threads. Each has work for as long as the agent runs. One that ends, because it can't go on or by a
//! panic, is noticed: the agent ends with a sentence, and is started again, instead of running on as half of itself.
//!
//! What the threads do is not known here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use thiserror::Error;
use tokio::sync::mpsc;

/// Why a thread ends that only reports to the pool's task.
pub(crate) const NOBODY_LISTENS: &str = "the pool's task is gone";

/// A thread of the agent that is no more.
#[derive(Debug, Error)]
#[error(
    "the agent's part \"{name}\" has ended: {why}; the agent ends too and must be started again, programs that hold cards go on"
)]
pub struct WorkerEnded {
    /// Which.
    pub(crate) name: &'static str,
    /// What it says itself, or its panic.
    pub(crate) why: String,
}

/// Starts threads.
#[derive(Debug, Clone)]
pub(crate) struct Workers(mpsc::UnboundedSender<WorkerEnded>);

impl Workers {
    /// None yet; the other end hears of those that end.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<WorkerEnded>) {
        let (ended, heard) = mpsc::unbounded_channel();
        (Self(ended), heard)
    }

    /// Starts a thread, of at most 15 bytes' name. What it does gives at its end the reason for it.
    pub(crate) fn start(
        &self,
        name: &'static str,
        work: impl FnOnce() -> String + Send + 'static,
    ) -> std::io::Result<()> {
        let ended = self.0.clone();
        let run = move || {
            let why = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| message(&*panic));
            // Nobody listens when the agent goes down, which is when they end.
            let _ = ended.send(WorkerEnded { name, why });
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(|| "a panic".to_owned(), |text| format!("a panic: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_is_heard_of_whether_it_says_why_or_panics() {
        let (workers, mut ended) = Workers::new();
        workers.start("first", || "nothing left to do".to_owned()).unwrap();
        let first = ended.blocking_recv().unwrap();
        assert_eq!((first.name, first.why.as_str()), ("first", "nothing left to do"));
        workers.start("second", || panic!("number {}", 2)).unwrap();
        let second = ended.blocking_recv().unwrap();
        assert_eq!((second.name, second.why.as_str()), ("second", "a panic: number 2"));
    }
}

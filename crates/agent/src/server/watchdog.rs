//! Asks the pool's task again and again whether it still answers. Where it does not, nothing of the agent is of use to
//! anybody: the agent ends, and is started again.

use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use crate::event::AgentEvent;
use crate::worker::{NOBODY_LISTENS, Workers};

/// Between two looks. A machine that sleeps, or an agent that is stopped, does not count: a look is at most one of them.
const BETWEEN: Duration = Duration::from_secs(1);

/// Looks without an answer after which the agent ends: a minute, in which any disk should have written a journal.
const PATIENCE: u32 = 60;

/// Starts the thread.
pub(super) fn start(
    workers: &Workers,
    task: mpsc::Sender<AgentEvent>,
    drain_log: fn(),
) -> std::io::Result<()> {
    workers.start("watchdog", move || {
        if watch(&task, PATIENCE, || std::thread::sleep(BETWEEN)) == Verdict::Gone {
            return NOBODY_LISTENS.to_owned();
        }
        error!(
            "the pool's task has not answered for {} seconds; the agent ends and must be started again, programs that \
             hold cards go on",
            (BETWEEN * PATIENCE).as_secs()
        );
        drain_log();
        // SAFETY: this ends the process at once, without running anything that could wait for the stuck task.
        unsafe { libc::_exit(1) }
    })
}

/// How the pool's task is.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has ended.
    Gone,
    /// It does not answer.
    Stuck,
}

/// Asks until the task is gone, or has left so many looks in a row without an answer.
fn watch(task: &mpsc::Sender<AgentEvent>, patience: u32, pause: impl Fn()) -> Verdict {
    let mut asked: Option<oneshot::Receiver<()>> = None;
    let mut unanswered = 0;
    while unanswered < patience {
        if asked.as_mut().is_some_and(|answer| answer.try_recv().is_ok()) {
            (asked, unanswered) = (None, 0);
        }
        if asked.is_none() {
            let (answer, answered) = oneshot::channel();
            match task.try_send(AgentEvent::Alive { answer }) {
                Ok(()) => asked = Some(answered),
                // It has much to do, and takes nothing in.
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Closed(_)) => return Verdict::Gone,
            }
        }
        pause();
        unanswered += 1;
    }
    Verdict::Stuck
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_task_that_takes_nothing_in_is_stuck_and_one_that_is_gone_is_gone() {
        let (task, inputs) = mpsc::channel(1);
        assert_eq!(watch(&task, 3, || {}), Verdict::Stuck);
        assert_eq!(inputs.len(), 1, "it is asked once, until it has answered");
        assert_eq!(watch(&task, 3, || {}), Verdict::Stuck, "the inbox is full");
        drop(inputs);
        assert_eq!(watch(&task, 3, || {}), Verdict::Gone);
    }

    #[test]
    fn a_task_that_answers_within_the_patience_is_left_alone() {
        let (task, inputs) = mpsc::channel(1);
        let (inputs, looks) = (std::cell::RefCell::new(inputs), Cell::new(0));
        let pause = || {
            looks.set(looks.get() + 1);
            // Every other look only, and a hundred of them.
            if looks.get() % 2 == 0
                && let Ok(AgentEvent::Alive { answer }) = inputs.borrow_mut().try_recv()
            {
                answer.send(()).unwrap();
            }
            if looks.get() == 100 {
                inputs.borrow_mut().close();
            }
        };
        assert_eq!(watch(&task, 3, pause), Verdict::Gone);
        assert!(looks.get() >= 100);
    }
}

//! Whether the agents answer: each is asked for its status all along, from its own node.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::Request;
use gpupool_agent::admin_api::client::Client;

/// How long nobody may wait for an answer, on a machine that runs two nodes and whatever is done to them.
const LIMIT: Duration = Duration::from_secs(10);

/// What is between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// The threads that ask.
pub(crate) struct Answers {
    stop: Arc<AtomicBool>,
    /// Milliseconds that the slowest answer took.
    slowest: Arc<AtomicU64>,
    given: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Answers {
    /// Asks the agents at these sockets from now on.
    pub(crate) fn watch(sockets: Vec<PathBuf>) -> Self {
        let (stop, slowest, given) = (Arc::default(), Arc::default(), Arc::default());
        let asking = |socket: PathBuf| {
            let (stop, slowest, given) = (Arc::clone(&stop), Arc::clone(&slowest), Arc::clone(&given));
            thread::spawn(move || {
                while !AtomicBool::load(&stop, Ordering::Relaxed) {
                    let asked = Instant::now();
                    // An agent that is killed meanwhile hangs up, which is soon enough.
                    let answered =
                        Client::connect(&socket).and_then(|mut client| client.ask(&Request::Status {}));
                    let took = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
                    AtomicU64::fetch_max(&slowest, took, Ordering::Relaxed);
                    AtomicU64::fetch_add(&given, u64::from(answered.is_ok()), Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            })
        };
        let threads = sockets.into_iter().map(asking).collect();
        Self { stop, slowest, given, threads }
    }

    /// Fails when somebody waited for too long.
    pub(crate) fn check(&self) {
        let slowest = Duration::from_millis(self.slowest.load(Ordering::Relaxed));
        assert!(slowest < LIMIT, "an agent took {slowest:?} to answer");
    }

    /// Ends; gives how many answers there were, and how long the slowest took.
    pub(crate) fn finish(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        (self.given.load(Ordering::Relaxed), Duration::from_millis(self.slowest.load(Ordering::Relaxed)))
    }
}

//! Whether the agents answer: each is asked for its status all along, from its own node.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpupool_testbed::Cluster;

/// How long nobody may wait for an answer, on a machine that runs two nodes and whatever is done to them.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks again and again, and says of each time how it ended and how many milliseconds it took.
const ASKING: &str = r#"while true; do
    before=$(date +%s%3N)
    timeout 30 "$0" status --socket /run/gpupool/agent.sock > /dev/null 2>&1
    echo $? $(($(date +%s%3N) - before))
    sleep 0.2
done"#;

#[derive(Default)]
struct Figures {
    given: AtomicU64,
    /// Milliseconds.
    slowest: AtomicU64,
}

/// A process on each node that asks, and a thread that reads what it says.
pub(crate) struct Answers {
    figures: Arc<Figures>,
    asking: Vec<(Child, JoinHandle<()>)>,
}

impl Answers {
    /// Asks the agents of these nodes from now on.
    pub(crate) fn watch(cluster: &Cluster, nodes: &[&str], gpupool: &Path) -> Self {
        let figures = Arc::new(Figures::default());
        let ask = |node: &&str| {
            let mut command = Command::new("bash");
            command.args(["-c", ASKING]).arg(gpupool).stdout(std::process::Stdio::piped());
            let mut child = cluster.spawn_on(node, command).unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let figures = Arc::clone(&figures);
            let reading =
                thread::spawn(move || lines.map_while(Result::ok).for_each(|line| figures.add(&line)));
            (child, reading)
        };
        let asking = nodes.iter().map(ask).collect();
        Self { figures, asking }
    }

    /// Fails when somebody waited for too long.
    pub(crate) fn check(&self) {
        let slowest = Duration::from_millis(self.figures.slowest.load(Ordering::Relaxed));
        assert!(slowest < LIMIT, "an agent took {slowest:?} to answer");
    }

    /// Ends; gives how many answers there were, and how long the slowest took.
    pub(crate) fn finish(self) -> (u64, Duration) {
        self.check();
        for (mut child, reading) in self.asking {
            child.kill().unwrap();
            child.wait().unwrap();
            reading.join().unwrap();
        }
        let slowest = Duration::from_millis(self.figures.slowest.load(Ordering::Relaxed));
        (self.figures.given.load(Ordering::Relaxed), slowest)
    }
}

impl Figures {
    /// A line of [`ASKING`]. An agent that was killed does not answer, and says so at once.
    fn add(&self, line: &str) {
        let (code, took) = line.split_once(' ').unwrap();
        self.slowest.fetch_max(took.parse().unwrap(), Ordering::Relaxed);
        self.given.fetch_add(u64::from(code == "0"), Ordering::Relaxed);
    }
}

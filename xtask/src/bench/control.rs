//! `gpupool control` on a large cluster: how long until all nodes are right, and what that costs the API server.
//!
//! The controller runs as its own service account with the rights of `deploy/control/rbac.yaml`. Its requests are
//! counted by the API server, in its audit log; every result is read back from the API. Control plane, nodes and
//! controller share this machine, so the times are those of the whole, not of the controller alone.

mod controller;
mod fleet;
mod requests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};

use self::controller::{Controller, Page};
use self::fleet::{Fleet, Use};
use self::requests::Requests;
use super::report::{self, Figure, Line};

/// A fleet as large as Kubernetes supports.
const NODES: usize = 5_000;
/// Another number of nodes, for machines that cannot carry so many.
const NODES_VARIABLE: &str = "GPUPOOL_BENCH_NODES";
/// For how long the idle controller is watched.
const IDLE: Duration = Duration::from_secs(30);
/// How long the controller may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_mins(15);
/// Between two looks at the controller's figures.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn measure(dist: &Path) -> anyhow::Result<()> {
    let count = how_many()?;
    eprintln!("==> gpupool control and {count} nodes (5,000 on two cores usually take four minutes)");
    let fleet = Fleet::start(count)?;
    let started = Instant::now();
    let controller = Controller::start(dist, fleet.kubeconfig(), &fleet.folder().join("control.log"))?;
    let bench = Bench { controller, fleet };
    bench.first_convergence(started)?;
    bench.relabelling()?;
    bench.memory()?;
    bench.idleness()?;
    bench.end()
}

fn how_many() -> anyhow::Result<usize> {
    let Some(text) = std::env::var_os(NODES_VARIABLE) else { return Ok(NODES) };
    let count = text.to_str().and_then(|text| text.parse().ok()).filter(|count| *count > 0);
    count.with_context(|| format!("{NODES_VARIABLE} should be a number of nodes, but is {}", text.display()))
}

/// The running controller goes before its cluster does.
#[derive(Debug)]
struct Bench {
    controller: Controller,
    fleet: Fleet,
}

impl Bench {
    fn first_convergence(&self, started: Instant) -> anyhow::Result<()> {
        let before = Page::default();
        let (right, page) = self.converged(Use::Container, &AtomicBool::new(false))?;
        self.time("start to all right", right.duration_since(started));
        self.work("first convergence", &self.fleet.requests()?, &before, &page);
        Ok(())
    }

    fn relabelling(&self) -> anyhow::Result<()> {
        let before = (self.fleet.requests()?, self.controller.page()?);
        let hopeless = AtomicBool::new(false);
        let (labels, right) = thread::scope(|scope| {
            let right = scope.spawn(|| self.converged(Use::Passthrough, &hopeless));
            let labels = self.fleet.relabel(Use::Passthrough);
            hopeless.store(labels.is_err(), Ordering::Relaxed);
            (labels, right.join().map_err(|_| anyhow!("the thread that waits has panicked")).flatten())
        });
        let (labels, (right, page)) = (labels?, right?);
        self.time("first new label to the last", labels.last.duration_since(labels.first));
        self.time("first new label to all right", right.duration_since(labels.first));
        self.time("last new label to all right", right.duration_since(labels.last));
        self.work("relabelling", &self.fleet.requests()?.since(&before.0), &before.1, &page);
        Ok(())
    }

    /// Waits until the controller has nothing left to do and says that all nodes are right for a use, and reads them
    /// back. Gives the moment at which it said so, and its figures. Gives up when the wait is `hopeless`.
    fn converged(&self, node_use: Use, hopeless: &AtomicBool) -> anyhow::Result<(Instant, Page)> {
        let start = Instant::now();
        loop {
            let page = self.controller.page()?;
            let asked = Instant::now();
            if page.says_all_right(node_use, self.fleet.count()) {
                self.fleet.check(node_use)?;
                return Ok((asked, page));
            }
            ensure!(!hopeless.load(Ordering::Relaxed), "not all nodes were labelled");
            ensure!(
                start.elapsed() < PATIENCE,
                "the nodes are not right after {} s: {page}",
                PATIENCE.as_secs()
            );
            thread::sleep(PAUSE);
        }
    }

    fn memory(&self) -> anyhow::Result<()> {
        let ours = Figure::Bytes(self.controller.peak_memory()?);
        let what = format!("control, {} nodes: peak memory", self.fleet.count());
        report::print(&Line { what, bare: Figure::None, ours, bar: None });
        Ok(())
    }

    fn idleness(&self) -> anyhow::Result<()> {
        let before = self.fleet.requests()?;
        thread::sleep(IDLE);
        let asked = self.fleet.requests()?.since(&before);
        let verdict = if asked.only_lease_and_watches() { "" } else { "; NOT ONLY its lease and watches" };
        report::note(&format!("control, {} idle seconds: {asked}{verdict}", IDLE.as_secs()));
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        let warnings = self.controller.end()?;
        if !warnings.is_empty() {
            report::note(&format!(
                "control: {} warnings in its log, the first: {}",
                warnings.len(),
                warnings[0]
            ));
        }
        self.fleet.end()
    }

    fn time(&self, what: &str, took: Duration) {
        let what = format!("control, {} nodes: {what}", self.fleet.count());
        let ours = Figure::Nanoseconds(took.as_secs_f64() * 1e9);
        report::print(&Line { what, bare: Figure::None, ours, bar: None });
    }

    /// What a phase took: requests as the API server counted them, writes as the controller did.
    fn work(&self, phase: &str, requests: &Requests, before: &Page, after: &Page) {
        #[allow(clippy::cast_precision_loss, reason = "no fleet makes 2^53 requests")]
        let each = requests.total() as f64 / self.fleet.count() as f64;
        report::note(&format!("control, {phase}: {each:.2} requests a node: {requests}"));
        report::note(&format!("control, {phase}: writes by its own figures: {}", after.writes_since(before)));
    }
}

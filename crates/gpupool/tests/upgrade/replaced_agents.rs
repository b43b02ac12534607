//! An agent of one release ends, one of the other starts on its journal and its socket.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::LazyLock;

use gpupool_agent::admin_api::{Hold, Status};

use crate::agent_node::{AgentNode, dist};

/// Each pod may have all of the card, so only one of them can at a time.
const SHARE: &str = "50:100";

/// The release before and this one.
struct Releases {
    before: PathBuf,
    now: PathBuf,
}

/// Both are laid out before anything is started: a program that is being written cannot be.
static RELEASES: LazyLock<Releases> = LazyLock::new(|| {
    let now = dist();
    Releases { before: gpupool_dist::previous_release(&now).unwrap(), now }
});

/// A pod that runs on the one card and one that waits for it, both started by a release.
struct Scene {
    node: AgentNode,
    running: Child,
    waiting: Child,
}

impl Scene {
    fn start(agent: &Path, programs: &Path) -> Self {
        let node = AgentNode::of_release(agent);
        let running = node.program_of(programs, "running", SHARE);
        node.wait_until("the first to run", |status| holds(status, "running"));
        let waiting = node.program_of(programs, "waiting", SHARE);
        node.wait_until("the second to wait", |status| waits(status, "waiting"));
        Self { node, running, waiting }
    }

    /// Everybody is where they were, and held: nothing was lost with the agent.
    fn is_as_before(&self, before: &Status) {
        let after = self.node.wait_until("both to be back", |status| {
            let held =
                |pod: &str| status.pods.iter().any(|it| it.name == pod && it.hold.memory == Hold::Shim);
            holds(status, "running") && waits(status, "waiting") && held("running")
        });
        assert_eq!(after.leases[0].lease, before.leases[0].lease, "the same lease");
        assert_eq!(after.leases[0].card_uuid, before.leases[0].card_uuid);
        let used = |status: &Status| status.leases[0].memory_used_bytes;
        assert!(used(&after) >= Some(1 << 30), "what it holds is still counted: {:?}", used(&after));
        assert!(after.strangers.is_empty(), "{:?}", after.strangers);
    }

    /// The one that runs ends, the one that waits is granted the card and ends too.
    fn the_next_grant_works(self) {
        let Self { node, running, waiting } = self;
        end(running);
        node.wait_until("the next grant", |status| holds(status, "waiting"));
        end(waiting);
        node.wait_until("everybody to be gone", |status| status.leases.is_empty() && status.pods.is_empty());
    }
}

fn holds(status: &Status, pod: &str) -> bool {
    status.leases.iter().any(|lease| lease.pod == pod && lease.memory_used_bytes >= Some(1 << 30))
}

fn waits(status: &Status, pod: &str) -> bool {
    status.queue.iter().any(|entry| entry.pod == pod && entry.position == 1)
}

fn end(mut program: Child) {
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

#[test]
fn programs_of_the_release_before_keep_lease_and_place_under_this_agent() {
    let Releases { before, now } = &*RELEASES;
    let mut scene = Scene::start(before, before);
    let status = scene.node.status();
    scene.node.replace_agent(now);
    scene.is_as_before(&status);
    scene.the_next_grant_works();
}

#[test]
fn programs_of_the_release_before_keep_them_when_their_own_agent_comes_back() {
    let Releases { before, now } = &*RELEASES;
    let mut scene = Scene::start(before, before);
    let status = scene.node.status();
    scene.node.replace_agent(now);
    scene.is_as_before(&status);
    scene.node.replace_agent(before);
    scene.is_as_before(&status);
    scene.the_next_grant_works();
}

#[test]
fn programs_of_this_release_keep_them_under_the_agent_before_and_after_it() {
    let Releases { before, now } = &*RELEASES;
    let mut scene = Scene::start(now, now);
    let status = scene.node.status();
    scene.node.replace_agent(before);
    scene.is_as_before(&status);
    scene.node.replace_agent(now);
    scene.is_as_before(&status);
    scene.the_next_grant_works();
}

#[test]
fn programs_of_either_release_start_under_the_agent_of_the_other() {
    let Releases { before, now } = &*RELEASES;
    Scene::start(now, before).the_next_grant_works();
    Scene::start(before, now).the_next_grant_works();
}

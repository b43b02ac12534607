//! 20 pods contend for 4 cards on two real kubelets while what they depend on fails at random.
//!
//! Every few seconds one of agent, control, kubelet, containerd, API server, scheduler or a pod is killed, stops for a
//! while, or has a worse day (`faults`). Safety is watched all along from the outside, in the simulated cards themselves: no card is promised twice, no pod takes more
//! memory than its limit, and whoever has a context belongs to a pod. Meanwhile a hostile pod on every node does all that
//! its program can do to the agent, its ledger and the cards, and strangers ask control for what they may not have; every
//! agent answers all along. When the faults stop, every pod must get its turn.
//!
//! `GPUPOOL_SOAK_SEED` repeats a run as far as a seed can; `GPUPOOL_SOAK_SECONDS` makes it longer (`cargo xtask soak`).
//! Needs root, and what `cargo xtask dist` builds: done first unless `GPUPOOL_DIST` says where it is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a surprise is a failure")]

mod answers;
#[path = "../fixtures/card_holders.rs"]
mod card_holders;
mod cards;
mod faults;
mod hostile;
mod manifest;
mod pods;
mod strangers;

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpupool_testbed::{Cluster, Kubectl, KubeletNode, Product};
use serde_json::json;

use answers::Answers;
use cards::Watch;
use faults::Faults;
use hostile::Hostile;
use pods::Pods;
use strangers::Strangers;

const NODES: [&str; 2] = ["node-1", "node-2"];
const PODS: usize = 20;
/// How long things are killed before there is quiet, and how long the quiet is.
const KILLING: Duration = Duration::from_secs(30);
/// How long nothing may move before the run counts as stuck.
const PATIENCE: Duration = Duration::from_mins(5);

#[test]
#[ignore = "needs root"]
fn pods_get_their_turns_and_no_card_is_given_twice_whatever_is_killed() {
    let seed = setting("GPUPOOL_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = setting("GPUPOOL_SOAK_SECONDS").unwrap_or(60);
    eprintln!("soak: GPUPOOL_SOAK_SEED={seed} for {seconds} s");
    let mut rng = Rng::with_seed(seed);
    let mut cluster = start(&mut rng);
    let watch = Watch::start(&cluster, &NODES);
    let mut pods = Pods::new(cluster.kubectl_handle(), watch.limits());
    for _ in 0..PODS {
        pods.add(&mut rng);
    }
    everybody_gets_a_turn(&watch, &mut pods);
    let gpupool = gpupool_dist::given_or_built().unwrap().join("bin/gpupool");
    let answers = Answers::watch(&cluster, &NODES, &gpupool);
    let mut hostile = Hostile::new(cluster.kubectl_handle(), watch.limits());
    let strangers = Strangers::start(cluster.kubectl_handle(), rng.u64(..));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut faults = Faults::on(&cluster);
    let (mut count, mut stretches) = (0, 0);
    while Instant::now() < end {
        hostile.renew(&NODES, &mut rng);
        let killing = Instant::now() + KILLING;
        while Instant::now() < killing {
            faults.one(&mut cluster, &mut pods, &mut rng);
            count += 1;
            watch.check(|| pods.told());
            answers.check();
            strangers.check();
            thread::sleep(Duration::from_millis(rng.u64(500..3000)));
        }
        everybody_gets_a_turn(&watch, &mut pods);
        stretches += 1;
    }
    hostile.end();
    let asked_for = strangers.finish();
    let (given, slowest) = answers.finish();
    let looks = watch.finish();
    eprintln!("soak: {count} faults, {stretches} quiet stretches, {looks} looks, 0 violations");
    eprintln!("soak: done: {}", faults.told());
    eprintln!("soak: hostile pods did: {}", hostile.told());
    eprintln!("soak: strangers asked for: {asked_for}");
    eprintln!("soak: {given} answers of agents, the slowest after {slowest:?}");
    assert!(looks > 100, "{looks} looks at the cards are too few to say anything");
    assert!(given > 100, "{given} answers of agents are too few to say anything");
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn start(rng: &mut Rng) -> Cluster {
    let dist = gpupool_dist::given_or_built().unwrap();
    let product = Product::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), dist);
    let mut builder =
        Cluster::builder().image(product.image().unwrap()).image(product.published_image().unwrap());
    let hostile = product.program_image(hostile::IMAGE, "hostile", "crates/gpupool/tests/soak/hostile.c");
    builder = builder.image(hostile.unwrap());
    for node in NODES {
        builder = builder.kubelet_node(
            KubeletNode::new(node)
                .label("alibabacloud.com/gpu-share-policy", "share-pool")
                .cards(product.cards("2")),
        );
    }
    let mut cluster = builder.start().unwrap_or_else(|failure| panic!("{failure}"));
    for node in NODES {
        Faults::small_disk(&cluster, node);
    }
    // Half of the runs end who takes more than its limit; in the others it keeps its card from everybody else.
    let mut arguments = vec!["--grace=2s"];
    arguments.extend(rng.bool().then_some("--evict-unaccounted"));
    let agent = json!({"durationUnit": "1s", "extraArgs": arguments});
    let values = json!({"agent": agent, "control": {"metricsHost": "0.0.0.0"}});
    product.install(&mut cluster, &values).unwrap_or_else(|failure| panic!("{failure}"));
    let quick = r#"alibabacloud.com/gpu-share-qos-config={"podMaxDurationMinutes": 10}"#;
    cluster.kubectl(["annotate", "nodes", "--all", quick]).unwrap();
    cluster
}

/// Waits until every pod has held a card since now.
fn everybody_gets_a_turn(watch: &Watch, pods: &mut Pods) {
    let started = Instant::now();
    watch.forget_turns();
    loop {
        watch.check(|| pods.told());
        pods.replace_finished();
        let waiting = pods.without(&watch.turns());
        if waiting.is_empty() {
            return;
        }
        let late = started.elapsed() > PATIENCE;
        assert!(!late, "these pods got no turn in {PATIENCE:?}: {waiting:?}\n{}", pods.told());
        thread::sleep(Duration::from_millis(500));
    }
}

/// Runs kubectl until it succeeds: the API server or admission may be away at this moment.
fn insist(kubectl: &Kubectl, arguments: &[&str], input: &str) -> String {
    let started = Instant::now();
    loop {
        match kubectl.run(arguments, input) {
            Ok(said) => return said,
            Err(failure) if started.elapsed() > PATIENCE => panic!("{failure}"),
            Err(_) => thread::sleep(Duration::from_millis(500)),
        }
    }
}

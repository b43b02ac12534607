//! The stock: the inventory of the published lab, requests as the scheduler counts them, and why pods wait.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::quantity::Quantity;
use gpupool_core::stock::{
    Explanation, InitContainer, Operator, Outlook, PodPhase, Requirement, Resources, Stock, StockNode,
    StockPod, Taint, TaintEffect, Toleration, explain, inventory, pod_requests,
};

const USE: &str = "nvidia.com/gpu.workload.config";
const A10: &str = "nvidia.com/GA102GL_A10";
const GPU: &str = "nvidia.com/gpu";
const VGPU: &str = "nvidia.com/NVIDIA_A10-12Q";

fn amounts(pairs: &[(&str, &str)]) -> Resources {
    let read = |text: &str| Quantity::parse(text).expect("quantity");
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), read(amount))).collect()
}

fn node(name: &str, label: Option<&str>, resources: &[(&str, &str)]) -> StockNode {
    let labels = label.map(|label| (USE.to_owned(), label.to_owned()));
    StockNode {
        name: name.to_owned(),
        labels: labels.into_iter().collect(),
        ready: true,
        allocatable: amounts(resources),
        capacity: amounts(resources),
        ..StockNode::default()
    }
}

fn lab_nodes() -> Vec<StockNode> {
    vec![
        node("lab-node-0", Some("container"), &[("cpu", "8"), (GPU, "4")]),
        node("lab-node-1", Some("vm-passthrough"), &[("cpu", "8"), (A10, "2")]),
        node("lab-node-2", Some("vm-vgpu"), &[("cpu", "8"), (VGPU, "4"), (GPU, "0")]),
    ]
}

fn pod(name: &str, resource: &str, amount: &str) -> StockPod {
    StockPod {
        namespace: "gpu-vm".to_owned(),
        name: name.to_owned(),
        requests: amounts(&[(resource, amount)]),
        ..StockPod::default()
    }
}

fn on(node: &str, pod: StockPod) -> StockPod {
    StockPod { node: Some(node.to_owned()), phase: PodPhase::Running, ..pod }
}

fn selecting(node_use: &str, pod: StockPod) -> StockPod {
    StockPod { node_selector: [(USE.to_owned(), node_use.to_owned())].into(), ..pod }
}

fn stock(nodes: Vec<StockNode>, pods: &[StockPod]) -> Stock {
    let mut stock = Stock::of(nodes);
    for pod in pods {
        stock.add(pod);
    }
    stock
}

fn lab_pods() -> Vec<StockPod> {
    vec![
        on("lab-node-0", pod("job-container", GPU, "1")),
        on("lab-node-1", pod("vmi-passthrough", A10, "1")),
        on("lab-node-2", pod("vmi-vgpu", VGPU, "1")),
        selecting("vm-passthrough", pod("job-cross", GPU, "1")),
    ]
}

/// Use, resource, nodes, capacity, allocatable, requested, free, waiting.
fn rows(stock: &Stock) -> Vec<String> {
    let text = |row: &gpupool_core::stock::Row| {
        format!(
            "{} {} {} {} {} {} {} {}",
            row.node_use,
            row.resource,
            row.nodes,
            row.capacity,
            row.allocatable,
            row.requested,
            row.free,
            row.waiting
        )
    };
    inventory(stock).rows.iter().map(text).collect()
}

#[test]
fn the_lab_has_a_row_per_use_and_the_pod_across_waits_where_it_wants_to_go() {
    let stock = stock(lab_nodes(), &lab_pods());
    assert_eq!(
        rows(&stock),
        [
            "container nvidia.com/gpu 1 4 4 1 3 0",
            "vm-passthrough nvidia.com/GA102GL_A10 1 2 2 1 1 0",
            "vm-passthrough nvidia.com/gpu 0 0 0 0 0 1",
            "vm-vgpu nvidia.com/NVIDIA_A10-12Q 1 4 4 1 3 0",
        ]
    );
    let idle: Vec<_> = inventory(&stock)
        .idle
        .iter()
        .map(|idle| {
            format!(
                "{} {} {} for {} {} {}",
                idle.free, idle.resource, idle.node_use, idle.waiting, idle.wanted, idle.wanted_use
            )
        })
        .collect();
    assert_eq!(
        idle,
        [
            "3 nvidia.com/gpu container for 1 nvidia.com/gpu vm-passthrough",
            "1 nvidia.com/GA102GL_A10 vm-passthrough for 1 nvidia.com/gpu vm-passthrough",
            "3 nvidia.com/NVIDIA_A10-12Q vm-vgpu for 1 nvidia.com/gpu vm-passthrough",
        ]
    );
}

#[test]
fn allocatable_requested_and_free_are_three_things() {
    let mut nodes = lab_nodes();
    nodes[0].allocatable.insert(GPU.to_owned(), Quantity::whole_units(3));
    nodes.push(StockNode { unschedulable: true, ..node("n3", Some("container"), &[(GPU, "4")]) });
    nodes.push(StockNode { ready: false, ..node("n4", Some("container"), &[(GPU, "4")]) });
    nodes.push(StockNode {
        allocatable: amounts(&[(GPU, "0")]),
        ..node("n5", Some("container"), &[(GPU, "2")])
    });
    nodes.push(node("n6", None, &[(GPU, "8")]));
    nodes.push(node("n7", Some("typo"), &[(A10, "1")]));
    let finished = StockPod { phase: PodPhase::Finished, ..on("lab-node-0", pod("done", GPU, "4")) };
    let gone = on("no-such-node", pod("gone", GPU, "4"));
    let over = on("n5", pod("over", GPU, "2"));
    let stock =
        stock(nodes, &[on("lab-node-0", pod("a", GPU, "2")), finished, gone, over, pod("w", GPU, "1")]);
    let rows = rows(&stock);
    // A node that is cordoned or not ready has nothing free, and one whose plugin went owes what pods still hold.
    assert_eq!(rows[0], "container nvidia.com/gpu 4 14 11 4 1 1");
    assert_eq!(rows[3], "unlabelled nvidia.com/gpu 1 8 8 0 8 0");
    assert_eq!(rows[4], "invalid nvidia.com/GA102GL_A10 1 1 1 0 1 0");
}

#[test]
fn a_queue_without_any_node_has_a_row_of_its_own_where_its_name_belongs() {
    let nodes = vec![node("n", None, &[(GPU, "8")])];
    let stock =
        stock(nodes, &[pod("a", A10, "1"), pod("b", A10, "1"), pod("c", GPU, "9"), pod("d", "cpu", "1")]);
    assert_eq!(
        rows(&stock),
        ["vm-passthrough nvidia.com/GA102GL_A10 0 0 0 0 0 2", "unlabelled nvidia.com/gpu 1 8 8 0 8 1"]
    );
}

#[test]
fn shares_of_cards_are_not_called_idle_beside_the_same_whole_cards() {
    let share = "alibabacloud.com/gpu-core.percentage";
    let nodes = vec![node("n", Some("container"), &[(GPU, "1"), (share, "100")])];
    let stock = stock(nodes, &[on("n", pod("a", share, "100")), pod("b", share, "10")]);
    assert_eq!(rows(&stock)[0], "container alibabacloud.com/gpu-core.percentage 1 100 100 100 0 1");
    assert!(inventory(&stock).idle.is_empty());
}

#[test]
fn requests_are_counted_as_the_scheduler_counts_them() {
    let init = |amount, is_sidecar| InitContainer { requests: amounts(&[(GPU, amount)]), is_sidecar };
    let total = |containers: &[&str], init: &[InitContainer]| {
        let containers: Vec<_> = containers.iter().map(|amount| amounts(&[(GPU, amount)])).collect();
        pod_requests(&containers, init, &Resources::new())
            .get(GPU)
            .copied()
            .unwrap_or(Quantity::ZERO)
            .to_string()
    };
    assert_eq!(total(&["1", "2"], &[]), "3");
    assert_eq!(total(&["1", "2"], &[init("4", false)]), "4", "an init container's peak");
    assert_eq!(total(&["1", "2"], &[init("4", true)]), "7", "a sidecar goes on");
    assert_eq!(
        total(&["1"], &[init("1", true), init("5", false), init("1", true)]),
        "6",
        "the peak beside the first sidecar"
    );
    assert_eq!(total(&[], &[]), "0");
    let overhead = pod_requests(&[amounts(&[("cpu", "1")])], &[], &amounts(&[("cpu", "250m")]));
    assert_eq!(overhead, amounts(&[("cpu", "1250m")]));
}

fn explained(nodes: Vec<StockNode>, others: &[StockPod], asked: &StockPod) -> Explanation {
    let mut stock = stock(nodes, others);
    stock.add(asked);
    explain(&stock, asked)
}

#[track_caller]
fn says(sentences: &[String], words: &[&str]) {
    let all = sentences.join("\n");
    for word in words {
        assert!(all.contains(word), "{word:?} not in {all:?}");
    }
}

#[test]
fn row_35_the_name_is_advertised_only_by_another_use() {
    let message = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu.\n";
    let cross = StockPod {
        scheduler_message: Some(message.to_owned()),
        ..selecting("vm-passthrough", pod("job-cross", GPU, "1"))
    };
    let told = explained(lab_nodes(), &lab_pods(), &cross);
    assert_eq!(told.outlook, Outlook::Stuck);
    assert!(told.headline.starts_with("gpu-vm/job-cross waits"), "{}", told.headline);
    let expected = [
        (
            "excluded by the pod's node selector nvidia.com/gpu.workload.config=vm-passthrough".to_owned(),
            vec!["lab-node-0".to_owned(), "lab-node-2".to_owned()],
        ),
        ("does not have so much nvidia.com/gpu".to_owned(), vec!["lab-node-1".to_owned()]),
    ];
    assert_eq!(told.excluded, expected);
    says(&told.why, &["advertised only by container nodes (lab-node-0)", "node selector"]);
    says(
        &told.helps,
        &["nvidia.com/GA102GL_A10 (1 free)", "take nvidia.com/gpu.workload.config out of the node selector"],
    );
    assert_eq!(told.scheduler.as_deref(), Some("0/3 nodes are available: 1 Insufficient nvidia.com/gpu.\\n"));
}

#[test]
fn row_16_a_shortened_name_is_advertised_nowhere_and_the_nearest_is_told() {
    let nodes = vec![node("n", Some("vm-passthrough"), &[("nvidia.com/TU104GL_TESLA_T4", "4")])];
    let told = explained(nodes, &[], &pod("vm", "nvidia.com/TU104GL_T4", "1"));
    says(&told.why, &["nvidia.com/TU104GL_T4 is advertised by no node", "nvidia.com/TU104GL_TESLA_T4"]);
    says(&told.helps, &["nvidia.com/TU104GL_TESLA_T4 (4 free)"]);
    let elsewhere = explained(lab_nodes(), &[], &pod("vm", "nvidia.com/TU104GL_T4", "1"));
    says(
        &elsewhere.helps,
        &["no plugin makes this name; the nearest that one makes is nvidia.com/TU104GL_TESLA_T4"],
    );
    let known = explained(lab_nodes(), &[], &pod("vm", "nvidia.com/AD102GL_L40S", "1"));
    says(
        &known.helps,
        &[
            "ask for what is advertised: nvidia.com/GA102GL_A10 (2 free), nvidia.com/NVIDIA_A10-12Q (4 free), nvidia.com/gpu (4 free)",
        ],
    );
}

#[test]
fn row_25_a_name_left_at_zero_is_advertised_no_more() {
    let mut nodes = lab_nodes();
    nodes[0].allocatable.insert(GPU.to_owned(), Quantity::ZERO);
    let told = explained(nodes, &[], &pod("job", GPU, "1"));
    says(&told.why, &["stands at zero on lab-node-0, lab-node-2"]);
    says(&told.helps, &["see why the plugin"]);
}

#[test]
fn row_31_a_full_node_is_told_with_who_holds_it_and_what_is_idle_under_other_names() {
    let told = explained(lab_nodes(), &[on("lab-node-0", pod("hog", GPU, "4"))], &pod("job", GPU, "1"));
    says(&told.why, &["taken", "at most 0 is left", "held by gpu-vm/hog"]);
    says(
        &told.helps,
        &[
            "wait for one of them",
            "idle under other names: nvidia.com/GA102GL_A10 (2 free), nvidia.com/NVIDIA_A10-12Q (4 free)",
        ],
    );
    let large = explained(lab_nodes(), &[], &pod("job", GPU, "5"));
    says(&large.why, &["asks for 5 of nvidia.com/gpu, and no node that it selects has more than 4"]);
}

#[test]
fn closed_nodes_are_told_with_what_closes_them() {
    let taint =
        Taint { key: "dedicated".to_owned(), value: "vm".to_owned(), effect: TaintEffect::NoSchedule };
    let tainted = StockNode { taints: vec![taint.clone()], ..node("a", Some("container"), &[(GPU, "4")]) };
    let cordoned = StockNode { unschedulable: true, ..node("b", Some("container"), &[(GPU, "4")]) };
    let broken = StockNode { ready: false, ..node("c", Some("container"), &[(GPU, "4")]) };
    let told = explained(vec![tainted.clone(), cordoned, broken], &[], &pod("job", GPU, "1"));
    assert_eq!(told.outlook, Outlook::Stuck);
    says(&told.helps, &["uncordon", "toleration of dedicated=vm:NoSchedule", "not ready"]);

    for (key, value, effect, tolerated) in [
        (Some("dedicated"), Some("vm"), None, true),
        (Some("dedicated"), None, Some(TaintEffect::NoSchedule), true),
        (None, None, None, true),
        (Some("dedicated"), Some("other"), None, false),
        (Some("dedicated"), None, Some(TaintEffect::NoExecute), false),
        (Some("other"), None, None, false),
    ] {
        let toleration = Toleration { key: key.map(str::to_owned), value: value.map(str::to_owned), effect };
        let tolerant = StockPod { tolerations: vec![toleration.clone()], ..pod("job", GPU, "1") };
        let outlook = explained(vec![tainted.clone()], &[], &tolerant).outlook;
        assert_eq!(outlook, if tolerated { Outlook::Fits } else { Outlook::Stuck }, "{toleration:?}");
    }
    let soft =
        StockNode { taints: vec![Taint { effect: TaintEffect::PreferNoSchedule, ..taint }], ..tainted };
    assert_eq!(explained(vec![soft], &[], &pod("job", GPU, "1")).outlook, Outlook::Fits);
}

#[test]
fn node_affinity_is_read_as_the_scheduler_reads_it() {
    let requirement = |label: Option<&str>, operator, values: &[&str]| Requirement {
        label: label.map(str::to_owned),
        operator,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    let mut labelled = node("a", Some("container"), &[(GPU, "4")]);
    labelled.labels.insert("cards".to_owned(), "4".to_owned());
    let fits = |terms: Vec<Vec<Requirement>>| {
        let picky = StockPod { node_affinity: Some(terms), ..pod("job", GPU, "1") };
        explained(vec![labelled.clone()], &[], &picky).outlook == Outlook::Fits
    };
    for (requirement, holds) in [
        (requirement(Some(USE), Operator::In, &["vm-vgpu", "container"]), true),
        (requirement(Some(USE), Operator::In, &["vm-vgpu"]), false),
        (requirement(Some("none"), Operator::In, &["x"]), false),
        (requirement(Some(USE), Operator::NotIn, &["vm-vgpu"]), true),
        (requirement(Some(USE), Operator::NotIn, &["container"]), false),
        (requirement(Some("none"), Operator::NotIn, &["x"]), true),
        (requirement(Some(USE), Operator::Exists, &[]), true),
        (requirement(Some("none"), Operator::DoesNotExist, &[]), true),
        (requirement(Some("cards"), Operator::Gt, &["3"]), true),
        (requirement(Some("cards"), Operator::Gt, &["4"]), false),
        (requirement(Some("cards"), Operator::Lt, &["5"]), true),
        (requirement(Some(USE), Operator::Gt, &["3"]), false),
        (requirement(None, Operator::In, &["a"]), true),
        (requirement(None, Operator::In, &["b"]), false),
    ] {
        assert_eq!(fits(vec![vec![requirement.clone()]]), holds, "{requirement:?}");
    }
    let (yes, no) =
        (requirement(Some(USE), Operator::Exists, &[]), requirement(Some("none"), Operator::Exists, &[]));
    assert!(fits(vec![vec![no.clone()], vec![yes.clone()]]), "one of the terms");
    assert!(!fits(vec![vec![yes, no]]), "all of a term");
    assert!(!fits(vec![vec![]]) && !fits(vec![]), "an empty term holds nowhere");
}

#[test]
fn a_node_that_lacks_something_else_or_takes_no_more_pods_is_told_so() {
    let nodes = vec![node("a", Some("container"), &[("cpu", "1"), (GPU, "4")])];
    let hungry = StockPod { requests: amounts(&[("cpu", "2"), (GPU, "1")]), ..pod("job", GPU, "1") };
    let told = explained(nodes, &[], &hungry);
    says(&told.why, &["is left, but the nodes that have it lack something else"]);
    assert_eq!(told.excluded[0].0, "does not have so much cpu");
    let full = vec![node("a", Some("container"), &[("pods", "1"), (GPU, "4")])];
    let told = explained(full, &[on("a", pod("other", "cpu", "0"))], &pod("job", GPU, "1"));
    assert_eq!(told.excluded[0].0, "full: no more pods are allowed");
}

#[test]
fn pods_that_do_not_wait_are_told_so() {
    let outlook = |asked: StockPod| explained(lab_nodes(), &[], &asked).outlook;
    assert_eq!(outlook(on("lab-node-0", pod("a", GPU, "1"))), Outlook::Placed);
    assert_eq!(outlook(StockPod { phase: PodPhase::Finished, ..pod("a", GPU, "1") }), Outlook::Placed);
    assert_eq!(outlook(StockPod { gates: vec!["quota".to_owned()], ..pod("a", GPU, "1") }), Outlook::Gated);
    assert_eq!(outlook(pod("a", GPU, "1")), Outlook::Fits);
    assert_eq!(outlook(pod("a", "cpu", "100")), Outlook::Stuck);
}

#[test]
fn hostile_names_stay_in_their_line() {
    let odd = "nvidia.com/\n\u{1b}[2J";
    let nodes = vec![node("n\n1", Some("con\ntainer"), &[(odd, "4")])];
    let told =
        explained(nodes, &[on("n\n1", pod("hog\n", odd, "4"))], &selecting("x\ny", pod("a\nb", odd, "1")));
    let nodes_named = told.excluded.iter().map(|(why, _)| why);
    for line in nodes_named.chain(&told.why).chain(&told.helps).chain([&told.headline]) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

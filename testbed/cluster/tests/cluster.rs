//! Clusters as their users see them: they start, schedule, survive faults and leave nothing behind.
//!
//! The programs are built first if the cache has none: minutes, once, said on standard error.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, ClusterDescription, Error, KwokNode, holder, remove_remains};
use serde_json::json;

/// Nothing here takes more than seconds; a machine may be a hundred times slower.
const LIMIT: &str = "--timeout=180s";

fn pod(name: &str, gpus: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }]},
    })
    .to_string()
}

/// Whether the process exists and has not ended: one that nobody has waited for yet counts as ended.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn pids(description: &ClusterDescription) -> Vec<u32> {
    description.parts.iter().filter_map(|part| part.pid).collect()
}

/// Waits for something that must come; fails with `what` when it does not.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_mins(3), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_scheduler_places_pods_where_the_resource_is_and_says_why_it_cannot() {
    let mut cluster = Cluster::builder()
        .node(KwokNode::new("with-gpus").capacity("nvidia.com/gpu", "4").label("pool", "a"))
        .node(KwokNode::new("without"))
        .start()
        .unwrap();
    cluster.apply(&pod("fits", "4")).unwrap();
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", "pod/fits", LIMIT]).unwrap();
    let node = cluster.kubectl(["get", "pod", "fits", "-o", "jsonpath={.spec.nodeName}"]).unwrap();
    assert_eq!(node, "with-gpus");

    cluster.apply(&pod("waits", "1")).unwrap();
    cluster.kubectl(["wait", "--for=condition=PodScheduled=false", "pod/waits", LIMIT]).unwrap();
    let why =
        ["get", "pod", "waits", "-o", "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}"];
    let why = cluster.kubectl(why).unwrap();
    assert!(why.starts_with("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."), "{why}");

    cluster.add_node(&KwokNode::new("more").capacity("nvidia.com/gpu", "1")).unwrap();
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", "pod/waits", LIMIT]).unwrap();
    let labelled = cluster.kubectl(["get", "nodes", "-l", "pool=a", "-o", "name"]).unwrap();
    assert_eq!(labelled, "node/with-gpus\n");
    cluster.stop().unwrap();
}

#[test]
fn an_api_server_that_crashes_comes_back_on_its_port_with_its_data() {
    let mut cluster =
        Cluster::builder().node(KwokNode::new("n1").capacity("nvidia.com/gpu", "2")).start().unwrap();
    cluster.apply(&pod("before", "1")).unwrap();
    let kubectl = cluster.kubectl_handle();

    cluster.stop_apiserver().unwrap();
    let refused = kubectl.run(["get", "nodes"], "").unwrap_err().to_string();
    assert!(refused.contains("refused"), "{refused}");
    cluster.start_apiserver().unwrap();

    kubectl.run(["wait", "--for=jsonpath={.status.phase}=Running", "pod/before", LIMIT], "").unwrap();
    cluster.apply(&pod("after", "1")).unwrap();
    kubectl.run(["wait", "--for=jsonpath={.status.phase}=Running", "pod/after", LIMIT], "").unwrap();
    cluster.stop().unwrap();
}

#[test]
fn two_clusters_share_nothing_and_leave_nothing() {
    let (one, two) = std::thread::scope(|scope| {
        let start = |name| scope.spawn(move || Cluster::builder().node(KwokNode::new(name)).start().unwrap());
        let (one, two) = (start("one"), start("two"));
        (one.join().unwrap(), two.join().unwrap())
    });
    assert_eq!(one.kubectl(["get", "nodes", "-o", "name"]).unwrap(), "node/one\n");
    assert_eq!(two.kubectl(["get", "nodes", "-o", "name"]).unwrap(), "node/two\n");

    let description = one.description();
    let health = description.health().unwrap();
    assert_eq!(health.len(), 5);
    assert!(health.iter().all(|it| it.trouble.is_none() && it.resident_kib > Some(0)), "{health:?}");
    assert!(pids(&description).iter().all(|pid| listens_on_loopback_only(*pid)), "{description:?}");

    for cluster in [one, two] {
        let (folder, pids) = (cluster.folder().to_owned(), pids(&cluster.description()));
        assert!(folder.is_dir() && pids.len() == 5 && pids.iter().all(|pid| runs(*pid)));
        cluster.stop().unwrap();
        assert!(!folder.exists() && !folder.with_extension("lock").exists());
        assert!(pids.iter().all(|pid| !runs(*pid)));
    }
}

#[test]
fn requests_of_an_audited_user_are_written_down_once_each_and_those_of_others_are_not() {
    let cluster = Cluster::builder().audited("system:serviceaccount:default:default").start().unwrap();
    let kubeconfig = cluster.kubeconfig_of("default", "default").unwrap();
    cluster.kubectl(["get", "--raw=/api/v1/nodes"]).unwrap();
    // The account has no rights: it is refused, and that it asked is written down all the same.
    for resource in ["nodes", "pods"] {
        let raw = format!("--raw=/api/v1/{resource}");
        let file = format!("--kubeconfig={}", kubeconfig.display());
        let refused = cluster.kubectl(["get", &file, &raw]).unwrap_err().to_string();
        assert!(refused.contains("system:serviceaccount:default:default"), "{refused}");
    }
    let log = std::fs::read_to_string(cluster.audit_log()).unwrap();
    let requests: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked: Vec<_> =
        requests.iter().map(|request| (&request["verb"], &request["objectRef"]["resource"])).collect();
    assert_eq!(asked, [(&json!("list"), &json!("nodes")), (&json!("list"), &json!("pods"))]);
    cluster.stop().unwrap();
}

#[test]
fn a_component_that_died_is_named_and_its_log_is_kept() {
    let cluster = Cluster::builder().start().unwrap();
    let description = cluster.description();
    let scheduler =
        description.parts.iter().find(|part| part.name == "kube-scheduler").and_then(|part| part.pid);
    let killed = Command::new("kill").args(["-9", &scheduler.unwrap().to_string()]).status().unwrap();
    assert!(killed.success());
    eventually("the scheduler never ended", || !runs(scheduler.unwrap()));
    let health = description.health().unwrap();
    let troubled: Vec<_> =
        health.iter().filter(|it| it.trouble.is_some()).map(|it| &it.part.name[..]).collect();
    assert_eq!(troubled, ["kube-scheduler"]);

    let folder = cluster.folder().to_owned();
    let Err(Error::Failed { source, logs }) = cluster.stop() else {
        panic!("a dead component went unnoticed")
    };
    assert!(matches!(&*source, Error::Died { name, .. } if name == "kube-scheduler"), "{source}");
    assert!(logs.join("kube-scheduler.log").is_file() && !folder.exists());
    assert!(pids(&description).iter().all(|pid| !runs(*pid)));
    std::fs::remove_dir_all(logs).unwrap();
}

#[test]
fn a_cluster_ends_with_the_process_that_started_it_even_when_that_is_killed() {
    let (mut process, folder) = hold();
    let pids = pids(&ClusterDescription::read(&folder).unwrap().unwrap());
    assert!(pids.len() == 5 && pids.iter().all(|pid| runs(*pid)));
    process.kill().unwrap();
    process.wait().unwrap();
    eventually("a component outlived the process that started it", || !pids.iter().any(|pid| runs(*pid)));
    assert_eq!(holder(&folder).unwrap(), None);
    // Another cluster that is just starting may have removed it already.
    remove_remains(&folder).unwrap();
    assert!(!folder.exists());
}

#[test]
fn a_cluster_can_be_ended_from_outside() {
    let (mut process, folder) = hold();
    let description = ClusterDescription::read(&folder).unwrap().unwrap();
    assert_eq!(holder(&folder).unwrap(), Some(process.id()));
    assert!(description.ready);
    assert!(ClusterDescription::end(&folder).unwrap());
    assert!(!folder.exists() && pids(&description).iter().all(|pid| !runs(*pid)));
    assert!(!ClusterDescription::end(&folder).unwrap());
    process.wait().unwrap();
}

/// Another process that holds a cluster, and the cluster's folder.
fn hold() -> (Child, PathBuf) {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/hold");
    let mut process = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut folder = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut folder).unwrap();
    assert!(!folder.is_empty(), "the holder could not start a cluster; what it said stands above");
    (process, PathBuf::from(folder.trim_end()))
}

/// Whether all TCP sockets that the process listens on are on a loopback address.
fn listens_on_loopback_only(pid: u32) -> bool {
    let own: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let foreign = |table: &str, loopback: &[&str]| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        // Columns: 1 = local address, 3 = state (0A is listening), 9 = inode.
        table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|columns| {
            let local = columns[1].split(':').next().unwrap_or_default();
            columns[3] == "0A" && own.iter().any(|it| it == columns[9]) && !loopback.contains(&local)
        })
    };
    // 127.0.0.1 and ::1 as the kernel prints them on a little-endian machine.
    !foreign("tcp", &["0100007F"]) && !foreign("tcp6", &["00000000000000000000000001000000"])
}

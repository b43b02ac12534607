//! Nodes with a kubelet as their users see them. They need root; the tests with cards also what `cargo xtask dist`
//! builds: done first unless `GPUPOOL_DIST` says where it is.
//!
//! The programs are built first if the cache has none: minutes, once, said on standard error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_testbed::{
    CDI_DEVICE, Cluster, ClusterDescription, DRIVER, Error, Image, KubeletNode, Machine, PUBLISHED_IMAGE,
    Product, STATE, remove_remains,
};
use serde_json::{Value, json};

/// Nothing here takes more than seconds; a machine may be a hundred times slower.
const LIMIT: &str = "--timeout=180s";

/// What a kubelet would set for the whole machine.
const TUNABLES: [&str; 4] =
    ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"];

fn pod(name: &str, node: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": PUBLISHED_IMAGE, "command": command,
        }]},
    })
}

/// The pod with its node's cards, as a pod gets them that no device plugin serves.
fn with_cards(mut pod: Value) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "driver", "hostPath": {"path": DRIVER}}]);
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "driver", "mountPath": DRIVER}]);
    container["env"] = json!([
        {"name": "SIMGPU_STATE", "value": STATE},
        {"name": "LD_LIBRARY_PATH", "value": format!("{DRIVER}/lib")},
        {"name": "PATH", "value": format!("/usr/bin:{DRIVER}/bin")},
    ]);
    pod
}

fn node(cluster: &Cluster, name: &str) -> Value {
    serde_json::from_str(&cluster.kubectl(["get", "node", name, "-o", "json"]).unwrap()).unwrap()
}

fn wait_for_running(cluster: &Cluster, pod: &str) {
    let pod = format!("pod/{pod}");
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", &pod, LIMIT]).unwrap();
}

fn shell(cluster: &Cluster, pod: &str, script: &str) -> String {
    cluster.kubectl(["exec", pod, "--", "bash", "-c", script]).unwrap()
}

/// Waits for something that must come; fails with `what` when it does not.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_mins(3), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn product() -> Product {
    let dist = gpupool_dist::given_or_built().unwrap();
    Product::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), dist)
}

/// Mebibytes in use on the cards that a pod sees, one number a card.
fn used(cluster: &Cluster, pod: &str) -> String {
    shell(cluster, pod, "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | tr '\\n' ' '")
}

#[test]
#[ignore = "needs root"]
fn pods_really_run_and_the_published_machine_is_reported_as_published() {
    let name = "cn-wulanchabu-c.cr-xxx";
    let published =
        KubeletNode::new(name).machine(Machine::PUBLISHED).label("alibabacloud.com/node-type", "reserved");
    let cluster = Cluster::builder()
        .image(Image::new(PUBLISHED_IMAGE).shell().unwrap())
        .kubelet_node(published)
        .start()
        .unwrap();
    let listed = cluster.kubectl(["get", "node", "-l", "alibabacloud.com/node-type=reserved"]).unwrap();
    assert!(listed.contains(name) && listed.contains(" Ready "), "{listed}");
    let status = &node(&cluster, name)["status"];
    for kind in ["capacity", "allocatable"] {
        assert_eq!(status[kind]["cpu"], "176");
        assert_eq!(status[kind]["memory"], "1800Gi");
        assert_eq!(status[kind]["ephemeral-storage"], "6Ti");
    }

    // As published, with requests that only such a machine has room for.
    let script = "echo started; read -r line < /proc/1/comm; echo $line; exec sleep 1000h";
    let mut demo = pod("demo", name, &["bash", "-c", script]);
    demo["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "5", "memory": "50Gi"}});
    cluster.apply(&demo.to_string()).unwrap();
    wait_for_running(&cluster, "demo");
    eventually("the pod's log stayed empty", || {
        cluster.kubectl(["logs", "demo"]).unwrap() == "started\nbash\n"
    });
    assert_eq!(shell(&cluster, "demo", "echo $((6*7))"), "42\n");
    let health = cluster.description().health().unwrap();
    assert!(health.iter().all(|it| it.trouble.is_none()), "{health:?}");
    cluster.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn the_containers_of_a_node_share_its_cards_and_no_other_node_has_them() {
    let product = product();
    let mut builder = Cluster::builder().image(product.published_image().unwrap());
    for name in ["n1", "n2"] {
        builder = builder.kubelet_node(KubeletNode::new(name).cards(product.cards("2xA100-80GB")));
    }
    let cluster = builder.start().unwrap();
    let forever = ["sleep", "1000h"];
    let taker = ["gpu", "init", "retain", "alloc", "1073741824", "sleep", "4000000"];
    for pod in [
        pod("watcher", "n1", &forever),
        pod("taker", "n1", &["bash", "-c", &format!("{} & echo $!; wait", taker.join(" "))]),
        pod("elsewhere", "n2", &forever),
    ] {
        cluster.apply(&with_cards(pod).to_string()).unwrap();
    }
    for pod in ["watcher", "taker", "elsewhere"] {
        wait_for_running(&cluster, pod);
    }
    eventually("the watcher never saw a gibibyte taken in the other container", || {
        let used = used(&cluster, "watcher");
        let first: u32 = used.split(' ').next().unwrap().parse().unwrap();
        first >= 1024
    });
    assert_eq!(used(&cluster, "elsewhere"), "0 0 ");

    // By CDI, and in a reader's own process namespace: a stranger's process has no number there.
    let list = ["bash", "-c", "nvidia-smi --query-compute-apps=pid --format=csv,noheader | tr '\\n' ' '"];
    let by_cdi = cluster.spawn_container("n1", "reader", PUBLISHED_IMAGE, &[CDI_DEVICE], &list).unwrap();
    let by_cdi = by_cdi.wait_with_output().unwrap();
    let taker_pid =
        shell(&cluster, "taker", "pidof() { grep -l '^gpu$' /proc/[0-9]*/comm; }; pidof | cut -d/ -f3");
    let on_node = on_node(&cluster, "n1", list[2]);
    let (inside, by_cdi) = (shell(&cluster, "taker", list[2]), String::from_utf8(by_cdi.stdout).unwrap());
    assert_eq!(inside.trim(), taker_pid.trim(), "on the node: {on_node:?}, elsewhere: {by_cdi:?}");
    let node_pid: u32 = on_node.trim().parse().unwrap();
    let comm = on_node_comm(&cluster, "n1", node_pid);
    assert_eq!(comm.trim(), "gpu");
    assert_ne!(by_cdi.trim(), taker_pid.trim());

    shell(&cluster, "taker", "kill -9 $(grep -l '^gpu$' /proc/[0-9]*/comm | cut -d/ -f3)");
    eventually("a dead container's memory did not come back", || used(&cluster, "watcher") == "0 0 ");
    cluster.stop().unwrap();
}

/// What a shell on the node says, with the node's own driver.
fn on_node(cluster: &Cluster, node: &str, script: &str) -> String {
    let mut shell = Command::new("bash");
    shell
        .args(["-c", script])
        .env("SIMGPU_STATE", STATE)
        .env("LD_LIBRARY_PATH", format!("{DRIVER}/lib"))
        .env("PATH", format!("/usr/bin:/bin:{DRIVER}/bin"))
        .stdout(Stdio::piped());
    let output = cluster.spawn_on(node, shell).unwrap().wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn on_node_comm(cluster: &Cluster, node: &str, pid: u32) -> String {
    on_node(cluster, node, &format!("cat /proc/{pid}/comm"))
}

#[test]
#[ignore = "needs root"]
fn pods_services_and_the_api_server_reach_each_other_across_nodes() {
    let mut builder = Cluster::builder().image(Image::new(PUBLISHED_IMAGE).shell().unwrap());
    for name in ["n1", "n2"] {
        builder = builder.kubelet_node(KubeletNode::new(name));
    }
    let cluster = builder.start().unwrap();
    // etcd is a small HTTP server that is at hand: it says that it is healthy to whoever asks.
    let kube = cluster.description().kubectl.with_file_name("kube");
    let url = "http://0.0.0.0:2379";
    let mut server = pod(
        "server",
        "n1",
        &["/kube/kube", "etcd", "--listen-client-urls", url, "--advertise-client-urls", url],
    );
    server["spec"]["volumes"] = json!([{"name": "kube", "hostPath": {"path": kube.parent().unwrap()}}]);
    server["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "kube", "mountPath": "/kube"}]);
    server["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 2379}, "periodSeconds": 1});
    let mut neighbour = pod("neighbour", "n2", &["sleep", "1000h"]);
    neighbour["spec"]["hostNetwork"] = json!(true);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
        "spec": {"clusterIP": "10.96.0.99", "selector": {"name": "server"},
                 "ports": [{"port": 80, "targetPort": 2379}]},
    });
    for object in [server, neighbour, pod("client", "n2", &["sleep", "1000h"]), service] {
        cluster.apply(&object.to_string()).unwrap();
    }
    for pod in ["server", "neighbour", "client"] {
        cluster.kubectl(["wait", "--for=condition=Ready", &format!("pod/{pod}"), LIMIT]).unwrap();
    }

    // The API server finds the pod behind the service, as it does for a webhook.
    let health = "--raw=/api/v1/namespaces/default/services/server:80/proxy/health";
    assert!(cluster.kubectl(["get", health]).unwrap().contains("true"));
    let ask = "exec 3<>/dev/tcp/10.96.0.99/80 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
    for client in ["client", "neighbour", "server"] {
        eventually("a service's address never answered", || {
            let answer = cluster.kubectl(["exec", client, "--", "timeout", "5", "bash", "-c", ask]);
            answer.is_ok_and(|answer| answer.contains(r#""health":"true""#))
        });
        let api = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT && echo reached";
        assert_eq!(shell(&cluster, client, api), "reached\n");
    }
    cluster.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn containers_survive_the_crash_of_every_component_and_the_cluster_goes_on() {
    let mut cluster = Cluster::builder()
        .image(Image::new(PUBLISHED_IMAGE).shell().unwrap())
        .kubelet_node(KubeletNode::new("n1"))
        .start()
        .unwrap();
    cluster.apply(&pod("before", "n1", &["sleep", "1000h"]).to_string()).unwrap();
    wait_for_running(&cluster, "before");
    let identity = [
        "get",
        "pod",
        "before",
        "-o",
        "jsonpath={.status.containerStatuses[0]['containerID','restartCount']}",
    ];
    let before = cluster.kubectl(identity).unwrap();
    let names: Vec<String> = cluster.description().parts.into_iter().map(|part| part.name).collect();
    for name in names.iter().filter(|name| !name.starts_with("init@")) {
        cluster.kill(name).unwrap();
        cluster.start_again(name).unwrap();
    }
    assert!(cluster.start_again("init@n1").unwrap_err().to_string().contains("n1 is off"));
    assert!(cluster.kill("kubelet@n2").unwrap_err().to_string().contains("kubelet@n1"));

    // With no node given, the scheduler has to be well too.
    let mut after = pod("after", "", &["sleep", "1000h"]);
    after["spec"].as_object_mut().unwrap().remove("nodeName");
    eventually("no pod could be created any more", || cluster.apply(&after.to_string()).is_ok());
    wait_for_running(&cluster, "after");
    assert_eq!(cluster.kubectl(identity).unwrap(), before);
    assert_eq!(shell(&cluster, "before", "echo still here"), "still here\n");

    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "other"}],
    });
    cluster.configure_scheduler(&configuration).unwrap();
    let mut placed = after.clone();
    placed["metadata"]["name"] = json!("placed");
    placed["spec"]["schedulerName"] = json!("other");
    cluster.apply(&placed.to_string()).unwrap();
    wait_for_running(&cluster, "placed");
    cluster.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_rebooted_node_has_lost_its_processes_and_run_and_its_pods_start_anew() {
    let mut cluster = Cluster::builder()
        .image(Image::new(PUBLISHED_IMAGE).shell().unwrap())
        .kubelet_node(KubeletNode::new("n1"))
        .start()
        .unwrap();
    cluster.apply(&pod("plain", "n1", &["sleep", "1000h"]).to_string()).unwrap();
    wait_for_running(&cluster, "plain");
    let [fleeting, lasting] =
        ["/run/fleeting", "/var/lib/lasting"].map(|path| cluster.path_on("n1", path).unwrap());
    for path in [&fleeting, &lasting] {
        std::fs::write(path, "").unwrap();
    }
    let boot_id = |cluster: &Cluster| {
        let mut cat = Command::new("cat");
        cat.arg("/proc/sys/kernel/random/boot_id").stdout(Stdio::piped());
        cluster.spawn_on("n1", cat).unwrap().wait_with_output().unwrap().stdout
    };
    let before = boot_id(&cluster);
    cluster.reboot("n1").unwrap();
    assert!(!fleeting.exists() && lasting.exists());
    let after = boot_id(&cluster);
    assert!(before.len() == 37 && after.len() == 37 && before != after);

    cluster.start_again("kubelet@n1").unwrap();
    let restarts = ["get", "pod", "plain", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"];
    eventually("the pod was not started anew", || cluster.kubectl(restarts).unwrap() == "1");
    wait_for_running(&cluster, "plain");
    eventually("nothing can be run in it", || {
        cluster.kubectl(["exec", "plain", "--", "bash", "-c", "echo here"]).is_ok_and(|said| said == "here\n")
    });
    assert!(cluster.reboot("n2").unwrap_err().to_string().contains("n1"));
    cluster.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_had_is_said_in_a_sentence() {
    use std::os::unix::process::CommandExt;
    let nobody =
        hold(|command| _ = command.uid(65534).gid(65534).env("HOME", "/nonexistent")).output().unwrap();
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(!nobody.status.success() && said.contains("NotRoot"), "{said}");

    let node = KubeletNode::new("n1").cards(product().cards("2xB9000"));
    let error = Cluster::builder().kubelet_node(node).start().unwrap_err();
    let Error::Failed { source, logs } = error else { panic!("{error}") };
    assert!(source.to_string().starts_with("cannot make the simulated cards `2xB9000`: "), "{source}");
    std::fs::remove_dir_all(logs).unwrap();
}

/// The example that holds a cluster with a kubelet's node.
fn hold(change: impl FnOnce(&mut Command)) -> Command {
    let tests = std::env::current_exe().unwrap();
    let mut holder = Command::new(tests.ancestors().nth(2).unwrap().join("examples/hold"));
    holder.arg("--kubelet").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    change(&mut holder);
    holder
}

#[test]
#[ignore = "needs root"]
fn nothing_of_a_killed_cluster_stays_on_the_machine() {
    let before = tunables();
    let mut holder = hold(|command| _ = command.stderr(Stdio::inherit())).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the holder could not start a cluster; what it said stands above");
    let folder = PathBuf::from(line.trim_end());
    let description = ClusterDescription::read(&folder).unwrap().unwrap();
    let init =
        description.parts.iter().find(|part| part.name == "init@n1").and_then(|part| part.pid).unwrap();
    let inside = std::fs::read_link(format!("/proc/{init}/ns/pid_for_children")).unwrap();
    let mounts = std::fs::read_link(format!("/proc/{init}/ns/mnt")).unwrap();
    let device = device_of(&folder);
    let alias = std::fs::read_to_string(format!("/sys/class/net/{device}/ifalias")).unwrap();
    assert_eq!(alias.trim(), gpupool_testbed::control_group(&folder));
    assert!(in_namespace("pid", &inside) >= 3 && in_namespace("mnt", &mounts) >= 3);
    assert_eq!(tunables(), before, "a kubelet's settings reached the machine");

    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("a process of the node outlived the cluster", || {
        in_namespace("pid", &inside) == 0 && in_namespace("mnt", &mounts) == 0
    });
    // Another cluster that is just starting may have removed it already.
    remove_remains(&folder).unwrap();
    assert!(!folder.exists());
    assert_eq!(groups_of(&folder), Vec::<PathBuf>::new());
    let alias = std::fs::read_to_string(format!("/sys/class/net/{device}/ifalias")).unwrap_or_default();
    assert_ne!(alias.trim(), gpupool_testbed::control_group(&folder), "the network device stayed");
    assert_eq!(tunables(), before);
    let mounted = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounted.contains(folder.to_str().unwrap()), "{mounted}");
}

fn tunables() -> Vec<String> {
    TUNABLES.iter().map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap()).collect()
}

/// How many processes are in this namespace.
fn in_namespace(kind: &str, namespace: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    processes
        .filter(|it| std::fs::read_link(it.join("ns").join(kind)).is_ok_and(|it| it == namespace))
        .count()
}

/// The cluster's device on this machine, by the address in its kubeconfig.
fn device_of(folder: &Path) -> String {
    let kubeconfig = std::fs::read_to_string(folder.join("kubeconfig")).unwrap();
    let (_, address) =
        kubeconfig.split_once("https://198.18.").expect("the kubeconfig has the cluster's address");
    format!("gpupool{}", address.split('.').next().unwrap())
}

/// Control groups of the cluster in this folder that still exist.
fn groups_of(folder: &Path) -> Vec<PathBuf> {
    let name = gpupool_testbed::control_group(folder);
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    hierarchies.map(|it| it.join(&name)).filter(|it| it.exists()).collect()
}

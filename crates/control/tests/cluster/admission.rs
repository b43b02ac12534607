//! Admission on a real API server, as kubectl shows it.

use std::net::SocketAddr;
use std::time::Duration;

use gpupool_control::{CertificateLifetimes, Serving};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};

use crate::sandbox;
use crate::scene::{Scene, eventually, shared_cluster};
use crate::served::{CORE, MEMORY, Served, chart, container, pod, said, webhooks};

fn labels() -> Value {
    json!({
        "app": "w", "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
    })
}

/// A template for the kinds that carry one.
fn template(container: &Value, restart: &str) -> Value {
    json!({ "metadata": { "labels": labels() }, "spec": { "containers": [container], "restartPolicy": restart } })
}

fn deployment(limit: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "w" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "w" } },
            "template": template(&container("demo", "10", limit), "Always"),
        },
    })
}

/// The limit's annotation, and request and limit as stored, of the pod at a path.
fn stored(object: &Value, path: &str) -> (Option<String>, String, String) {
    let pod = object.pointer(path).unwrap();
    let annotation = pod["metadata"]["annotations"]["gpupool.io/gpu-core.limit"].as_str().map(str::to_owned);
    let resources = &pod["spec"]["containers"][0]["resources"];
    let text = |list: &str| resources[list][CORE].as_str().unwrap_or_default().to_owned();
    (annotation, text("requests"), text("limits"))
}

fn limit(annotation: &str) -> (Option<String>, String, String) {
    let annotation = (!annotation.is_empty()).then(|| annotation.to_owned());
    (annotation, "10".to_owned(), "10".to_owned())
}

fn in_force(object: &Value) -> &Value {
    &object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_applied_as_often_as_one_likes_and_its_limit_stands() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let manifest = pod("demo", &labels(), &container("demo", "10", "100"));
    served.ok(&["apply", "-f", "-"], &manifest);
    let first = served.get("pod/demo");
    assert_eq!(stored(&first, ""), limit("100"));
    let on_its_nodes = json!([{ "matchExpressions": [
        { "key": "gpupool.io/share-policy", "operator": "In", "values": ["share-pool"] },
    ] }]);
    assert_eq!(in_force(&first), &on_its_nodes);

    served.ok(&["apply", "-f", "-"], &manifest);
    assert_eq!(served.ok(&["diff", "-f", "-"], &manifest), "");
    served.ok(&["label", "pod/demo", "colour=red"], &Value::Null);
    assert_eq!(stored(&served.get("pod/demo"), ""), limit("100"));
    for other in ["50", "10"] {
        let changed = pod("demo", &labels(), &container("demo", "10", other));
        let said = served.refused(&["apply", "-f", "-"], &changed);
        assert!(
            said.contains("the limit of alibabacloud.com/gpu-core.percentage is 100 and can't be changed on a pod: delete the pod and create it anew"),
            "{said}"
        );
    }
    let said = served.refused(&["annotate", "pod/demo", "gpupool.io/card=GPU-1"], &Value::Null);
    assert!(said.contains("annotation gpupool.io/card is written by gpupool alone"), "{said}");
    served.ok(&["delete", "pod/demo", "--now"], &Value::Null);

    let server_side = ["apply", "--server-side", "-f", "-"];
    served.ok(&server_side, &manifest);
    served.ok(&server_side, &manifest);
    assert_eq!(served.ok(&["diff", "--server-side", "-f", "-"], &manifest), "");
    assert_eq!(stored(&served.get("pod/demo"), ""), limit("100"));
    served.ok(&["delete", "pod/demo", "--now"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployments_limit_is_raised_lowered_undone_and_edited() {
    const AT: &str = "/spec/template";
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let apply = |limit: &str| served.ok(&["apply", "-f", "-"], &deployment(limit));
    let now = || served.get("deployment/w");
    apply("100");
    let first = now();
    assert_eq!(stored(&first, AT), limit("100"));
    apply("100");
    assert_eq!(now()["metadata"]["generation"], first["metadata"]["generation"]);
    assert_eq!(served.ok(&["diff", "-f", "-"], &deployment("100")), "");

    // What the controllers make of it comes through as it is.
    eventually("no pod comes", async || {
        let pods = served.get("pods");
        pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|pod| stored(pod, "") == limit("100") && !in_force(pod).is_null())
    })
    .await;
    let replica_sets = || served.get("replicasets")["items"].as_array().unwrap().len();
    assert_eq!(replica_sets(), 1);

    apply("50");
    assert_eq!(stored(&now(), AT), limit("50"));
    eventually("no new replica set comes", async || replica_sets() == 2).await;
    served.ok(&["rollout", "undo", "deployment/w"], &Value::Null);
    assert_eq!(stored(&now(), AT), limit("100"));
    // The manifest again says 50.
    apply("50");
    assert_eq!(stored(&now(), AT), limit("50"));
    // Lowered to the request: only the applied configuration tells.
    apply("10");
    assert_eq!(stored(&now(), AT), limit(""));
    apply("80");
    assert_eq!(stored(&now(), AT), limit("80"));

    // By hand: the annotation, and the limit in an editor.
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": {
        "gpupool.io/gpu-core.limit": "60", "gpupool.io/gpu-memory.limit": "60",
    } } } } });
    served.ok(&["patch", "deployment/w", "-p", &patch.to_string()], &Value::Null);
    assert_eq!(stored(&now(), AT), limit("60"));
    served.ok(&["label", "deployment/w", "colour=red"], &Value::Null);
    assert_eq!(stored(&now(), AT), limit("60"));
    let mut edit = served.kubectl.command(["edit", "deployment/w"]);
    edit.env("KUBE_EDITOR", format!("sed -i '/limits:/,/requests:/s|{CORE}: \"10\"|{CORE}: \"70\"|'"));
    let edited = tokio::task::block_in_place(|| edit.output()).unwrap();
    assert!(edited.status.success(), "{}", said(&edited));
    assert_eq!(stored(&now(), AT), limit("70"));
    let said =
        served.refused(&["patch", "deployment/w", "-p", &patch.to_string().replace("60", "5")], &Value::Null);
    assert!(
        said.contains("requests 10 percent of alibabacloud.com/gpu-core.percentage, over its limit of 5"),
        "{said}"
    );
    served.ok(&["scale", "deployment/w", "--replicas=0"], &Value::Null);
    served.ok(&["delete", "deployment/w"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_has_no_conflicts_and_lowers_by_the_annotation() {
    const AT: &str = "/spec/template";
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let apply = |manifest: &Value| served.ok(&["apply", "--server-side", "-f", "-"], manifest);
    let now = || stored(&served.get("deployment/w"), AT);
    for wanted in ["100", "100", "50", "100"] {
        apply(&deployment(wanted));
        assert_eq!(now(), limit(wanted));
        assert_eq!(served.ok(&["diff", "--server-side", "-f", "-"], &deployment(wanted)), "");
    }
    // A limit lowered to the request leaves no trace; the docs say to write it outright.
    apply(&deployment("10"));
    assert_eq!(now(), limit("100"));
    let mut outright = deployment("10");
    outright["spec"]["template"]["metadata"]["annotations"] =
        json!({ "gpupool.io/gpu-core.limit": "10", "gpupool.io/gpu-memory.limit": "10" });
    apply(&outright);
    assert_eq!(now(), limit("10"));
    served.ok(&["delete", "deployment/w"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_with_a_template_is_stored_twice_over() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let selector = json!({ "matchLabels": { "app": "w" } });
    let (always, never) = ("Always", "Never");
    let of = |restart: &str| template(&container("demo", "10", "100"), restart);
    let kinds = [
        (
            "apps/v1",
            "ReplicaSet",
            "/spec/template",
            json!({ "replicas": 0, "selector": selector, "template": of(always) }),
        ),
        (
            "apps/v1",
            "StatefulSet",
            "/spec/template",
            json!({ "replicas": 0, "selector": selector, "serviceName": "w", "template": of(always) }),
        ),
        ("apps/v1", "DaemonSet", "/spec/template", json!({ "selector": selector, "template": of(always) })),
        ("batch/v1", "Job", "/spec/template", json!({ "suspend": true, "template": of(never) })),
        (
            "batch/v1",
            "CronJob",
            "/spec/jobTemplate/spec/template",
            json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": of(never) } } }),
        ),
        (
            "v1",
            "ReplicationController",
            "/spec/template",
            json!({ "replicas": 0, "selector": { "app": "w" }, "template": of(always) }),
        ),
    ];
    for (version, kind, at, spec) in kinds {
        let manifest =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "w" }, "spec": spec });
        let name = format!("{}/w", kind.to_lowercase());
        for apply in [&["apply", "-f", "-"][..], &["apply", "-f", "-"]] {
            served.ok(apply, &manifest);
            assert_eq!(stored(&served.get(&name), at), limit("100"), "{kind}");
        }
        served.ok(&["delete", &name], &Value::Null);
    }
    let manifest = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "w" }, "template": of(always),
    });
    served.ok(&["apply", "-f", "-"], &manifest);
    assert_eq!(stored(&served.get("podtemplate/w"), "/template"), limit("100"));
    served.ok(&["delete", "podtemplate/w"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_is_read_in_what_kubectl_prints() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let mut one_alone = container("demo", "10", "10");
    one_alone["resources"] = json!({ "requests": { CORE: "10" }, "limits": { CORE: "10" } });
    let mut exclusive = container("demo", "10", "10");
    exclusive["resources"]["limits"]["nvidia.com/gpu"] = json!("1");
    let mut without_label = labels();
    without_label.as_object_mut().unwrap().remove("alibabacloud.com/gpu-share-policy");
    let mut without_class = labels();
    without_class.as_object_mut().unwrap().remove("alibabacloud.com/compute-class");
    let mut typo = labels();
    typo["alibabacloud.com/gpu-share-policy"] = json!("share-pol");
    let plain = container("demo", "10", "10");
    let mut two = pod("p", &labels(), &plain);
    two["spec"]["containers"].as_array_mut().unwrap().push(container("second", "10", "10"));
    let mut init = pod("p", &labels(), &plain);
    init["spec"]["initContainers"] = json!([container("prepare", "10", "10")]);
    let mut card = pod("p", &labels(), &plain);
    card["metadata"]["annotations"] = json!({ "gpupool.io/card": "GPU-1" });
    let mut annotated = pod("p", &labels(), &plain);
    annotated["metadata"]["annotations"] = json!({ "gpupool.io/gpu-core.limit": "1e2" });
    let of = |container: &Value| pod("p", &labels(), container);
    let table = [
        (
            of(&container("demo", "50", "10")),
            "container \"demo\" requests 50 percent of alibabacloud.com/gpu-core.percentage, over its limit of 10: lower the request or raise the limit, up to 100",
        ),
        (
            of(&container("demo", "0.5", "0.5")),
            "container \"demo\" asks for 500m of alibabacloud.com/gpu-core.percentage: ask for a whole number from 1 to 100, percent of one card",
        ),
        (
            of(&container("demo", "0", "0")),
            "asks for 0 of alibabacloud.com/gpu-core.percentage: ask for a whole number from 1 to 100",
        ),
        (
            of(&container("demo", "10", "101")),
            "asks for 101 of alibabacloud.com/gpu-core.percentage: ask for a whole number from 1 to 100",
        ),
        (
            of(&one_alone),
            "asks for alibabacloud.com/gpu-core.percentage but not for alibabacloud.com/gpu-memory.percentage: ask for both",
        ),
        (
            of(&exclusive),
            "container \"demo\" asks for whole cards (nvidia.com/gpu) and container \"demo\" for a share of one: a pod asks for one or the other",
        ),
        (
            two,
            "containers \"demo\" and \"second\" both ask for a share of a card, and only one container of a pod may",
        ),
        (init, "init container \"prepare\" asks for a share of a card: init containers can't share"),
        (
            pod("p", &without_label, &plain),
            "label alibabacloud.com/gpu-share-policy is missing on the pod: set it to share-pool or static",
        ),
        (
            pod("p", &typo, &plain),
            "is \"share-pol\", which is none of share-pool, static and none; set it to share-pool if that is meant",
        ),
        (
            pod("p", &without_class, &plain),
            "label alibabacloud.com/compute-class is missing on the pod: set it to gpu-hpn",
        ),
        (card, "annotation gpupool.io/card is written by gpupool alone"),
        (
            annotated,
            "annotation gpupool.io/gpu-core.limit is \"1e2\": write a whole number from 1 to 100, or remove it",
        ),
    ];
    for (manifest, says) in table {
        for words in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
            let said = served.refused(words, &manifest);
            assert!(said.contains("denied the request: ") && said.contains(says), "{says}\n{said}");
        }
    }
    let said = served.refused(&["apply", "-f", "-"], &{
        let mut wrong = deployment("100");
        wrong["spec"]["template"]["metadata"]["labels"] = json!({ "app": "w" });
        wrong
    });
    assert!(said.contains("label alibabacloud.com/gpu-share-policy is missing on the pod"), "{said}");
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_card_pods_keep_off_shared_nodes_and_nobody_else_is_touched() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let whole = json!({ "name": "c", "image": "none", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
    served.ok(&["apply", "-f", "-"], &pod("whole", &json!({}), &whole));
    let off =
        json!([{ "matchExpressions": [{ "key": "gpupool.io/share-policy", "operator": "DoesNotExist" }] }]);
    assert_eq!(in_force(&served.get("pod/whole")), &off);
    served.ok(&["apply", "-f", "-"], &pod("whole", &json!({}), &whole));
    // So do slices and replicas of cards, under whatever name of NVIDIA's.
    for resource in ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/a100-40gb"] {
        let part = json!({ "name": "c", "image": "none", "resources": { "limits": { resource: "1" } } });
        served.ok(&["apply", "-f", "-"], &pod("part", &json!({}), &part));
        assert_eq!(in_force(&served.get("pod/part")), &off, "{resource}");
        served.ok(&["delete", "pod/part", "--now"], &Value::Null);
        let mut both = container("demo", "10", "10");
        both["resources"]["limits"][resource] = json!("1");
        let said = served.refused(&["apply", "-f", "-"], &pod("part", &labels(), &both));
        assert!(said.contains(&format!("({resource}) and container \"demo\" for a share of one")), "{said}");
    }
    let network =
        json!({ "name": "c", "image": "none", "resources": { "limits": { "nvidia.com/hostdev": "1" } } });
    served.ok(&["apply", "-f", "-"], &pod("network", &json!({}), &network));
    assert!(served.get("pod/network")["spec"]["affinity"].is_null());
    served.ok(&["delete", "pod/network", "--now"], &Value::Null);
    let cpu = json!({ "name": "c", "image": "none", "resources": { "requests": { "cpu": "1" } } });
    served.ok(&["apply", "-f", "-"], &pod("cpu", &labels(), &cpu));
    let cpu = served.get("pod/cpu");
    assert!(
        cpu["spec"]["affinity"].is_null() && cpu["metadata"]["annotations"].as_object().unwrap().len() == 1
    );
    served.ok(&["delete", "pod/whole", "pod/cpu", "--now"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_their_authority_are_renewed_while_they_are_used() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let lifetimes = CertificateLifetimes {
        authority: Duration::from_secs(24),
        certificate: Duration::from_secs(9),
        ..CertificateLifetimes::default()
    };
    let served = Served::with(&scene, lifetimes).await;
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), "default");
    let data = async |key: &str| {
        let secret = secrets.get("gpupool-control-certificate").await.unwrap();
        secret.data.unwrap()[key].0.clone()
    };
    let (mut certificates, mut authorities) = (vec![data("tls.crt").await], vec![data("ca.crt").await]);
    eventually("nothing is renewed", async || {
        for (seen, key) in [(&mut certificates, "tls.crt"), (&mut authorities, "ca.crt")] {
            let now = data(key).await;
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        // Asked all along: the API server never meets one that it does not trust, but for a connection's moment.
        let unlabelled = pod("probe", &json!({}), &container("c", "10", "10"));
        served.refused(&["create", "--dry-run=server", "-f", "-"], &unlabelled);
        certificates.len() > 3 && authorities.len() > 2
    })
    .await;
    served.until_asked().await;
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_control_nobody_else_is_held_up_and_shares_are_refused() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let Served { controller, address, kubectl } = Served::on(&scene).await;
    controller.end().await;
    let run = |manifest: &Value| {
        tokio::task::block_in_place(|| kubectl.output(["apply", "-f", "-"], &manifest.to_string())).unwrap()
    };
    let whole = json!({ "name": "c", "image": "none", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
    let output = run(&pod("whole", &json!({}), &whole));
    assert!(output.status.success(), "{}", said(&output));
    let output = run(&pod("shared", &labels(), &container("demo", "10", "100")));
    assert!(!output.status.success());
    // With the next one everything is as before, and the certificate is the same.
    let (controller, _) = Served::start(&scene, "two", address, CertificateLifetimes::default()).await;
    let served = Served { controller, address, kubectl };
    served.until_asked().await;
    served.ok(&["apply", "-f", "-"], &pod("shared", &labels(), &container("demo", "10", "100")));
    served.ok(&["delete", "pod/whole", "pod/shared", "--now"], &Value::Null);
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_charts_roles_suffice_for_admission_and_for_the_policy() {
    const NAMESPACE: &str = "gpupool-system";
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "gpupool-control", "namespace": NAMESPACE },
    });
    let access = chart("control-access.yaml", NAMESPACE);
    for manifest in [namespace.to_string(), account.to_string()] {
        tokio::task::block_in_place(|| scene.cluster.apply(&manifest)).unwrap();
    }
    let kubectl = scene.cluster.kubectl_handle();
    tokio::task::block_in_place(|| kubectl.run(["apply", "-n", NAMESPACE, "-f", "-"], &access)).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let serving = Serving::open(any, "gpupool-control", NAMESPACE, &[]).unwrap();
    let address = serving.listener.local_addr().unwrap();
    let controller = scene.controller_as(NAMESPACE, "gpupool-control", sandbox(), Some(serving)).await;
    let served = Served { controller, address, kubectl };
    tokio::task::block_in_place(|| scene.cluster.apply(&webhooks(address))).unwrap();
    served.until_asked().await;
    // It may read what the namespace allows: else it would let nobody in.
    let words = ["create", "--dry-run=server", "-f", "-"];
    served.ok(&words, &pod("shared", &labels(), &container("demo", "10", "100")));

    scene
        .add(&gpupool_testbed::KwokNode::new("n").annotation("gpupool.io/cards", r#"{"nvidia.com/gpu": 2}"#));
    served.ok(&["label", "node/n", "alibabacloud.com/gpu-share-policy=static"], &Value::Null);
    served.ok(&["wait", "node/n", "--for=condition=GPUSharePolicy", "--timeout=180s"], &Value::Null);
    served.end().await;
    scene.end().await;
}

/// A namespace for one test, with somebody who may do everything in it and nothing elsewhere.
struct Team<'a> {
    served: &'a Served,
    namespace: &'static str,
}

impl<'a> Team<'a> {
    const USER: &'static str = "--as=ann";

    async fn new(served: &'a Served, namespace: &'static str) -> Self {
        served.ok(&["create", "namespace", namespace], &Value::Null);
        let words =
            ["create", "rolebinding", "ann", "--clusterrole=admin", "--user=ann", "--namespace", namespace];
        served.ok(&words, &Value::Null);
        // Without it the API server takes no pod.
        eventually("the namespace has no service account", async || {
            let words = ["get", "serviceaccount/default", "--namespace", namespace];
            served.run(&words, &Value::Null).status.success()
        })
        .await;
        Self { served, namespace }
    }

    /// Creates a pod as that somebody; says why it was refused.
    fn create(&self, name: &str, request: &str, limit: &str) -> Result<(), String> {
        let manifest = pod(name, &labels(), &container("demo", request, limit));
        let output =
            self.served.run(&["create", Self::USER, "--namespace", self.namespace, "-f", "-"], &manifest);
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    }

    /// Deletes its pods, so that their names are free.
    fn clear(&self) {
        self.served.ok(&["delete", "pods", "--all", "--now", "--namespace", self.namespace], &Value::Null);
    }

    /// Waits until a rule holds: control follows it, so that it holds a moment later.
    async fn until_refused(&self, request: &str, limit: &str, says: &str) {
        eventually(says, async || {
            let refused = self.create("late", request, limit);
            if refused.is_ok() {
                self.clear();
            }
            refused.is_err_and(|said| said.contains(says))
        })
        .await;
    }

    fn end(self) {
        self.clear();
        self.served.ok(&["delete", "namespace", self.namespace, "--wait=false"], &Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_held_to_limit_ranges_ceilings_and_a_quota() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    let team = Team::new(&served, "team-rules").await;
    let in_team = ["--namespace", team.namespace];
    assert_eq!(team.create("free", "10", "100"), Ok(()), "where nothing is said, every limit is allowed");
    team.clear();

    let range = |item: &Value| {
        let range = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "cap" }, "spec": { "limits": [item] },
        });
        served.ok(&["apply", in_team[0], in_team[1], "-f", "-"], &range);
    };
    range(&json!({ "type": "Container", "max": { CORE: "50" } }));
    team.until_refused("10", "100", "LimitRange \"cap\" allows at most 50").await;
    assert_eq!(team.create("low", "10", "50"), Ok(()));
    // The annotation is the limit, too.
    let mut outright = pod("outright", &labels(), &container("demo", "10", "10"));
    outright["metadata"]["annotations"] = json!({ "gpupool.io/gpu-core.limit": "0100" });
    let words = ["create", Team::USER, in_team[0], in_team[1], "-f", "-"];
    let said = served.refused(&words, &outright);
    assert!(said.contains("is 100, and LimitRange \"cap\" allows at most 50"), "{said}");
    team.clear();

    // With a ratio, a quota on requests is one on limits: twice as much.
    range(&json!({ "type": "Container", "maxLimitRequestRatio": { CORE: "2", MEMORY: "2" } }));
    team.until_refused("10", "100", "allows at most 2 times the request, which is 10").await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "sum" },
        "spec": { "hard": { format!("requests.{CORE}"): "20" } },
    });
    served.ok(&["apply", in_team[0], in_team[1], "-f", "-"], &quota);
    eventually("the quota does not count", async || {
        let quota = served.ok(&["get", "quota/sum", in_team[0], in_team[1], "-o", "json"], &Value::Null);
        serde_json::from_str::<Value>(&quota).unwrap()["status"]["used"].is_object()
    })
    .await;
    assert_eq!((team.create("one", "10", "20"), team.create("two", "10", "20")), (Ok(()), Ok(())));
    let said = team.create("three", "1", "2").unwrap_err();
    assert!(said.contains("exceeded quota: sum"), "{said}");
    team.clear();
    served.ok(&["delete", "quota/sum", "limitrange/cap", in_team[0], in_team[1]], &Value::Null);

    // A ceiling on the namespace, which its own people cannot raise.
    let annotate = |user: &[&str], text: &str| {
        let text = format!("gpupool.io/gpu-memory.max-limit={text}");
        let words = [&["annotate", "--overwrite", "namespace", team.namespace, &text], user].concat();
        served.run(&words, &Value::Null).status.success()
    };
    assert!(annotate(&[], "40"));
    team.until_refused("10", "100", "max-limit of namespace \"team-rules\" allows 40: lower the limit").await;
    assert_eq!(team.create("low", "10", "40"), Ok(()));
    team.clear();
    assert!(!annotate(&[Team::USER], "100"));
    assert!(annotate(&[], "much"));
    team.until_refused("10", "10", "is \"much\", and until it is a whole number").await;
    team.end();
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_kubelet_of_a_node_makes_mirror_pods_that_share() {
    const HASH: &str = "0123456789abcdef0123456789abcdef";
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&gpupool_testbed::KwokNode::new("n"));
    let served = Served::on(&scene).await;
    let uid = served.get("node/n")["metadata"]["uid"].clone();
    let mirror = |container: &Value| {
        let mut mirror = pod("static-n", &labels(), container);
        mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": HASH });
        mirror["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true }]);
        mirror["spec"]["nodeName"] = json!("n");
        mirror["spec"]["automountServiceAccountToken"] = json!(false);
        mirror
    };
    let share = mirror(&container("demo", "10", "100"));
    let kubelet = ["--as=system:node:n", "--as-group=system:nodes", "--as-group=system:authenticated"];
    let create = |by: &[&str], manifest: &Value| {
        served.run(&[&["create", "--dry-run=server", "-f", "-"], by].concat(), manifest)
    };
    // The API server lets everybody who may create pods write the annotation: without a share, it is stored.
    let plain = mirror(&json!({ "name": "demo", "image": "none" }));
    let output = create(&[], &plain);
    assert!(output.status.success(), "{}", said(&output));
    for by in [&[][..], &["--as=system:node:n", "--as-group=system:masters"]] {
        let refused = said(&create(by, &share));
        assert!(
            refused.contains("kubernetes.io/config.mirror is written by the kubelet"),
            "{by:?}: {refused}"
        );
    }
    let output = create(&kubelet, &share);
    assert!(output.status.success(), "{}", said(&output));
    served.end().await;
    scene.end().await;
}

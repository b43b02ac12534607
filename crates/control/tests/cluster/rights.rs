//! Who may do what to which object: the chart's roles and its admission policy, asked of a real API server.
//!
//! Each table names all that is allowed; everything else that there is must be denied.

use std::collections::BTreeSet;

use gpupool_testbed::{Kubectl, KwokNode};
use http::Request;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually, shared_cluster};
use crate::served::chart;

const NAMESPACE: &str = "gpupool-system";
const AGENT: &str = "system:serviceaccount:gpupool-system:gpupool-agent";
const CONTROL: &str = "system:serviceaccount:gpupool-system:gpupool-control";
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"];

/// What everybody with an account has: asking what they may do.
const EVERYBODY: &[(&str, &str)] = &[
    ("authorization.k8s.io/selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io/selfsubjectrulesreviews", "create"),
    ("authentication.k8s.io/selfsubjectreviews", "create"),
];

/// Resources with their verbs, everywhere and under any name.
const OF_AGENT: &[(&str, &str)] = &[
    ("/nodes", "get list watch patch"),
    ("/pods", "get list watch patch"),
    ("/pods/status", "patch"),
    ("/events", "create"),
];
const OF_CONTROL: &[(&str, &str)] = &[
    ("/nodes", "get list watch patch"),
    ("/nodes/status", "patch"),
    ("/pods", "get list watch"),
    ("/namespaces", "get list watch"),
    ("/limitranges", "list watch"),
    ("/pods/binding", "create"),
    ("/events", "list"),
    ("events.k8s.io/events", "create patch"),
    ("apiextensions.k8s.io/customresourcedefinitions", "get list watch"),
];

/// The same with a namespace and a name: beyond the tables above.
const NAMED_OF_CONTROL: &[(&str, &str, &str, &str)] = &[
    ("/secrets", NAMESPACE, "gpupool-control-certificate", "get list watch update patch create"),
    ("/secrets", NAMESPACE, "gpupool-control-scheduler", "get list watch update patch create"),
    ("/secrets", NAMESPACE, "another", "create"),
    ("/secrets", "default", "gpupool-control-certificate", ""),
    ("coordination.k8s.io/leases", NAMESPACE, "gpupool-control", "get update create"),
    ("coordination.k8s.io/leases", NAMESPACE, "another", "create"),
    ("/pods", NAMESPACE, "any", "get list watch patch"),
    ("/pods", "default", "any", "get list watch"),
    (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "",
        "gpupool-control",
        "get list watch patch",
    ),
    (
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        "",
        "gpupool-control",
        "get list watch patch",
    ),
    ("admissionregistration.k8s.io/validatingwebhookconfigurations", "", "another", ""),
];

/// What nobody outside may do to gpupool's own objects and to what it goes by: a user who may edit one namespace, somebody
/// without an account, and the scheduler.
const OWN: &[(&str, &str, &str, &str)] = &[
    ("/secrets", NAMESPACE, "gpupool-control-certificate", "get list watch update patch delete"),
    ("/secrets", NAMESPACE, "gpupool-control-scheduler", "get list watch update patch delete"),
    ("/serviceaccounts", NAMESPACE, "gpupool-agent", "impersonate update patch delete"),
    ("/serviceaccounts/token", NAMESPACE, "gpupool-agent", "create"),
    ("/serviceaccounts/token", NAMESPACE, "gpupool-control", "create"),
    ("/configmaps", NAMESPACE, "any", "create update patch delete"),
    ("/pods", NAMESPACE, "any", "create update patch"),
    ("/pods/exec", NAMESPACE, "any", "create get"),
    ("/nodes", "", "a", "create update patch"),
    ("/nodes/status", "", "a", "update"),
    (
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        "",
        "gpupool-control",
        "update patch delete",
    ),
    ("admissionregistration.k8s.io/validatingadmissionpolicies", "", "gpupool-agent", "update patch delete"),
    ("rbac.authorization.k8s.io/clusterroles", "", "gpupool-agent", "update patch delete bind escalate"),
    ("coordination.k8s.io/leases", NAMESPACE, "gpupool-control", "update patch delete"),
    ("networking.k8s.io/networkpolicies", NAMESPACE, "gpupool-agent", "update patch delete"),
];

fn run(kubectl: &Kubectl, words: &[&str], input: &str) -> String {
    tokio::task::block_in_place(|| kubectl.run(words, input)).unwrap()
}

/// The accounts and the chart's rules for them.
fn install(scene: &Scene<'_>) {
    let kubectl = scene.cluster.kubectl_handle();
    let object = |kind: &str, name: &str| {
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } }).to_string()
    };
    run(&kubectl, &["apply", "-f", "-"], &object("Namespace", NAMESPACE));
    run(&kubectl, &["apply", "-f", "-"], &object("Namespace", "team"));
    for account in ["gpupool-agent", "gpupool-control"] {
        run(&kubectl, &["apply", "-n", NAMESPACE, "-f", "-"], &object("ServiceAccount", account));
    }
    for template in ["agent-access.yaml", "control-access.yaml"] {
        run(&kubectl, &["apply", "-n", NAMESPACE, "-f", "-"], &chart(template, NAMESPACE));
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "alice" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
    });
    run(&kubectl, &["apply", "-n", "team", "-f", "-"], &binding.to_string());
}

/// Whether somebody may.
async fn may(scene: &Scene<'_>, who: &str, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let (group, resource) = resource.split_once('/').unwrap();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let groups: &[&str] = match who {
        "system:anonymous" => &["system:unauthenticated"],
        _ if who.starts_with("system:serviceaccount:") => {
            &["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:gpupool-system"]
        }
        _ => &["system:authenticated"],
    };
    let review = json!({ "spec": {
        "user": who, "groups": groups,
        "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name,
        },
    } });
    let reviews: Api<SubjectAccessReview> = Api::all(scene.client.clone());
    let review = serde_json::from_value(review).unwrap();
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// Every resource that the API server has, with its subresources, as `group/resource`.
async fn resources(scene: &Scene<'_>) -> BTreeSet<String> {
    let get = async |path: String| -> Value {
        scene.client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
    };
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    for group in get("/apis".to_owned()).await["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        versions.push((group["name"].as_str().unwrap().to_owned(), format!("/apis/{version}")));
    }
    let mut all = BTreeSet::new();
    for (group, path) in versions {
        for resource in get(path).await["resources"].as_array().unwrap() {
            all.insert(format!("{group}/{}", resource["name"].as_str().unwrap()));
        }
    }
    all.extend(["nvidia.com/clusterpolicies", "/users", "/groups"].map(str::to_owned));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_agent_and_control_allow_what_is_in_the_table_and_nothing_else() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    install(&scene);
    let resources = resources(&scene).await;
    assert!(resources.len() > 80 && resources.contains("/pods/exec"), "{resources:?}");
    let operator: &[(&str, &str)] = &[("nvidia.com/clusterpolicies", "list watch")];
    for (who, table) in
        [(AGENT, [OF_AGENT, EVERYBODY].concat()), (CONTROL, [OF_CONTROL, EVERYBODY, operator].concat())]
    {
        // The roles are known to the authorizer a moment after they are stored.
        eventually("the roles do not come", async || {
            may(&scene, who, "patch", "/nodes", "", "a").await
                && may(&scene, who, "list", "/pods", "", "").await
        })
        .await;
        for (resource, _) in &table {
            assert!(resources.contains(*resource), "there is no {resource}");
        }
        for resource in &resources {
            let allowed = table.iter().find(|(name, _)| name == resource).map_or("", |(_, verbs)| *verbs);
            for verb in VERBS {
                // In another namespace and under another name than those of gpupool's own.
                let may = may(&scene, who, verb, resource, "default", "any").await;
                assert_eq!(may, allowed.split(' ').any(|one| one == verb), "{who} {verb} {resource}");
            }
        }
    }
    for (resource, namespace, name, allowed) in NAMED_OF_CONTROL {
        for verb in VERBS {
            let may = may(&scene, CONTROL, verb, resource, namespace, name).await;
            let expected = allowed.split(' ').any(|one| one == verb);
            assert_eq!(may, expected, "control {verb} {resource} {namespace}/{name}");
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_has_a_right_to_what_gpupool_goes_by() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    install(&scene);
    eventually("alice cannot work", async || may(&scene, "alice", "create", "/pods", "team", "p").await)
        .await;
    for who in ["alice", "system:anonymous", "system:kube-scheduler", AGENT] {
        for (resource, namespace, name, verbs) in OWN {
            // The agent's own writes are narrowed by the policy, not by its role.
            let narrowed = who == AGENT && matches!(*resource, "/nodes" | "/pods");
            for verb in verbs.split(' ').filter(|verb| !(narrowed && *verb == "patch")) {
                let may = may(&scene, who, verb, resource, namespace, name).await;
                assert!(!may, "{who} {verb} {resource} {namespace}/{name}");
            }
        }
    }
    // What the same ones may do, so that the denials above are not for want of everything.
    for (who, verb, resource, namespace) in [
        ("alice", "create", "/pods", "team"),
        ("alice", "get", "/secrets", "team"),
        ("system:kube-scheduler", "create", "/pods/binding", "team"),
        ("system:kube-scheduler", "list", "/nodes", ""),
    ] {
        assert!(may(&scene, who, verb, resource, namespace, "p").await, "{who} {verb} {resource}");
    }
    scene.end().await;
}

/// One write of an agent: of which object, what, and whether it is let through.
struct Write {
    path: &'static str,
    body: Value,
    /// Nothing where it is let through; else a part of why not.
    denied: Option<&'static str>,
}

fn write(path: &'static str, body: Value, denied: Option<&'static str>) -> Write {
    Write { path, body, denied }
}

/// The writes of the agent of node `a`.
fn writes() -> Vec<Write> {
    const POD: &str = "/api/v1/namespaces/default/pods/on-a";
    const STATUS: &str = "/api/v1/namespaces/default/pods/on-a/status";
    const METADATA: Option<&str> = Some("may write the annotation");
    const OTHERS: Option<&str> = Some("about its own node only");
    let metadata = |field: &str, value: Value| json!({ "metadata": { field: value } });
    let condition = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": "x" }] } });
    let annotations = |name: &str| metadata("annotations", json!({ name: "x" }));
    let mut both = condition("GPUShareAccepted");
    both["metadata"] = json!({ "labels": { "a": "b" } });
    vec![
        write(POD, annotations("gpupool.io/card"), None),
        write(POD, annotations("gpupool.io/gpu-core.limit"), METADATA),
        write(POD, metadata("annotations", json!({ "kept": null })), METADATA),
        write(POD, metadata("labels", json!({ "a": "b" })), METADATA),
        write(POD, metadata("finalizers", json!(["a/b"])), METADATA),
        write(POD, json!({ "spec": { "activeDeadlineSeconds": 1 } }), METADATA),
        write(STATUS, condition("GPUShareAccepted"), None),
        write(STATUS, condition("Interruption.GPUShareReclaim"), None),
        write(STATUS, condition("Interruption.GPUShareTermination"), None),
        write(STATUS, condition("Interruption.GPUShareKill"), None),
        write(STATUS, condition("Interruption.GPUShareOther"), Some("of a pod's conditions")),
        write(STATUS, condition("Ready"), Some("of a pod's conditions")),
        write(STATUS, both, METADATA),
        write(STATUS, metadata("annotations", json!({ "gpupool.io/card": "another" })), METADATA),
        write(STATUS, annotations("gpupool.io/gpu-core.limit"), METADATA),
        write(STATUS, metadata("annotations", json!({ "kept": null })), METADATA),
        write(STATUS, metadata("labels", json!({ "a": "b" })), METADATA),
        write(STATUS, metadata("finalizers", json!(["a/b"])), METADATA),
        write(STATUS, json!({ "status": { "phase": "Failed" } }), Some("of a pod's status")),
        write(STATUS, json!({ "status": { "hostIP": "192.0.2.1" } }), Some("of a pod's status")),
        write(STATUS, json!({ "status": { "message": "x" } }), Some("of a pod's status")),
        write("/api/v1/namespaces/default/pods/on-b", annotations("gpupool.io/card"), OTHERS),
        write("/api/v1/namespaces/default/pods/on-b/status", condition("GPUShareAccepted"), OTHERS),
        write("/api/v1/namespaces/default/pods/nowhere", annotations("gpupool.io/card"), OTHERS),
        write("/api/v1/nodes/a", annotations("gpupool.io/pool-cards"), None),
        write("/api/v1/nodes/a", annotations("gpupool.io/share-policy"), METADATA),
        write("/api/v1/nodes/a", annotations("gpupool.io/card"), METADATA),
        write(
            "/api/v1/nodes/a",
            metadata("labels", json!({ "gpupool.io/share-policy": "static" })),
            METADATA,
        ),
        write("/api/v1/nodes/a", json!({ "spec": { "unschedulable": true } }), METADATA),
        write("/api/v1/nodes/b", annotations("gpupool.io/pool-cards"), OTHERS),
        write("/api/v1/nodes/a/status", json!({ "status": { "allocatable": { "a/b": "1" } } }), Some("")),
        write("/api/v1/namespaces/default/pods/on-a/resize", json!({ "spec": {} }), Some("")),
    ]
}

/// A client that knows a token and nothing else.
async fn bearer(scene: &Scene<'_>, token: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(scene.cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).unwrap()
}

/// Sends a patch; gives the API server's words where it is refused.
async fn patch(client: &Client, path: &str, body: &Value) -> Result<Value, String> {
    let request = Request::patch(path)
        .header("Content-Type", "application/strategic-merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    match client.request(request).await {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.reason, status.message)),
        Err(failure) => Err(format!("{path} was not answered: {failure}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_what_is_its_own_on_its_own_node_and_nothing_else() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    for node in ["a", "b"] {
        scene.add(&KwokNode::new(node));
    }
    install(&scene);
    let kubectl = scene.cluster.kubectl_handle();
    for (name, node) in [("on-a", Some("a")), ("on-b", Some("b")), ("nowhere", None)] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": { "kept": "x" } },
            "spec": { "containers": [{ "name": "c", "image": "none" }], "schedulingGates": [] },
        });
        match node {
            Some(node) => pod["spec"]["nodeName"] = json!(node),
            None => pod["spec"]["schedulingGates"] = json!([{ "name": "test/waits" }]),
        }
        run(&kubectl, &["apply", "-f", "-"], &pod.to_string());
    }
    run(
        &kubectl,
        &["wait", "--for=jsonpath={.status.phase}=Running", "pod/on-a", "pod/on-b", "--timeout=180s"],
        "",
    );
    let token = |bound: &[&str]| {
        let words = ["create", "token", "gpupool-agent", "-n", NAMESPACE, "--duration=1h"];
        run(&kubectl, &[&words[..], bound].concat(), "").trim().to_owned()
    };
    let of_a = bearer(&scene, &token(&["--bound-object-kind=Node", "--bound-object-name=a"])).await;
    let of_none = bearer(&scene, &token(&[])).await;
    // The policy holds a moment after it is stored.
    eventually("the policy does not hold", async || {
        let own = json!({ "metadata": { "annotations": { "gpupool.io/pool-cards": "[]" } } });
        patch(&of_a, "/api/v1/nodes/a", &own).await.is_ok()
            && patch(&of_a, "/api/v1/nodes/b", &own).await.is_err_and(|said| said.contains("its own node"))
    })
    .await;
    for Write { path, body, denied } in writes() {
        let answer = patch(&of_a, path, &body).await;
        match denied {
            None => assert!(answer.is_ok(), "{path} {body}: {answer:?}"),
            Some(why) => {
                let said = answer.expect_err(&format!("{path} {body}"));
                assert!(
                    said.to_lowercase().contains("forbidden") && said.contains(why),
                    "{path} {body}: {said}"
                );
            }
        }
        // A token that was made for no node, as one that was taken from elsewhere, writes nothing at all.
        assert!(patch(&of_none, path, &body).await.is_err(), "without a node: {path} {body}");
    }
    let words = ["delete", "pod", "on-a", "on-b", "nowhere", "--now", "--wait=false"];
    run(&kubectl, &words, "");
    scene.end().await;
}

//! The Helm chart, rendered by helm itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;
use std::process::{Command, Output};

use gpupool_testbed::{Tool, folder_of};
use serde_json::Value;

fn chart() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/gpupool")
}

fn helm(arguments: &[&str]) -> Output {
    let folder = folder_of(Tool::Helm).unwrap();
    let home = tempfile::tempdir().unwrap();
    Command::new(folder.join("helm"))
        .args(arguments)
        .env("HELM_CACHE_HOME", home.path())
        .env("HELM_CONFIG_HOME", home.path())
        .env("HELM_DATA_HOME", home.path())
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// The chart's objects with these settings.
fn rendered(settings: &[&str]) -> Vec<Value> {
    let chart = chart();
    let mut arguments = vec![
        "template",
        "gpupool",
        chart.to_str().unwrap(),
        "--namespace",
        "gpupool-system",
        "--kube-version",
        "1.36.3",
    ];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = helm(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("\n---").filter(|document| document.contains("kind:"));
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

fn arguments(object: &Value) -> Vec<String> {
    let arguments = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_chart_is_in_order() {
    let chart = chart();
    let output = helm(&["lint", "--strict", chart.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_agent_sees_the_hosts_processes_and_control_runs_twice_without_rights_on_its_node() {
    let objects = rendered(&[]);
    let agent = find(&objects, "DaemonSet", "gpupool-agent").unwrap();
    assert_eq!(agent["spec"]["template"]["spec"]["hostPID"], true);
    let control = find(&objects, "Deployment", "gpupool-control").unwrap();
    assert_eq!(control["spec"]["replicas"], 2);
    let container = &control["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
}

#[test]
fn nothing_listens_on_a_nodes_own_addresses_unless_it_is_asked_to() {
    let objects = rendered(&[]);
    for object in &objects {
        assert_ne!(object["spec"]["template"]["spec"]["hostNetwork"], true, "{object}");
    }
    let objects = rendered(&["agent.hostNetwork=true", "control.hostNetwork=true"]);
    let everything = [("DaemonSet", "gpupool-agent"), ("Deployment", "gpupool-control")]
        .map(|(kind, name)| arguments(find(&objects, kind, name).unwrap()))
        .concat();
    assert!(everything.contains(&"--metrics-address=127.0.0.1:9400".to_owned()), "{everything:?}");
    assert!(!everything.iter().any(|argument| argument.contains("0.0.0.0")), "{everything:?}");
}

#[test]
fn figures_are_on_loopback_unless_they_are_asked_for() {
    for (kind, name, key, port) in
        [("DaemonSet", "gpupool-agent", "agent", 9400), ("Deployment", "gpupool-control", "control", 9401)]
    {
        let listens = |settings: &[&str]| arguments(find(&rendered(settings), kind, name).unwrap());
        assert!(listens(&[]).contains(&format!("--metrics-address=127.0.0.1:{port}")), "{name}");
        let asked = listens(&[&format!("{key}.metricsHost=0.0.0.0")]);
        assert!(asked.contains(&format!("--metrics-address=0.0.0.0:{port}")), "{asked:?}");
    }
}

/// The peers that a policy lets in to a port; none where it is closed, and no list where it is open to all.
fn peers(objects: &[Value], policy: &str, port: &str) -> Option<Value> {
    let policy = find(objects, "NetworkPolicy", policy).unwrap();
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["ports"][0]["port"] == port)?;
    assert_eq!(rule["ports"].as_array().unwrap().len(), 1, "{rule}");
    Some(rule["from"].clone())
}

#[test]
fn the_network_lets_in_who_has_a_reason_to_come() {
    let objects = rendered(&[]);
    let readers =
        serde_json::json!([{"namespaceSelector": {"matchLabels": {"gpupool.io/reads-metrics": "true"}}}]);
    for policy in ["gpupool-control", "gpupool-agent"] {
        assert_eq!(peers(&objects, policy, "metrics"), Some(readers.clone()), "{policy}");
        let spec = &find(&objects, "NetworkPolicy", policy).unwrap()["spec"];
        assert_eq!(spec["podSelector"]["matchLabels"]["app"], policy);
        assert_eq!(spec["policyTypes"], serde_json::json!(["Ingress"]));
    }
    assert_eq!(peers(&objects, "gpupool-control", "https"), Some(Value::Null));
    assert_eq!(peers(&objects, "gpupool-control", "health"), None, "the kubelet comes in any case");
    let objects = rendered(&[
        "networkPolicy.apiServer[0].ipBlock.cidr=10.0.0.1/32",
        "networkPolicy.scheduler[0].ipBlock.cidr=10.0.0.2/32",
        "networkPolicy.metrics=null",
    ]);
    for (port, cidr) in [("https", "10.0.0.1/32"), ("extender", "10.0.0.2/32")] {
        let expected = serde_json::json!([{"ipBlock": {"cidr": cidr}}]);
        assert_eq!(peers(&objects, "gpupool-control", port), Some(expected));
    }
    assert_eq!(peers(&objects, "gpupool-agent", "metrics"), None);
    assert!(find(&rendered(&["networkPolicy.enabled=false"]), "NetworkPolicy", "gpupool-agent").is_none());
}

#[test]
fn the_extender_has_a_port_of_its_own_and_authorities_are_mounted_where_they_are_read() {
    let objects = rendered(&[]);
    let target =
        |name: &str| find(&objects, "Service", name).unwrap()["spec"]["ports"][0]["targetPort"].clone();
    assert_eq!((target("gpupool-control"), target("gpupool-extender")), ("https".into(), "extender".into()));
    let control = find(&objects, "Deployment", "gpupool-control").unwrap();
    assert!(!arguments(control).iter().any(|argument| argument.contains("client-ca")));

    let objects = rendered(&[
        "control.clientCa=api-servers",
        "control.clientName=apiserver",
        "extender.clientCa=schedulers",
        "extender.clientName=scheduler",
    ]);
    let control = find(&objects, "Deployment", "gpupool-control").unwrap();
    let (told, spec) = (arguments(control), &control["spec"]["template"]["spec"]);
    for (option, volume, map, name) in [
        ("serve-client", "admission-clients", "api-servers", "apiserver"),
        ("extender-client", "extender-clients", "schedulers", "scheduler"),
    ] {
        assert!(told.contains(&format!("--{option}-ca=/etc/gpupool/{volume}/ca.crt")), "{told:?}");
        assert!(told.contains(&format!("--{option}-name={name}")), "{told:?}");
        let named = |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == volume).cloned();
        assert_eq!(named(&spec["volumes"]).unwrap()["configMap"]["name"], map);
        let mount = named(&spec["containers"][0]["volumeMounts"]).unwrap();
        assert_eq!(mount["mountPath"], format!("/etc/gpupool/{volume}"));
    }
}

/// Also without a port of its own: the probe asks where programs ask.
#[test]
fn an_agent_that_does_not_answer_is_started_again() {
    let objects = rendered(&["agent.metricsPort=0", "agent.socketDir=/run/elsewhere"]);
    let agent = find(&objects, "DaemonSet", "gpupool-agent").unwrap();
    let container = &agent["spec"]["template"]["spec"]["containers"][0];
    let probe = &container["livenessProbe"];
    let command: Vec<&str> =
        probe["exec"]["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(command, ["gpupool", "probe-agent", "--socket=/run/elsewhere/agent.sock", "--within=10"]);
    assert!(probe["timeoutSeconds"].as_u64() > Some(10), "it says itself that there was no answer: {probe}");
}

/// Whatever else the roles allow, none of it is everything.
#[test]
fn every_role_names_its_verbs_and_resources() {
    let objects = rendered(&["control.manageOperands=true"]);
    let roles: Vec<&Value> =
        objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role").collect();
    assert!(roles.len() >= 2);
    for role in roles {
        for rule in role["rules"].as_array().unwrap() {
            for field in ["verbs", "resources", "apiGroups"] {
                for value in rule[field].as_array().unwrap() {
                    assert_ne!(value, "*", "{role}");
                    assert_ne!(value, "secrets/*", "{role}");
                }
            }
        }
    }
}

#[test]
fn a_value_that_there_is_not_is_refused() {
    let chart = chart();
    for wrong in
        ["agent.durationUnit=1h", "control.replica=3", "agent.driverCdi=gpu", "extender.enabled=maybe"]
    {
        let output = helm(&["template", "gpupool", chart.to_str().unwrap(), "--set", wrong]);
        assert!(!output.status.success(), "{wrong}");
        let key = wrong.split(['.', '=']).nth(1).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(key), "{wrong}: {said}");
    }
}

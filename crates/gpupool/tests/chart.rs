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

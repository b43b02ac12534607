//! What the controller would write now, without writing.

use std::io;

use gpupool_k8s::pod::ON_NODES;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod as KubePod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use serde_json::{Value, json};

use crate::cluster_policy::{ClusterPolicies, DEFINITION, resource};
use crate::node_controller::observed::ObservedNode;
use crate::node_controller::plan::plan;
use crate::node_controller::{NodeWrite, PodLoads, patch};
use crate::settings::ClusterSettings;

/// More steps than any node needs.
const STEPS: usize = 8;

/// Why a dry run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    /// The cluster could not be read.
    #[error("cannot read {what} from the cluster: {source}")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// What came instead.
        source: kube::Error,
    },
    /// The patches could not be printed.
    #[error("cannot print the patches: {0}")]
    Print(#[from] io::Error),
}

/// Prints every patch and Event that the nodes would get, one JSON object a line, in the order of the nodes' names;
/// the steps of one node follow each other as they would be written. Writes nothing to the cluster.
pub async fn dry_run(
    client: &kube::Client,
    command_line: &ClusterSettings,
    out: &mut (dyn io::Write + Send),
) -> Result<(), DryRunError> {
    let settings = policies(client).await?.settings(command_line);
    let nodes: Api<KubeNode> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default()).await;
    let mut nodes: Vec<ObservedNode> =
        listed.map_err(reading("the nodes"))?.iter().map(ObservedNode::of).collect();
    nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let pods: Api<KubePod> = Api::all(client.clone());
    let listed = pods.list(&ListParams::default().fields(ON_NODES)).await;
    let mut loads = PodLoads::default();
    for pod in listed.map_err(reading("the pods"))? {
        loads.apply(&pod);
    }
    for mut node in nodes {
        node.load = Some(loads.load(&node.name));
        for line in steps(node, &settings, Timestamp::now()) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// What one node would get, step after step.
fn steps(mut node: ObservedNode, settings: &ClusterSettings, now: Timestamp) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut notices = Vec::new();
    for _ in 0..STEPS {
        let next = plan(&node, settings);
        notices = next.notices;
        let Some(write) = next.write else { break };
        lines.push(match &write {
            NodeWrite::UseStatus(status) => json!({
                "node": node.name, "patch": "strategic", "subresource": "status",
                "body": patch::use_status(&node, status, now),
            }),
            NodeWrite::DeployLabels(changes) => {
                json!({ "node": node.name, "patch": "merge", "body": patch::deploy_labels(&node, changes) })
            }
            NodeWrite::SharingMetadata(metadata) => {
                json!({ "node": node.name, "patch": "merge", "body": patch::sharing_metadata(&node, metadata) })
            }
            NodeWrite::SharingStatus(change) => json!({
                "node": node.name, "patch": "strategic", "subresource": "status",
                "body": patch::sharing_status(&node, change, now),
            }),
        });
        lines.extend(write.event().map(|(reason, note)| event(&node, reason, note)));
        node = patch::after(&node, &write, now);
    }
    lines.extend(notices.iter().map(|finding| event(&node, finding.reason.word(), &finding.message)));
    lines
}

fn event(node: &ObservedNode, reason: &str, sentence: &str) -> Value {
    json!({ "node": node.name, "event": { "reason": reason, "note": sentence } })
}

async fn policies(client: &kube::Client) -> Result<ClusterPolicies, DryRunError> {
    let mut policies = ClusterPolicies::default();
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let definition = definitions.get_metadata_opt(DEFINITION).await;
    if definition.map_err(reading("the definition of ClusterPolicy"))?.is_none() {
        return Ok(policies);
    }
    policies.defined = true;
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource());
    for policy in all.list(&ListParams::default()).await.map_err(reading("the ClusterPolicies"))? {
        policies.apply(&policy);
    }
    Ok(policies)
}

fn reading(what: &'static str) -> impl FnOnce(kube::Error) -> DryRunError {
    move |source| DryRunError::Read { what, source }
}

//! What the controller would write now, without writing.

use std::io;

use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use serde_json::{Value, json};

use crate::finding::Finding;
use crate::observed::Node;
use crate::patch;
use crate::plan::{Cluster, Write, plan};
use crate::policy::{DEFINITION, Policies, resource};

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
    command_line: &Cluster,
    out: &mut (dyn io::Write + Send),
) -> Result<(), DryRunError> {
    let cluster = policies(client).await?.settings(command_line);
    let nodes: Api<KubeNode> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default()).await;
    let mut nodes: Vec<Node> = listed.map_err(reading("the nodes"))?.iter().map(Node::of).collect();
    nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for node in nodes {
        for line in steps(node, &cluster, Timestamp::now()) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// What one node would get, step after step.
fn steps(mut node: Node, cluster: &Cluster, now: Timestamp) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut notices = Vec::new();
    for _ in 0..STEPS {
        let next = plan(&node, cluster);
        notices = next.notices;
        let Some(write) = next.write else { break };
        lines.push(match &write {
            Write::Status(status) => json!({
                "node": node.name, "patch": "strategic", "subresource": "status",
                "body": patch::status(&node, status, now),
            }),
            Write::Labels(changes) => {
                json!({ "node": node.name, "patch": "merge", "body": patch::labels(&node, changes) })
            }
        });
        if let Write::Status(status) = &write {
            lines.extend(
                status.condition.as_ref().filter(|_| status.tell).map(|finding| event(&node, finding)),
            );
        }
        node = patch::after(&node, &write, now);
    }
    lines.extend(notices.iter().map(|finding| event(&node, finding)));
    lines
}

fn event(node: &Node, finding: &Finding) -> Value {
    json!({ "node": node.name, "event": { "reason": finding.reason.word(), "note": finding.message } })
}

async fn policies(client: &kube::Client) -> Result<Policies, DryRunError> {
    let mut policies = Policies::default();
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

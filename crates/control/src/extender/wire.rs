//! The scheduler's extender protocol, v1: names as `k8s.io/kube-scheduler/extender/v1` has them, as far as they are
//! used. Keys are written in capitals there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::partial_object::{self, ReadError, Texts};

/// The most nodes of one question. Kubernetes itself is made for 5,000.
const MOST_NODES: usize = 20_000;

/// `ExtenderArgs`: the body of `filter` and `prioritize`.
#[derive(Debug)]
pub(super) struct ExtenderArguments<'a> {
    /// What is looked at of the pod.
    pub(super) pod: Value,
    /// Nothing when the scheduler sends whole nodes instead, which it does unless it is told `nodeCacheCapable`.
    pub(super) node_names: Option<Vec<Cow<'a, str>>>,
}

/// Why the scheduler's question was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuestionError {
    #[error("the question cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    #[error("the pod in the question: {0}")]
    Pod(#[from] ReadError),
}

#[derive(Deserialize)]
struct SentArguments<'a> {
    #[serde(rename = "Pod", borrow)]
    pod: &'a RawValue,
    #[serde(rename = "NodeNames", borrow, default)]
    node_names: Option<Texts<'a, MOST_NODES>>,
}

impl<'a> ExtenderArguments<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, QuestionError> {
        let sent: SentArguments<'a> = serde_json::from_slice(body)?;
        let pod = partial_object::read(sent.pod.get())?;
        Ok(Self { pod, node_names: sent.node_names.map(|names| names.0) })
    }
}

/// `ExtenderFilterResult`: the answer to `filter`.
#[derive(Debug, Default, Serialize)]
pub(super) struct FilterResult {
    #[serde(rename = "NodeNames")]
    pub(super) node_names: Vec<String>,
    /// Where the pod does not fit now; pods that leave may change it.
    #[serde(rename = "FailedNodes")]
    pub(super) failed_nodes: BTreeMap<String, String>,
    /// Where it does not fit, whoever leaves.
    #[serde(rename = "FailedAndUnresolvableNodes")]
    pub(super) unresolvable: BTreeMap<String, String>,
    #[serde(rename = "Error", skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
}

impl FilterResult {
    pub(super) fn error(error: String) -> Self {
        Self { error, ..Self::default() }
    }
}

/// One entry of the answer to `prioritize`.
#[derive(Debug, Serialize)]
pub(super) struct HostPriority {
    #[serde(rename = "Host")]
    pub(super) host: String,
    /// 0 to 10.
    #[serde(rename = "Score")]
    pub(super) score: i64,
}

/// `ExtenderBindingArgs`: the body of `bind`.
#[derive(Debug, Deserialize)]
pub(super) struct BindArguments {
    #[serde(rename = "PodName")]
    pub(super) name: String,
    #[serde(rename = "PodNamespace")]
    pub(super) namespace: String,
    #[serde(rename = "PodUID")]
    pub(super) uid: String,
    #[serde(rename = "Node")]
    pub(super) node: String,
}

impl BindArguments {
    pub(super) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

/// The answer to `bind`; an empty error means that the pod is bound.
#[derive(Debug, Serialize)]
pub(super) struct BindResult {
    #[serde(rename = "Error")]
    pub(super) error: String,
}

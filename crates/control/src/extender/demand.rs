//! What a pod wants of GPUs.

use gpupool_core::placement::Demand;
use gpupool_core::sharing::{self, Refusal};
use gpupool_k8s::pod::{sharing, sharing_of_json};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// The demand of a pod. Admission refuses pods that make no sense; one that got past it is told why here.
pub(super) fn of(pod: &Pod) -> Result<Demand, Refusal> {
    demand(&sharing(pod))
}

/// The same of the pod that the scheduler sends.
pub(super) fn of_json(pod: &Value) -> Result<Demand, Refusal> {
    demand(&sharing_of_json(pod))
}

fn demand(pod: &sharing::Pod) -> Result<Demand, Refusal> {
    Ok(match pod.share()? {
        Some(asked) => Demand::Shared { policy: asked.policy, core: asked.core, memory: asked.memory },
        None if pod.exclusive().is_some() => Demand::Exclusive,
        None => Demand::None,
    })
}

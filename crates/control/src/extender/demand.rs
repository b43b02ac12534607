//! What a pod wants of GPUs.

use gpupool_core::placement::Demand;
use gpupool_core::sharing::Refusal;
use gpupool_k8s::pod::sharing;
use k8s_openapi::api::core::v1::Pod;

/// The demand of a pod. Admission refuses pods that make no sense; one that got past it is told why here.
pub(super) fn of(pod: &Pod) -> Result<Demand, Refusal> {
    let pod = sharing(pod);
    Ok(match pod.share()? {
        Some(asked) => Demand::Shared { policy: asked.policy, core: asked.core, memory: asked.memory },
        None if pod.exclusive().is_some() => Demand::Exclusive,
        None => Demand::None,
    })
}

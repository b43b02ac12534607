//! What a pod wants of GPUs, read from what the scheduler or the API server says of it.

use std::collections::BTreeMap;

use gpupool_core::placement::Demand;
use gpupool_core::sharing;
use gpupool_core::sharing::Refusal;
use k8s_openapi::api::core::v1::Pod as KubePod;

use super::wire;
use crate::share_policy::pods::sharing_pod;

/// The demand of a pod as the scheduler sends it. Admission refuses pods that make no sense; one that got past it is
/// told why here.
pub(super) fn of(pod: &wire::Pod) -> Result<Demand, Refusal> {
    let mut seen = sharing::Pod::new(pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
    let init = pod.spec.init_containers.iter().flatten().map(|container| (container, true));
    let containers = init.chain(pod.spec.containers.iter().map(|container| (container, false)));
    seen.containers = containers
        .map(|(container, init)| {
            let resources = &container.resources;
            sharing::Container::new(
                &container.name,
                init,
                |name| text(resources.requests.as_ref(), name),
                |name| text(resources.limits.as_ref(), name),
            )
        })
        .collect();
    demand(&seen)
}

/// The demand of an object of the API server.
pub(super) fn of_object(pod: &KubePod) -> Result<Demand, Refusal> {
    demand(&sharing_pod(pod))
}

fn demand(pod: &sharing::Pod) -> Result<Demand, Refusal> {
    Ok(match pod.share()? {
        Some(asked) => Demand::Shared { policy: asked.policy, core: asked.core, memory: asked.memory },
        None if pod.is_exclusive() => Demand::Exclusive,
        None => Demand::None,
    })
}

fn text<'a>(list: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    list.and_then(|list| list.get(name)).map(String::as_str)
}

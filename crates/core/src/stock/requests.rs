//! What a pod asks for in all.

use super::Resources;
use crate::quantity::Quantity;

/// What one init container asks for, and whether it goes on beside the others (`restartPolicy: Always`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitContainer {
    /// Its requests.
    pub requests: Resources,
    /// Whether it is a sidecar.
    pub is_sidecar: bool,
}

/// What a pod holds on its node: its containers and sidecars together, or its hungriest moment while it
/// initialises, whichever is more; and its overhead. The rule is the scheduler's.
pub fn pod_requests(containers: &[Resources], init: &[InitContainer], overhead: &Resources) -> Resources {
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in init {
        if container.is_sidecar {
            add(&mut sidecars, &container.requests);
            raise(&mut peak, &sidecars);
        } else {
            let mut moment = sidecars.clone();
            add(&mut moment, &container.requests);
            raise(&mut peak, &moment);
        }
    }
    let mut total = sidecars;
    for container in containers {
        add(&mut total, container);
    }
    raise(&mut total, &peak);
    add(&mut total, overhead);
    total
}

fn add(sum: &mut Resources, more: &Resources) {
    for (resource, amount) in more {
        let entry = sum.entry(resource.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(*amount);
    }
}

fn raise(least: &mut Resources, other: &Resources) {
    for (resource, amount) in other {
        let entry = least.entry(resource.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

//! What a pod wants of GPUs, read from the object.

use std::collections::BTreeMap;

use gpupool_core::one_line::one_line;
use gpupool_core::placement::Demand;
use gpupool_core::share::{Percent, Share, ShareError};
use gpupool_core::sharing::names::{
    CORE_LIMIT_ANNOTATION, CORE_RESOURCE, EXCLUSIVE_RESOURCE, MEMORY_LIMIT_ANNOTATION, MEMORY_RESOURCE,
    POLICY_LABEL,
};
use gpupool_core::sharing::{Policy, PolicyError};
use k8s_openapi::api::core::v1::{Container as KubeContainer, Pod as KubePod};

use super::wire::{Container, Metadata, Pod, Resources, Spec};

/// Why a pod's demand makes no sense. Admission refuses such pods; one that got past it is told so here.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemandError {
    #[error(
        "the pod asks for a share of a card without the label {POLICY_LABEL}: set it to share-pool or static"
    )]
    NoPolicy,
    #[error("{0}")]
    Policy(#[from] PolicyError),
    #[error("the pod asks for a share of a card with {POLICY_LABEL}=none: set it to share-pool or static")]
    PolicyNone,
    #[error("the pod asks for {there} without {missing}: ask for both")]
    OneOfTwo { there: &'static str, missing: &'static str },
    #[error("{name} is \"{value}\": {error}")]
    Percent { name: &'static str, value: String, error: ShareError },
}

/// The demand of a pod as the scheduler sends it.
pub(super) fn of(pod: &Pod) -> Result<Demand, DemandError> {
    let containers = || pod.spec.containers.iter().chain(pod.spec.init_containers.iter().flatten());
    let sharing = containers().find(|container| {
        [CORE_RESOURCE, MEMORY_RESOURCE].iter().any(|name| quantity(&container.resources, name).is_some())
    });
    let Some(sharing) = sharing else {
        let exclusive =
            containers().any(|container| quantity(&container.resources, EXCLUSIVE_RESOURCE).is_some());
        return Ok(if exclusive { Demand::Exclusive } else { Demand::None });
    };
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POLICY_LABEL));
    let policy: Policy = label.ok_or(DemandError::NoPolicy)?.parse()?;
    if !policy.shares() {
        return Err(DemandError::PolicyNone);
    }
    let annotations = pod.metadata.annotations.as_ref();
    let core = share(&sharing.resources, annotations, CORE_RESOURCE, CORE_LIMIT_ANNOTATION)?;
    let memory = share(&sharing.resources, annotations, MEMORY_RESOURCE, MEMORY_LIMIT_ANNOTATION)?;
    match (core, memory) {
        (Some(core), Some(memory)) => Ok(Demand::Shared { policy, core, memory }),
        (Some(_), None) => Err(DemandError::OneOfTwo { there: CORE_RESOURCE, missing: MEMORY_RESOURCE }),
        _ => Err(DemandError::OneOfTwo { there: MEMORY_RESOURCE, missing: CORE_RESOURCE }),
    }
}

/// The demand of an object of the API server.
pub(super) fn of_object(pod: &KubePod) -> Result<Demand, DemandError> {
    let spec = pod.spec.as_ref();
    of(&Pod {
        metadata: Metadata {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone(),
            annotations: pod.metadata.annotations.clone(),
        },
        spec: Spec {
            containers: spec.map(|spec| spec.containers.iter().map(container).collect()).unwrap_or_default(),
            init_containers: spec
                .and_then(|spec| spec.init_containers.as_ref())
                .map(|containers| containers.iter().map(container).collect()),
        },
    })
}

fn container(container: &KubeContainer) -> Container {
    let texts = |quantities: &Option<BTreeMap<String, _>>| {
        quantities.as_ref().map(|quantities| {
            quantities
                .iter()
                .map(
                    |(name, quantity): (
                        &String,
                        &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                    )| { (name.clone(), quantity.0.clone()) },
                )
                .collect()
        })
    };
    let resources = container.resources.as_ref();
    Container {
        resources: Resources {
            requests: resources.and_then(|resources| texts(&resources.requests)),
            limits: resources.and_then(|resources| texts(&resources.limits)),
        },
    }
}

/// What is asked for under a name; zero is nothing.
fn quantity<'a>(resources: &'a Resources, name: &str) -> Option<&'a str> {
    let of = |list: &'a Option<BTreeMap<String, String>>| list.as_ref().and_then(|list| list.get(name));
    of(&resources.requests)
        .or_else(|| of(&resources.limits))
        .map(String::as_str)
        .filter(|value| *value != "0")
}

fn share(
    resources: &Resources,
    annotations: Option<&BTreeMap<String, String>>,
    resource: &'static str,
    annotation: &'static str,
) -> Result<Option<Share>, DemandError> {
    let Some(request) = quantity(resources, resource) else { return Ok(None) };
    let read = |name, value: &str| {
        let percent: Result<Percent, ShareError> = value.parse::<Share>().map(Share::limit);
        percent.map_err(|error| DemandError::Percent { name, value: one_line(value, 40), error })
    };
    let request = read(resource, request)?;
    let limit = match annotations.and_then(|annotations| annotations.get(annotation)) {
        Some(limit) => read(annotation, limit)?,
        None => request,
    };
    let error = |error| DemandError::Percent { name: annotation, value: limit.to_string(), error };
    Share::new(request, limit).map(Some).map_err(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: &serde_json::Value, annotations: &serde_json::Value, requests: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": "u", "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"resources": {"requests": requests, "limits": requests}}]},
        }))
        .unwrap()
    }

    #[test]
    fn requests_and_the_limits_of_annotations_make_a_share() {
        let pod = pod(
            &json!({POLICY_LABEL: "static"}),
            &json!({CORE_LIMIT_ANNOTATION: "100"}),
            &json!({CORE_RESOURCE: "10", MEMORY_RESOURCE: "20"}),
        );
        let Ok(Demand::Shared { policy, core, memory }) = of(&pod) else { panic!("{:?}", of(&pod)) };
        assert_eq!(
            (policy, core.to_string(), memory.to_string()),
            (Policy::Static, "10:100".to_owned(), "20:20".to_owned())
        );
    }

    #[test]
    fn whole_cards_are_exclusive_and_nothing_is_none() {
        assert_eq!(
            of(&pod(&json!({}), &json!({}), &json!({EXCLUSIVE_RESOURCE: "2"}))).unwrap(),
            Demand::Exclusive
        );
        assert_eq!(of(&pod(&json!({}), &json!({}), &json!({"cpu": "2"}))).unwrap(), Demand::None);
        assert_eq!(
            of(&pod(&json!({}), &json!({}), &json!({EXCLUSIVE_RESOURCE: "0"}))).unwrap(),
            Demand::None
        );
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let both = json!({CORE_RESOURCE: "10", MEMORY_RESOURCE: "20"});
        let refused = |pod: Pod| of(&pod).unwrap_err().to_string();
        assert!(refused(pod(&json!({}), &json!({}), &both)).contains("without the label"));
        assert!(refused(pod(&json!({POLICY_LABEL: "none"}), &json!({}), &both)).contains("=none"));
        assert!(refused(pod(&json!({POLICY_LABEL: "sharepool"}), &json!({}), &both)).contains("share-pool"));
        let one = refused(pod(&json!({POLICY_LABEL: "static"}), &json!({}), &json!({CORE_RESOURCE: "10"})));
        assert!(one.contains("ask for both"), "{one}");
        let low = pod(&json!({POLICY_LABEL: "static"}), &json!({CORE_LIMIT_ANNOTATION: "5"}), &both);
        assert!(refused(low).contains(CORE_LIMIT_ANNOTATION));
        let big = json!({CORE_RESOURCE: "1k", MEMORY_RESOURCE: "20"});
        assert!(refused(pod(&json!({POLICY_LABEL: "static"}), &json!({}), &big)).contains("1k"));
    }
}

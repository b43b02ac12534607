//! What a pod asks for, and why it is refused.

use gpupool_core::share::{Percent, Share};
use gpupool_core::sharing::{Amount, Container, Pod, Policy, Refusal};
use proptest::prelude::*;

/// The published pod: requests of 10, limits of 100.
pub(crate) fn published() -> Pod {
    Pod {
        policy: Some("share-pool".to_owned()),
        compute_class: Some("gpu-hpn".to_owned()),
        containers: vec![container("demo", ("10", "100"), ("10", "100"))],
        ..Pod::default()
    }
}

pub(crate) fn container(name: &str, core: (&str, &str), memory: (&str, &str)) -> Container {
    Container { name: name.to_owned(), core: amount(core), memory: amount(memory), ..Container::default() }
}

/// An empty text stands for nothing.
pub(crate) fn amount((request, limit): (&str, &str)) -> Amount {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Amount { request: text(request), limit: text(limit) }
}

fn share(request: u64, limit: u64) -> Share {
    Share::new(Percent::new(request).unwrap(), Percent::new(limit).unwrap()).unwrap()
}

fn refused(change: impl Fn(&mut Pod)) -> Refusal {
    let mut pod = published();
    change(&mut pod);
    pod.share().unwrap_err()
}

#[test]
fn the_published_pod_asks_for_a_tenth_and_may_use_a_whole_card() {
    let asked = published().share().unwrap().unwrap();
    assert_eq!((asked.policy, &asked.container[..]), (Policy::SharePool, "demo"));
    assert_eq!((asked.core, asked.memory), (share(10, 100), share(10, 100)));
}

#[test]
fn a_pod_without_percentages_is_none_of_our_business_whatever_its_labels() {
    let mut pod = published();
    pod.containers = vec![container("demo", ("", ""), ("", ""))];
    pod.containers[0].exclusive = Some("nvidia.com/gpu".to_owned());
    pod.policy = Some("rubbish".to_owned());
    assert_eq!(pod.share(), Ok(None));
}

#[test]
fn the_stored_pod_asks_for_the_same_as_the_written_one() {
    let mut stored = published();
    stored.containers = vec![container("demo", ("10", "10"), ("10", "10"))];
    stored.core_limit = Some("100".to_owned());
    stored.memory_limit = Some("100".to_owned());
    assert_eq!(stored.share(), published().share());
}

#[test]
fn a_request_or_a_limit_alone_stands_for_both() {
    for one in [("30", ""), ("", "30"), ("30", "30")] {
        let mut pod = published();
        pod.containers = vec![container("demo", one, one)];
        assert_eq!(pod.share().unwrap().unwrap().core, share(30, 30), "{one:?}");
    }
}

#[test]
fn a_limit_over_the_request_wins_over_the_annotation() {
    let mut pod = published();
    pod.core_limit = Some("50".to_owned());
    assert_eq!(pod.share().unwrap().unwrap().core, share(10, 100));
}

#[test]
fn what_is_no_whole_percentage_is_refused_with_what_was_written() {
    for value in ["0", "101", "-1", "0.5", "10500m", "1k", "ten", "50%"] {
        let refusal = refused(|pod| pod.containers[0].core = amount((value, value)));
        let text = refusal.to_string();
        assert!(
            matches!(refusal, Refusal::NoPercentage { .. })
                && text.contains("container \"demo\"")
                && text.contains(&format!("{value} of alibabacloud.com/gpu-core.percentage"))
                && text.contains("a whole number from 1 to 100"),
            "{text}"
        );
    }
    let mut odd = published();
    odd.containers[0].memory = amount(("1e1", "100000m"));
    assert_eq!(odd.share().unwrap().unwrap().memory, share(10, 100));
}

#[test]
fn every_other_refusal_says_what_to_do() {
    let second = container("second", ("10", ""), ("", ""));
    let table: [(Refusal, &str); 12] = [
        (
            refused(|pod| pod.containers[0].core = amount(("50", "10"))),
            "lower the request or raise the limit",
        ),
        (
            refused(|pod| {
                pod.containers[0].core = amount(("50", "50"));
                pod.core_limit = Some("20".to_owned());
            }),
            "requests 50 percent of alibabacloud.com/gpu-core.percentage, over its limit of 20",
        ),
        (
            refused(|pod| pod.containers[0].memory = amount(("", ""))),
            "asks for alibabacloud.com/gpu-core.percentage but not for alibabacloud.com/gpu-memory.percentage: ask for both",
        ),
        (refused(|pod| pod.containers.push(second.clone())), "containers \"demo\" and \"second\" both ask"),
        (refused(|pod| pod.containers[0].init = true), "init containers can't share"),
        (
            refused(|pod| pod.containers[0].exclusive = Some("nvidia.com/gpu".to_owned())),
            "a pod asks for one or the other",
        ),
        (refused(|pod| pod.policy = None), "set it to share-pool or static"),
        (refused(|pod| pod.policy = Some("none".to_owned())), "set the label to share-pool or static"),
        (
            refused(|pod| pod.policy = Some("share-pol".to_owned())),
            "the pod's label alibabacloud.com/gpu-share-policy is \"share-pol\", which is none of share-pool, static and none; set it to share-pool",
        ),
        (
            refused(|pod| pod.compute_class = None),
            "label alibabacloud.com/compute-class is missing on the pod: set it to gpu-hpn",
        ),
        (refused(|pod| pod.compute_class = Some("gpu".to_owned())), "is \"gpu\": only pods of class gpu-hpn"),
        (
            refused(|pod| {
                pod.containers[0].memory = amount(("10", "10"));
                pod.memory_limit = Some("1e2".to_owned());
            }),
            "annotation gpupool.io/gpu-memory.limit is \"1e2\": write a whole number from 1 to 100",
        ),
    ];
    for (refusal, says) in table {
        let text = refusal.to_string();
        assert!(text.contains(says), "{text}");
        // It is shown in one line, through formats in which a percent sign is no percent sign.
        assert!(!text.contains('\n') && !text.contains('%'), "{text}");
    }
}

#[test]
fn an_exclusive_container_beside_the_sharing_one_is_refused_too() {
    for (resource, asks) in [
        ("nvidia.com/gpu", "asks for whole cards (nvidia.com/gpu)"),
        ("nvidia.com/mig-1g.5gb", "asks for slices of cards (nvidia.com/mig-1g.5gb)"),
        ("nvidia.com/gpu.shared", "asks for replicas of cards (nvidia.com/gpu.shared)"),
    ] {
        let mut other = container("other", ("", ""), ("", ""));
        other.exclusive = Some(resource.to_owned());
        let text = refused(|pod| pod.containers.push(other.clone())).to_string();
        assert!(text.contains(&format!("container \"other\" {asks}")), "{text}");
    }
}

#[test]
fn whoever_has_cards_or_parts_of_them_for_himself_is_exclusive() {
    let exclusive = |resource: &str, amount: &str| {
        let amounts = [("cpu", "1".to_owned()), (resource, amount.to_owned())];
        let [requests, limits] = [amounts.clone(), amounts].map(IntoIterator::into_iter);
        let none = || std::iter::empty();
        let both = Container::new("c", false, requests, limits).exclusive;
        // A limit alone is asked for, too.
        let limit = Container::new("c", false, none(), [(resource, amount.to_owned())].into_iter()).exclusive;
        assert_eq!(both, limit, "{resource}");
        both
    };
    for resource in [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-3g.20gb.shared",
        "nvidia.com/gpu.shared",
        "nvidia.com/GA102GL_A10",
        "nvidia.com/NVIDIA_A10-12Q",
        "nvidia.com/pgpu",
        // Renamed in the configuration of NVIDIA's plugin: the domain is all that is left.
        "nvidia.com/a100-40gb",
    ] {
        assert_eq!(exclusive(resource, "1").as_deref(), Some(resource));
        assert_eq!(exclusive(resource, "0"), None);
    }
    for resource in [
        "cpu",
        "mig-1g.5gb",
        "amd.com/gpu",
        "example.com/nvidia.com",
        "nvidia.com/hostdev",
        "nvidia.com/nvswitch",
        "alibabacloud.com/gpu-core.percentage",
        "alibabacloud.com/gpu-memory.percentage",
    ] {
        assert_eq!(exclusive(resource, "1"), None, "{resource}");
    }
}

proptest! {
    #[test]
    fn a_share_is_what_was_written_or_there_is_a_refusal(request in 0_u32..130, limit in 0_u32..130) {
        let mut pod = published();
        pod.containers[0].core = amount((&request.to_string(), &limit.to_string()));
        let right = (1..=limit).contains(&request) && limit <= 100;
        match pod.share() {
            Ok(asked) => {
                prop_assert!(right);
                let core = asked.unwrap().core;
                prop_assert_eq!((u32::from(core.request().get()), u32::from(core.limit().get())), (request, limit));
            }
            Err(_) => prop_assert!(!right),
        }
    }

    #[test]
    fn no_text_makes_a_refusal_long_or_several_lines(
        text in "\\PC{0,300}|[\\x00-\\x20]{1,40}",
        name in "\\PC{0,200}",
    ) {
        let mut pod = published();
        pod.containers[0].name = name;
        for change in [
            |pod: &mut Pod, text: String| pod.policy = Some(text),
            |pod: &mut Pod, text: String| pod.compute_class = Some(text),
            |pod: &mut Pod, text: String| pod.containers[0].core.limit = Some(text),
        ] {
            let mut pod = pod.clone();
            change(&mut pod, text.clone());
            if let Err(refusal) = pod.share() {
                let said = refusal.to_string();
                prop_assert!(said.chars().count() < 900 && !said.contains('\n'), "{}", said);
            }
        }
    }
}

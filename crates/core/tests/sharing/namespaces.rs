//! What administrators allow limits to be.

use gpupool_core::quantity::Quantity;
use gpupool_core::share::{Percent, Share};
use gpupool_core::sharing::{AllowedLimits, Ceiling, Dimension, PodShare, Policy, RangeRule};

fn asked(policy: Policy, core: (u64, u64), memory: (u64, u64)) -> PodShare {
    let share =
        |(request, limit)| Share::new(Percent::new(request).unwrap(), Percent::new(limit).unwrap()).unwrap();
    PodShare { policy, container: "demo".to_owned(), core: share(core), memory: share(memory) }
}

fn range(dimension: Dimension, min: &str, max: &str, ratio: &str) -> AllowedLimits {
    let quantity = |text: &str| (!text.is_empty()).then(|| Quantity::parse(text).unwrap());
    let rule = RangeRule {
        name: "cap".to_owned(),
        dimension,
        min: quantity(min),
        max: quantity(max),
        ratio: quantity(ratio),
    };
    AllowedLimits { ranges: vec![rule], ..AllowedLimits::default() }
}

fn ceilings(annotations: &[(&str, &str)]) -> AllowedLimits {
    let text = |name: &str| Some(annotations.iter().find(|(key, _)| *key == name)?.1.to_owned());
    AllowedLimits {
        namespace: "team-a".to_owned(),
        ceilings: Ceiling::read(text),
        ..AllowedLimits::default()
    }
}

/// What is said against it; nothing where it is let in.
fn said(rules: &AllowedLimits, asked: &PodShare) -> String {
    rules.check(asked).err().map(|refusal| refusal.to_string()).unwrap_or_default()
}

#[test]
fn a_limit_is_held_to_the_limit_ranges_as_kubernetes_holds_the_limits_that_it_stores() {
    let pod = asked(Policy::SharePool, (10, 100), (20, 40));
    for (rules, says) in [
        (AllowedLimits::default(), ""),
        (range(Dimension::Core, "", "100", ""), ""),
        (range(Dimension::Core, "", "50", ""), "percentage is 100, and LimitRange \"cap\" allows at most 50"),
        (range(Dimension::Core, "", "99500m", ""), "allows at most 99500m"),
        (range(Dimension::Core, "", "", "10"), ""),
        (range(Dimension::Core, "", "", "9.9"), "allows at most 9900m times the request, which is 10"),
        (range(Dimension::Core, "", "", "2"), "allows at most 2 times the request, which is 10"),
        (range(Dimension::Memory, "", "50", "2"), ""),
        (range(Dimension::Memory, "", "39", ""), "gpu-memory.percentage is 40, and LimitRange"),
        (range(Dimension::Memory, "", "", "1999m"), "allows at most 1999m times the request, which is 20"),
        (range(Dimension::Memory, "40", "", ""), ""),
        (range(Dimension::Memory, "41", "", ""), "allows at least 41"),
    ] {
        let said = said(&rules, &pod);
        assert!(if says.is_empty() { said.is_empty() } else { said.contains(says) }, "{says:?}: {said:?}");
    }
}

#[test]
fn a_namespace_has_ceilings_for_all_pods_and_for_those_of_one_policy() {
    const ALL: &str = "gpupool.io/gpu-core.max-limit";
    const STATIC: &str = "gpupool.io/gpu-core.max-limit.static";
    const MEMORY: &str = "gpupool.io/gpu-memory.max-limit.share-pool";
    let pooled = asked(Policy::SharePool, (10, 60), (10, 30));
    let fixed = asked(Policy::Static, (10, 60), (10, 30));
    for (annotations, pooled_is_let_in, fixed_is_let_in) in [
        (&[(ALL, "60")][..], true, true),
        (&[(ALL, "59")], false, false),
        (&[(ALL, "059")], false, false),
        (&[(STATIC, "59")], true, false),
        (&[(ALL, "59"), (STATIC, "100")], false, false),
        (&[(MEMORY, "29")], false, true),
        (&[(ALL, "100"), (STATIC, "100"), (MEMORY, "30")], true, true),
        // What cannot be read lets nobody in.
        (&[(ALL, "many")], false, false),
        (&[(STATIC, "")], true, false),
    ] {
        let rules = ceilings(annotations);
        assert_eq!(said(&rules, &pooled).is_empty(), pooled_is_let_in, "{annotations:?}");
        assert_eq!(said(&rules, &fixed).is_empty(), fixed_is_let_in, "{annotations:?}");
    }
    assert_eq!(
        said(&ceilings(&[(ALL, "50")]), &pooled),
        "the limit of alibabacloud.com/gpu-core.percentage is 60, and annotation gpupool.io/gpu-core.max-limit of namespace \"team-a\" allows 50: lower the limit"
    );
    let unreadable = said(&ceilings(&[(ALL, &"x\n".repeat(10_000))]), &pooled);
    assert!(unreadable.len() < 400 && !unreadable.contains('\n'), "{unreadable}");
}

use std::collections::BTreeSet;

use super::*;
use crate::table::Class;

#[test]
fn every_row_is_found_by_its_name_and_no_other_is() {
    let mut names = BTreeSet::new();
    for entry in Entry::all() {
        let name = entry.name().to_bytes();
        assert_eq!(find(name), Some(entry));
        assert!(names.insert(name.to_vec()), "{entry:?} has two rows");
    }
    for stranger in ["", "cu", "cuDriverGetVersion", "curl_easy_init", "cuInit_v2", "cuMemAlloc_v", "_v2"] {
        assert_eq!(find(stranger.as_bytes()), None, "{stranger}");
    }
}

#[test]
fn the_variants_of_a_name_are_its_versions_and_stream_forms() {
    let names = |name: &str| -> BTreeSet<String> {
        variants(name.as_bytes()).map(|entry| format!("{entry:?}")).collect()
    };
    let set = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names("cuMemFree"), set(&["cuMemFree", "cuMemFree_v2"]));
    assert_eq!(names("cuMemFreeAsync"), set(&["cuMemFreeAsync", "cuMemFreeAsync_ptsz"]));
    assert_eq!(
        names("cuCtxCreate"),
        set(&["cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"])
    );
    assert_eq!(names("cuLaunchKernel"), set(&["cuLaunchKernel", "cuLaunchKernel_ptsz"]));
    assert_eq!(names(""), set(&[]));
    for entry in Entry::all() {
        let family = names(entry.name().to_str().unwrap());
        let same_base = |other: &Entry| base_of(other.name().to_bytes()) == base_of(entry.name().to_bytes());
        let all = Entry::all().filter(same_base).map(|entry| format!("{entry:?}")).collect();
        assert_eq!(family, all, "{entry:?}");
    }
}

#[test]
fn a_program_of_an_older_cuda_gets_the_variant_of_its_time() {
    for (name, version, per_thread, variant) in [
        ("cuCtxCreate", 2000, false, Entry::cuCtxCreate),
        ("cuCtxCreate", 3020, false, Entry::cuCtxCreate_v2),
        ("cuCtxCreate", 11_030, false, Entry::cuCtxCreate_v2),
        ("cuCtxCreate", 11_040, false, Entry::cuCtxCreate_v3),
        ("cuCtxCreate", 13_050, true, Entry::cuCtxCreate_v4),
        ("cuMemAlloc", 2000, false, Entry::cuMemAlloc),
        ("cuMemAlloc", 12_000, true, Entry::cuMemAlloc_v2),
        ("cuLaunchKernel", 7000, true, Entry::cuLaunchKernel_ptsz),
        ("cuLaunchKernel", 7000, false, Entry::cuLaunchKernel),
        ("cuGetProcAddress", 11_030, false, Entry::cuGetProcAddress),
        ("cuGetProcAddress", 12_000, true, Entry::cuGetProcAddress_v2_ptsz),
    ] {
        assert_eq!(variant_for(name.as_bytes(), version, per_thread), Some(variant), "{name} {version}");
    }
    assert_eq!(variant_for(b"cuNoSuchThing", 12_000, false), None);
}

#[test]
fn every_newer_variant_says_since_when_it_is() {
    for entry in Entry::all() {
        let newer = entry.form() & (VARIANT | PER_THREAD) == VARIANT;
        if newer && !entry.name().to_bytes().starts_with(b"nvml") {
            assert_ne!(since(entry), 0, "{entry:?}");
        }
    }
}

#[test]
fn the_per_thread_form_of_a_row_has_a_row() {
    for entry in Entry::all() {
        let name = format!("{entry:?}");
        if let Some(plain) = name.strip_suffix("_ptsz") {
            assert!(find(plain.as_bytes()).is_some(), "{plain} has no row");
        }
    }
}

#[test]
fn classes_are_those_of_the_table() {
    assert_eq!(Entry::cuInit.class(), Class::Identity);
    assert_eq!(Entry::cuLaunchKernel.class(), Class::Launches);
    assert_eq!(Entry::cuGetExportTable.class(), Class::NeedsLease);
    assert_eq!(Entry::nvmlDeviceGetMemoryInfo_v2.class(), Class::Views);
}

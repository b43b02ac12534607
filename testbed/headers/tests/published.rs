//! The published headers, as they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use gpupool_headers::{Headers, Release};

#[test]
fn as_many_functions_are_found_as_the_headers_declare() {
    let headers = Headers::fetch().unwrap();
    // 685 and 612 of cuda.h, 18 for OpenGL, 12 for EGL, 5 for VDPAU, 3 for the profiler. (12.9 forgets the types of
    // four functions that its cuda.h declares; 13.5 has them.)
    for (release, driver, nvml) in [(Release::Cuda13, 723, 436), (Release::Cuda12, 650, 387)] {
        let functions = headers.driver_functions(release).unwrap();
        let symbols: BTreeSet<_> = functions.iter().map(|function| &function.symbol).collect();
        assert_eq!((functions.len(), symbols.len()), (driver, driver), "{release:?}");
        assert_eq!(headers.nvml_functions(release).unwrap().len(), nvml, "{release:?}");
        assert!(headers.include(release).join("cuda.h").is_file());
        assert!(headers.nvml_include(release).join("nvml.h").is_file());
    }
}

#[test]
fn the_newer_release_declares_all_that_the_older_one_does() {
    let headers = Headers::fetch().unwrap();
    let symbols = |release| -> BTreeSet<_> {
        headers.driver_functions(release).unwrap().into_iter().map(|function| function.symbol).collect()
    };
    let missing: Vec<_> = symbols(Release::Cuda12).difference(&symbols(Release::Cuda13)).cloned().collect();
    assert_eq!(missing, [] as [String; 0]);
    let nvml = |release| headers.nvml_functions(release).unwrap();
    assert!(nvml(Release::Cuda12).is_subset(&nvml(Release::Cuda13)));
}

//! Every name that NVIDIA's headers declare is somebody's decision: it has a row, or is known to need none.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use gpupool_headers::{Flavour, Function, Headers, Release};
use gpupool_shim::table::{Entry, since};
use gpupool_shim::table::{names, unhooked};

/// Rows that no header declares: the loader's, and a per-thread form that `cuda.h` names in a macro only.
const IN_NO_HEADER: [&str; 3] = ["dlsym", "dlvsym", "cuGetProcAddress_v2_ptsz"];

fn driver_functions() -> BTreeMap<String, Function> {
    let headers = Headers::fetch().unwrap();
    [Release::Cuda12, Release::Cuda13]
        .into_iter()
        .flat_map(|release| headers.driver_functions(release).unwrap())
        .map(|function| (function.symbol.clone(), function))
        .collect()
}

fn nvml_functions() -> BTreeSet<String> {
    let headers = Headers::fetch().unwrap();
    [Release::Cuda12, Release::Cuda13]
        .into_iter()
        .flat_map(|release| headers.nvml_functions(release).unwrap())
        .collect()
}

fn rows() -> BTreeSet<String> {
    Entry::all().map(|entry| entry.name().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_name_of_the_headers_has_a_row_or_a_reason_for_having_none() {
    let (rows, passing) = (rows(), unhooked::all().map(|(name, _)| name.to_owned()).collect::<Vec<_>>());
    let without: BTreeSet<_> = passing.iter().cloned().collect();
    assert_eq!(without.len(), passing.len(), "some name has two reasons for having no row");
    let declared: BTreeSet<_> = driver_functions().into_keys().chain(nvml_functions()).collect();
    let unknown: Vec<_> =
        declared.iter().filter(|&name| !rows.contains(name) && !without.contains(name)).collect();
    assert!(unknown.is_empty(), "neither in table.rs nor in passes.rs: {unknown:?}");
    let both: Vec<_> = rows.intersection(&without).collect();
    assert!(both.is_empty(), "they have rows, so take them out of passes.rs: {both:?}");
    let invented: Vec<_> = rows
        .union(&without)
        .filter(|&name| !declared.contains(name) && !IN_NO_HEADER.contains(&name.as_str()))
        .collect();
    assert!(invented.is_empty(), "no header declares them: {invented:?}");
}

#[test]
fn rows_say_since_when_their_variants_are_as_the_headers_do() {
    for (name, function) in driver_functions() {
        let Some(entry) = names::find(name.as_bytes()) else { continue };
        let first = names::variants(name.as_bytes()).next() == Some(entry);
        if !first && function.flavour == Flavour::Plain {
            assert_eq!(since(entry), function.version, "{name}");
        }
    }
}

#[test]
fn cu_get_proc_address_is_understood_as_the_headers_mean_it() {
    let functions = driver_functions();
    for (name, function) in &functions {
        let Some(entry) = names::find(name.as_bytes()) else { continue };
        // A plain form that another one replaced within the same version is never handed out.
        let per_thread = function.flavour != Flavour::Plain;
        let newest = functions
            .values()
            .filter(|other| other.base == function.base && (other.flavour != Flavour::Plain) == per_thread)
            .all(|other| other.version != function.version || other.symbol <= *name);
        if newest {
            let meant = names::variant_for(function.base.as_bytes(), function.version, per_thread);
            assert_eq!(meant, Some(entry), "{} of {}", function.base, function.version);
        }
    }
}

#[test]
fn who_has_a_row_has_rows_for_all_its_forms() {
    let (rows, functions) = (rows(), driver_functions());
    let bases: BTreeSet<_> =
        functions.values().filter(|f| rows.contains(&f.symbol)).map(|f| &f.base).collect();
    let forgotten: Vec<_> = functions
        .values()
        .filter(|function| bases.contains(&function.base) && !rows.contains(&function.symbol))
        .map(|function| &function.symbol)
        .collect();
    assert!(forgotten.is_empty(), "other forms of the same name have rows: {forgotten:?}");
}

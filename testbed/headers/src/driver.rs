//! CUDA's driver API, read from the headers of function types: each type's name tells base name, version and default
//! stream (`PFN_cuMemcpyHtoD_v7000_ptds`), which `cuda.h` itself hides behind macros.

use std::collections::BTreeSet;

/// The headers that declare what a Linux driver exports.
pub(crate) const HEADERS: [&str; 5] = [
    "cudaTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
];

/// Which default stream a function means by stream 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// The legacy one, or no stream at all.
    Plain,
    /// The calling thread's own; a function without a stream argument.
    Ptds,
    /// The calling thread's own; a function with one.
    Ptsz,
}

/// A function that the driver exports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// The exported name: `cuMemcpyHtoD_v2_ptds`.
    pub symbol: String,
    /// What `cuGetProcAddress` is asked for: `cuMemcpyHtoD`.
    pub base: String,
    /// The CUDA version that introduced this variant (1000 × major + 10 × minor).
    pub version: u32,
    /// Its default stream.
    pub flavour: Flavour,
}

/// Name, version and flavour in the name of a function type, without its `PFN_`.
fn parse(name: &str) -> Option<(&str, u32, Flavour)> {
    let (name, flavour) = if let Some(name) = name.strip_suffix("_ptds") {
        (name, Flavour::Ptds)
    } else if let Some(name) = name.strip_suffix("_ptsz") {
        (name, Flavour::Ptsz)
    } else {
        (name, Flavour::Plain)
    };
    let (base, version) = name.rsplit_once("_v")?;
    Some((base, version.parse().ok()?, flavour))
}

/// The functions whose types are declared in `text`.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let declared: BTreeSet<_> = text
        .lines()
        .filter(|line| line.trim_start().starts_with("typedef CUresult"))
        .filter_map(|line| {
            let name = line.split_once("*PFN_")?.1.split_once(')')?.0;
            parse(name)
        })
        // Windows only.
        .filter(|(base, ..)| !base.starts_with("cuWGL"))
        .collect();
    let mut functions: Vec<_> = declared
        .iter()
        .map(|&(base, version, flavour)| {
            // The n-th variant of a name is exported with the suffix `_vn`; flavours follow the plain one they go with.
            let place = declared
                .iter()
                .filter(|other| other.0 == base && other.1 <= version && other.2 == Flavour::Plain)
                .count()
                .max(1);
            let number = if place > 1 { format!("_v{place}") } else { String::new() };
            let stream = match flavour {
                Flavour::Plain => "",
                Flavour::Ptds => "_ptds",
                Flavour::Ptsz => "_ptsz",
            };
            let symbol = format!("{base}{number}{stream}");
            Function { symbol, base: base.to_owned(), version, flavour }
        })
        .collect();
    functions.sort();
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_numbered_in_the_order_of_their_versions_and_flavours_go_with_theirs() {
        let text = "
            typedef CUresult (CUDAAPI *PFN_cuCopy_v7000_ptds)(int);
            typedef CUresult (CUDAAPI *PFN_cuCopy_v3020)(int);
            typedef CUresult(CUDAAPI *PFN_cuCopy_v2000)(int);
            typedef CUresult (CUDAAPI *PFN_cuWGLGetDevice_v2020)(int);
            #define PFN_cuCopy  PFN_cuCopy_v7000_ptds";
        let symbols: Vec<_> =
            functions(text).into_iter().map(|function| (function.symbol, function.version)).collect();
        assert_eq!(
            symbols,
            [("cuCopy".into(), 2000), ("cuCopy_v2".into(), 3020), ("cuCopy_v2_ptds".into(), 7000)]
        );
    }
}

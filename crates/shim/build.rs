//! How the shared library is linked: with its own symbols for itself, since another preload that defines the same
//! names must not get between the table and its entry points; and with nothing in it that it does not use.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_none() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("link.ld");
    // It has no constructors, so the compiler's start files would only run empty functions in every process.
    println!("cargo::rustc-link-arg=-nostartfiles");
    println!("cargo::rustc-link-arg=-Wl,-Bsymbolic,--build-id=none,--no-eh-frame-hdr");
    println!("cargo::rustc-link-arg=-Wl,-T,{}", script.display());
}

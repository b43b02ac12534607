//! Links the shared library so that it uses its own symbols: another preload that defines the same names must not
//! get between the table and its entry points, and loading must not have to look any of them up.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        println!("cargo::rustc-link-arg=-Wl,-Bsymbolic");
    }
}

//! Names the library as the loader knows it, and writes the functions of `names.txt` that nothing answers.

use std::fmt::Write as _;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=names.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // A tool that closes the library and opens it again finds the same count of inits and the same open state.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let mut stubs = String::new();
    for line in std::fs::read_to_string("names.txt")?.lines() {
        if line.starts_with('#') || line.ends_with(" +") {
            continue;
        }
        writeln!(
            stubs,
            "/// Not supported on a simulated card.\n\
             #[unsafe(no_mangle)]\n\
             pub extern \"C\" fn {line}() -> u32 {{ crate::library::not_supported(\"{line}\") }}"
        )?;
    }
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("stubs.rs"), stubs)?;
    Ok(())
}

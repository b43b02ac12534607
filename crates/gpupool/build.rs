//! Writes NVIDIA's part of the table of PCI ids as lines of text, for `names`. The table itself has every vendor's
//! devices and a pointer for each: 3.5 MB in the program instead of 80 KB.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use pci_ids::FromId as _;

/// NVIDIA's vendor id.
const NVIDIA: u16 = 0x10de;

#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let vendor = pci_ids::Vendor::from_id(NVIDIA).ok_or("the table of PCI ids has no NVIDIA")?;
    let mut table = String::new();
    for device in vendor.devices() {
        writeln!(table, "{:04x} {}", device.id(), device.name())?;
    }
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?);
    std::fs::write(directory.join("nvidia_devices.txt"), table)?;
    Ok(())
}

//! `gpupool names`: what resource names stand for, which names exist, and what a card or a vGPU type will be called.

mod pci_table;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::Parser;
use gpupool_core::names::{self, ResourceKind, classify, known, nearest::nearest, plugin};
use gpupool_core::one_line::{one_line, one_word};

/// What the user typed.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    /// Resource names, with or without nvidia.com/
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    /// A card's PCI id: tell what the plugins call it
    #[arg(long, value_name = "10de:2236")]
    pci: Vec<PciId>,
    /// A vGPU type as the driver names it: tell what the plugins call it
    #[arg(long, value_name = "NVIDIA A10-12Q")]
    vgpu: Vec<String>,
}

/// The device half of an NVIDIA card's PCI id.
#[derive(Clone, Copy, Debug)]
struct PciId(u16);

impl FromStr for PciId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = |part: &str| {
            let digits = part.strip_prefix("0x").unwrap_or(part);
            let four = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = four.then(|| u16::from_str_radix(digits, 16).ok()).flatten();
            number.ok_or_else(|| {
                "write vendor and device as four hexadecimal digits each, such as 10de:2236".to_owned()
            })
        };
        let (vendor, device) = text.split_once(':').unwrap_or(("10de", text));
        if hex(vendor)? != plugin::NVIDIA_VENDOR {
            return Err("the plugins advertise NVIDIA's devices only, whose vendor is 10de".to_owned());
        }
        hex(device).map(Self)
    }
}

/// How many neighbours of an unknown name are told.
const NEIGHBOURS: usize = 3;

/// Prints a line per name, then the names of cards and vGPU types. What is unknown or odd goes to standard error.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print(args).context("cannot print the names")?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for resource in &args.resources {
        writeln!(out, "{} {}", one_word(resource, 400), classify(resource))?;
    }
    out.flush()?;
    for resource in args.resources.iter().filter(|resource| !exists(resource)) {
        writeln!(io::stderr(), "gpupool: {}", unknown(resource))?;
    }
    for &PciId(device) in &args.pci {
        print_card(device, &mut out)?;
    }
    args.vgpu.iter().try_for_each(|mdev_type| print_vgpu(mdev_type, &mut out))
}

/// Whether any plugin advertises this name for any card or profile.
fn exists(resource: &str) -> bool {
    known::is_known(resource) || pci_table::spellings().any(|name| names::local_name(resource) == Some(&name))
}

/// The sentence about a name that nobody advertises.
fn unknown(resource: &str) -> String {
    let shown = one_word(resource, 400);
    let Some(name) = names::local_name(resource) else {
        return format!("{shown}: not under nvidia.com/, so no model or profile");
    };
    if names::is_raw_pci_id(name) {
        let device = u16::from_str_radix(name, 16).ok();
        return match device.and_then(pci_table::name) {
            Some(model) => {
                let named = plugin::kubevirt_card(Some(model), 0);
                format!(
                    "{shown}: a PCI id that an old plugin did not know; a newer one calls the card {named}"
                )
            }
            None => format!("{shown}: a PCI id that the table of {} does not have", pci_table::VERSION),
        };
    }
    let spellings: Vec<String> = pci_table::spellings().collect();
    let candidates = known::names().map(|(name, _)| name).chain(spellings.iter().map(String::as_str));
    let neighbours = nearest(resource, candidates, NEIGHBOURS);
    if neighbours.is_empty() {
        return format!("{shown}: no known model or profile has this name, and none is near");
    }
    let domain = if resource.starts_with(names::DOMAIN) { names::DOMAIN } else { "" };
    let neighbours: Vec<_> = neighbours.iter().map(|name| format!("{domain}{name}")).collect();
    format!("{shown}: no known model or profile has this name; nearest: {}", neighbours.join(", "))
}

/// What the plugins call a card.
fn print_card(device: u16, out: &mut impl io::Write) -> io::Result<()> {
    let model = pci_table::name(device);
    let kubevirt = plugin::kubevirt_card(model, device);
    writeln!(out, "PCI=10de:{device:04x} {}", model.unwrap_or("unknown"))?;
    writeln!(out, "kubevirt-gpu-device-plugin={kubevirt}")?;
    writeln!(out, "sandbox-device-plugin={}", plugin::KATA_ALIAS)?;
    writeln!(out, "sandbox-device-plugin(P_GPU_ALIAS=\"\")={}", plugin::kata_card(model))?;
    writeln!(out, "deviceName={kubevirt}")?;
    out.flush()?;
    let warn = |text: String| writeln!(io::stderr(), "warning: 10de:{device:04x}: {text}");
    if model.is_none() {
        warn(format!(
            "not in the PCI table of {}: the plugins name the card as shown until theirs has it",
            pci_table::VERSION
        ))?;
    }
    if let Some(why) = plugin::refused_because(&kubevirt) {
        warn(format!("the kubelet refuses {kubevirt}: {why}"))?;
    }
    if classify(&kubevirt) != ResourceKind::Passthrough {
        warn(format!("{kubevirt} is {}, not a card", classify(&kubevirt).phrase()))?;
    }
    let twins: Vec<_> = pci_table::devices_called(&kubevirt).filter(|&other| other != device).collect();
    if !twins.is_empty() {
        let twins: Vec<_> = twins.iter().map(|twin| format!("10de:{twin:04x}")).collect();
        warn(format!(
            "{kubevirt} is also the name of {}: on one node only one of them is counted",
            twins.join(", ")
        ))?;
    }
    Ok(())
}

/// What the plugins call a vGPU type.
fn print_vgpu(mdev_type: &str, out: &mut impl io::Write) -> io::Result<()> {
    let resource = plugin::vgpu(mdev_type);
    writeln!(out, "VGPU={}", one_line(mdev_type.trim(), 200))?;
    writeln!(out, "kubevirt-gpu-device-plugin={}", one_line(&resource, 200))?;
    // It dropped vGPUs in August 2025.
    writeln!(out, "sandbox-device-plugin=none")?;
    writeln!(out, "deviceName={}", one_line(&resource, 200))?;
    out.flush()?;
    if let Some(why) = plugin::refused_because(&resource) {
        writeln!(io::stderr(), "warning: the kubelet refuses {}: {why}", one_line(&resource, 200))?;
    }
    if !known::is_known(&resource) {
        writeln!(io::stderr(), "warning: {}", unknown(&resource))?;
    }
    Ok(())
}

//! Resource names: what a name says about its use, which names exist, and how the plugins make them.
//!
//! A name is judged by its shape alone, as the scheduler sees nothing else. This room knows no node and no pod.

pub mod known;
pub mod nearest;
pub mod plugin;

use std::fmt;

/// The domain of every resource that is judged here.
pub const DOMAIN: &str = "nvidia.com/";

/// The name that container workloads ask for.
pub const CONTAINER: &str = "nvidia.com/gpu";

/// What a resource name stands for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ResourceKind {
    /// `nvidia.com/gpu`: a whole card for containers.
    Container,
    /// `….shared`: a card or a slice for containers, shared in time or by MPS.
    Shared,
    /// `mig-…`: a slice of a card for containers.
    Mig,
    /// A vGPU profile, such as `NVIDIA_A10-12Q`.
    Vgpu,
    /// A whole card for a virtual machine, named by its model, such as `GA102GL_A10`, by its raw PCI id or an alias.
    Passthrough,
    /// Another function of a card (audio, USB) that was bound along with it.
    Companion,
    /// An `NVSwitch`.
    Fabric,
    /// No GPU at all, or not of this domain: network devices, other schedulers' names.
    Other,
}

impl ResourceKind {
    /// The kind in one word, as the command line prints it. The last three are all `other`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Shared => "shared",
            Self::Mig => "mig",
            Self::Vgpu => "vgpu",
            Self::Passthrough => "passthrough",
            Self::Companion | Self::Fabric | Self::Other => "other",
        }
    }

    /// The kind as part of a sentence.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Container => "the container resource",
            Self::Shared => "a shared container resource",
            Self::Mig => "a MIG slice",
            Self::Vgpu => "a vGPU profile",
            Self::Passthrough => "a passthrough model",
            Self::Companion => "a companion function of a card",
            Self::Fabric => "an NVSwitch",
            Self::Other => "no GPU resource",
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Names that carry the domain but are published by others, or by nobody, and are no GPU.
const NO_GPU: [&str; 6] =
    ["hostdev", "gpumem", "gpumem-percentage", "gpucores", "priority", "gpu.imex-channels"];

/// What a resource name stands for. Without a domain it is taken for a name under `nvidia.com/`; under another
/// domain it is [`ResourceKind::Other`].
///
/// Upper and lower case matter, as they do to the scheduler: `NVIDIA_A10-12q` is no vGPU profile.
pub fn classify(resource: &str) -> ResourceKind {
    let Some(name) = local_name(resource) else { return ResourceKind::Other };
    if name == "gpu" {
        ResourceKind::Container
    } else if name.ends_with(".shared") {
        ResourceKind::Shared
    } else if name.starts_with("mig-") {
        ResourceKind::Mig
    } else if NO_GPU.contains(&name) {
        ResourceKind::Other
    } else if name == "nvswitch" || name.ends_with("_NVSWITCH") {
        ResourceKind::Fabric
    } else if is_companion(name) {
        ResourceKind::Companion
    } else if is_vgpu_profile(name) {
        ResourceKind::Vgpu
    } else {
        ResourceKind::Passthrough
    }
}

/// What a container that asks for this resource has of cards for itself: whole ones, slices, replicas or virtual ones.
/// Nothing for what is no GPU. Who has such a part uses its card beside the pool, and so stays off cards that are shared.
///
/// Only names of `nvidia.com/` count: NVIDIA's plugin keeps every name in that domain, renamed ones too, and so one that is
/// not known counts as well.
pub fn part_of_cards(resource: &str) -> Option<&'static str> {
    if !resource.starts_with(DOMAIN) {
        return None;
    }
    match classify(resource) {
        ResourceKind::Container | ResourceKind::Passthrough => Some("whole cards"),
        ResourceKind::Mig => Some("slices of cards"),
        ResourceKind::Shared => Some("replicas of cards"),
        ResourceKind::Vgpu => Some("virtual cards"),
        ResourceKind::Companion | ResourceKind::Fabric | ResourceKind::Other => None,
    }
}

/// The part after `nvidia.com/`, or the whole name if it has no domain; nothing for another domain.
pub fn local_name(resource: &str) -> Option<&str> {
    resource.strip_prefix(DOMAIN).or_else(|| (!resource.contains('/')).then_some(resource))
}

fn is_companion(name: &str) -> bool {
    name.ends_with("_AUDIO_CONTROLLER") || name.contains("_USB_") || name.contains("_UCSI_")
}

/// Whether a name ends as vGPU profiles do: a hyphen, gigabytes and a capital, such as `-12Q`, or one of the
/// longer real endings, such as `-5CME` (with media engines) and `-2B4`.
fn is_vgpu_profile(name: &str) -> bool {
    let Some((_, ending)) = name.rsplit_once('-') else { return false };
    let digits = ending.bytes().take_while(u8::is_ascii_digit).count();
    let (gigabytes, series) = ending.split_at(digits);
    let mut letters = series.chars();
    match (gigabytes, letters.next()) {
        ("", _) | (_, None) => false,
        (_, Some(letter)) if letters.as_str().is_empty() => letter.is_ascii_uppercase(),
        (_, Some('A' | 'B' | 'C' | 'Q')) => {
            let plain_number = gigabytes == "0" || !gigabytes.starts_with('0');
            plain_number && matches!(letters.as_str(), "4" | "ME" | "NOME" | "MEALL" | "GFX")
        }
        _ => false,
    }
}

/// Whether a passthrough name is a raw PCI device id: the plugin did not find the card in its table, and the
/// name will change when the plugin gets a newer one.
pub fn is_raw_pci_id(resource: &str) -> bool {
    local_name(resource).is_some_and(|name| {
        name.len() == 4 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Codes that the names of NVIDIA's chips begin with.
const CHIPS: [&str; 12] = ["AD", "GA", "GB", "GF", "GH", "GK", "GM", "GP", "GV", "GT", "TU", "G"];

/// Whether a passthrough name begins with the code of a chip, as every name from the PCI table does. One that
/// does not is an alias, or another vendor's device that an old plugin took for a card.
pub fn names_a_chip(resource: &str) -> bool {
    let Some(name) = local_name(resource) else { return false };
    CHIPS.iter().any(|chip| {
        name.strip_prefix(chip).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

//! What is odd about a judged node without being a mismatch.

use std::fmt;

use super::{Advert, JudgedNode};
use crate::names::{self, ResourceKind, classify};
use crate::one_line::one_line;
use crate::quantity::Quantity;

/// More than this of one resource on one node is taken for a mistake: 16 cards cut into 64 shares are fewer.
const PLAUSIBLE: Quantity = Quantity::whole_units(1024);

/// Something odd. It changes neither the verdict nor the exit code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Warning {
    /// The plugin did not know the card: its name will change with the plugin's next table.
    RawPciId(Advert),
    /// A model that begins with no chip's code: an alias, or another vendor's device taken for a card.
    NoChip(Advert),
    /// Ends as profiles do, but no driver makes it: an alias, or a typo.
    UnknownProfile(Advert),
    /// In `allocatable` only: a kubelet removes such a resource at its next sync.
    NotInCapacity(Advert),
    /// More than a node can have.
    Implausible(Advert),
    /// Not a whole number, or below zero, which the API server would refuse.
    NotACount(Advert),
    /// The node has no `allocatable`, so that its `capacity` was judged.
    FromCapacity,
    /// No resource for GPU workloads: not judged under the operator rules.
    NoWorkload(Advert),
    /// Several vGPU profiles on one node, under the operator rules.
    SeveralProfiles(Vec<Advert>),
    /// Not the profile that the node's configuration asks for, under the strict rules.
    OtherProfile {
        /// The profile in `nvidia.com/vgpu.config`.
        config: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RawPciId(advert) => write!(
                f,
                "{advert} is a raw PCI id: the plugin's table does not know the card, and the name will change when it does"
            ),
            Self::NoChip(advert) => write!(
                f,
                "{advert} does not begin with the code of an NVIDIA chip: an alias, or a wrong entry of the plugin's table"
            ),
            Self::UnknownProfile(advert) => {
                write!(f, "{advert} is no known vGPU profile: `gpupool names` tells the nearest")
            }
            Self::NotInCapacity(advert) => {
                write!(f, "{advert} is allocatable but not in capacity: a kubelet will remove it")
            }
            Self::Implausible(advert) => write!(f, "{advert} is more than a node can have"),
            Self::NotACount(advert) => write!(f, "{advert} is no count: whole numbers from 0 on are"),
            Self::FromCapacity => f.write_str("has no allocatable: its capacity was judged instead"),
            Self::NoWorkload(advert) => write!(f, "{advert} is no resource for GPU workloads: not judged"),
            Self::SeveralProfiles(adverts) => {
                let names: Vec<_> = adverts.iter().map(ToString::to_string).collect();
                write!(f, "advertises several vGPU profiles: {}", names.join(", "))
            }
            Self::OtherProfile { config } => {
                write!(f, "label nvidia.com/vgpu.config asks for {config}, which is not what is advertised")
            }
        }
    }
}

/// The oddities of a node that carries the label, whatever the rules.
pub(super) fn about(node: JudgedNode<'_>, advertised: &[(&str, Quantity)]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if node.allocatable.is_none() && !advertised.is_empty() {
        warnings.push(Warning::FromCapacity);
    }
    // A node with hundreds of resources is no node; a few oddities tell enough.
    for &(name, quantity) in advertised.iter().take(16) {
        let advert = || Advert::of((name, quantity));
        match classify(name) {
            ResourceKind::Passthrough if names::is_raw_pci_id(name) => {
                warnings.push(Warning::RawPciId(advert()));
            }
            ResourceKind::Passthrough if name != names::plugin::KATA_ALIAS && !names::names_a_chip(name) => {
                warnings.push(Warning::NoChip(advert()));
            }
            ResourceKind::Vgpu if !names::known::is_known(name) => {
                warnings.push(Warning::UnknownProfile(advert()));
            }
            _ => {}
        }
        if quantity.is_negative() || quantity.whole().is_none() {
            warnings.push(Warning::NotACount(advert()));
        } else if quantity > PLAUSIBLE {
            warnings.push(Warning::Implausible(advert()));
        }
        let missing = node.capacity.is_none_or(|capacity| !capacity.iter().any(|(other, _)| *other == name));
        if node.allocatable.is_some() && missing {
            warnings.push(Warning::NotInCapacity(advert()));
        }
    }
    warnings
}

/// The profile that the node's configuration names, if profiles are advertised and it is not among them.
pub(super) fn missing_profile(node: JudgedNode<'_>, advertised: &[(&str, Quantity)]) -> Option<String> {
    // Any other value is the name of a mixed configuration, and what that holds is not known here.
    let config =
        node.vgpu_config.filter(|config| !config.contains('/') && classify(config) == ResourceKind::Vgpu)?;
    // Config files write -24QGFX where the driver's type, and so the resource, is -24Q.
    let config_type = config.strip_suffix("GFX").unwrap_or(config);
    let mut profiles = advertised.iter().filter(|(name, _)| classify(name) == ResourceKind::Vgpu).peekable();
    profiles.peek()?;
    let made = profiles.any(|(name, _)| {
        let brand = name.strip_suffix(config_type).and_then(|rest| rest.strip_prefix(names::DOMAIN));
        brand.is_some_and(|brand| brand.is_empty() || brand.ends_with('_'))
    });
    (!made).then(|| one_line(config, 63))
}

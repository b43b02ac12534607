//! Mismatches, and the one line that says what was found, what was expected and what to do.

use std::fmt;

use crate::names::{ResourceKind, classify};
use crate::node_use::{LABEL, NodeUse};
use crate::one_line::one_line;
use crate::quantity::Quantity;

/// How many resources a line names before it only counts the rest.
const NAMED: usize = 4;

/// A resource that a node advertises.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advert {
    /// The resource name, in one line and cut if it is absurdly long.
    pub resource: String,
    /// How many are advertised: the value in `allocatable` (or `capacity`, where that is all there is).
    pub quantity: Quantity,
    /// What the name stands for.
    pub kind: ResourceKind,
}

impl Advert {
    pub(super) fn of((name, quantity): (&str, Quantity)) -> Self {
        Self { resource: one_line(name, 100), quantity, kind: classify(name) }
    }

    pub(super) fn list(adverts: &[(&str, Quantity)]) -> Vec<Self> {
        adverts.iter().map(|&advert| Self::of(advert)).collect()
    }
}

impl fmt::Display for Advert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.resource, self.quantity)
    }
}

/// Why a node does not advertise what its label says. Lists of adverts are in name order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mismatch {
    /// The label is there without a value.
    EmptyLabel,
    /// The label's value is none of the three.
    UnknownLabel {
        /// The value, in one line and at most 63 characters of it.
        value: String,
        /// What was probably meant.
        nearest: Option<NodeUse>,
    },
    /// No `nvidia.com/` resource that is not zero.
    Nothing {
        /// The use that the label names.
        node_use: NodeUse,
        /// What still stands in `capacity`.
        stale: Vec<Advert>,
    },
    /// More than one `nvidia.com/` resource, under the strict rules.
    Several {
        /// The use that the label names.
        node_use: NodeUse,
        /// All of them.
        found: Vec<Advert>,
    },
    /// Resources that belong to another use.
    WrongKind {
        /// The use that the label names.
        node_use: NodeUse,
        /// Those that do not belong.
        found: Vec<Advert>,
    },
    /// Only such resources as come along with a card, or none that is for GPU workloads.
    OnlyCompanions {
        /// The use that the label names.
        node_use: NodeUse,
        /// What there is instead.
        found: Vec<Advert>,
    },
    /// A vGPU profile other than the one that the node's configuration asks for.
    OtherProfile {
        /// The profile in `nvidia.com/vgpu.config`.
        config: String,
        /// The profiles that are there.
        found: Vec<Advert>,
    },
}

/// A mismatch in one word, for programs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// [`Mismatch::EmptyLabel`]
    EmptyLabel,
    /// [`Mismatch::UnknownLabel`]
    UnknownLabel,
    /// [`Mismatch::Nothing`] and [`Mismatch::OnlyCompanions`]
    NothingAdvertised,
    /// [`Mismatch::Several`]
    SeveralResources,
    /// [`Mismatch::WrongKind`]
    WrongKind,
    /// [`Mismatch::OtherProfile`]
    OtherProfile,
}

impl Code {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::EmptyLabel => "EmptyLabel",
            Self::UnknownLabel => "UnknownLabel",
            Self::NothingAdvertised => "NothingAdvertised",
            Self::SeveralResources => "SeveralResources",
            Self::WrongKind => "WrongKind",
            Self::OtherProfile => "OtherProfile",
        }
    }
}

impl Mismatch {
    /// Which mismatch it is, without its particulars.
    pub fn code(&self) -> Code {
        match self {
            Self::EmptyLabel => Code::EmptyLabel,
            Self::UnknownLabel { .. } => Code::UnknownLabel,
            Self::Nothing { .. } | Self::OnlyCompanions { .. } => Code::NothingAdvertised,
            Self::Several { .. } => Code::SeveralResources,
            Self::WrongKind { .. } => Code::WrongKind,
            Self::OtherProfile { .. } => Code::OtherProfile,
        }
    }

    /// What the node advertises against its label.
    pub fn found(&self) -> &[Advert] {
        match self {
            Self::EmptyLabel | Self::UnknownLabel { .. } | Self::Nothing { .. } => &[],
            Self::Several { found, .. }
            | Self::WrongKind { found, .. }
            | Self::OnlyCompanions { found, .. }
            | Self::OtherProfile { found, .. } => found,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const VALUES: &str = "container, vm-passthrough or vm-vgpu";
        match self {
            Self::EmptyLabel => write!(
                f,
                "label {LABEL} is empty; expected {VALUES}; set it, or remove the label (the operator takes an empty value for its default)"
            ),
            Self::UnknownLabel { value, nearest } => {
                write!(f, "label {LABEL} is \"{value}\"; expected {VALUES}; ")?;
                match nearest {
                    Some(nearest) => write!(f, "set it to {nearest} if that was meant")?,
                    None => f.write_str("set it to one of them")?,
                }
                f.write_str(" (the operator takes an unknown value for its default)")
            }
            Self::Nothing { node_use, stale } if stale.is_empty() => write!(
                f,
                "label {node_use}, but no nvidia.com/ resource is advertised; expected {}; {}",
                node_use.expected(),
                who_advertises(*node_use)
            ),
            Self::Nothing { node_use, stale } => write!(
                f,
                "label {node_use}, but nothing is allocatable, only {} left in capacity; expected {}; the plugin has gone or its devices are unhealthy: {}",
                Listed(stale),
                node_use.expected(),
                who_advertises(*node_use)
            ),
            Self::Several { node_use, found } => write!(
                f,
                "label {node_use}, but {} resources are advertised: {}; expected only {}; {}",
                found.len(),
                Listed(found),
                node_use.expected(),
                remedy(*node_use, found)
            ),
            Self::WrongKind { node_use, found } => write!(
                f,
                "label {node_use}, but {} is advertised; expected {}; {}",
                Listed(found),
                node_use.expected(),
                remedy(*node_use, found)
            ),
            Self::OnlyCompanions { node_use, found } => write!(
                f,
                "label {node_use}, but only {} is advertised; expected {}; {}",
                Listed(found),
                node_use.expected(),
                who_advertises(*node_use)
            ),
            Self::OtherProfile { config, found } => write!(
                f,
                "label vm-vgpu, but {} is advertised; expected the profile {config} of label nvidia.com/vgpu.config; correct the label or see why vgpu-device-manager made another profile",
                Listed(found)
            ),
        }
    }
}

/// Who would have to advertise on a node of this use.
fn who_advertises(node_use: NodeUse) -> &'static str {
    match node_use {
        NodeUse::Container => "see whether the container device plugin runs on the node",
        NodeUse::VmPassthrough => {
            "see whether vfio-manager bound the cards and sandbox-device-plugin runs on the node"
        }
        NodeUse::VmVgpu => {
            "see whether vgpu-device-manager made the devices and sandbox-device-plugin runs on the node"
        }
    }
}

/// What to do about resources that do not belong, said by the first that does not.
fn remedy(node_use: NodeUse, found: &[Advert]) -> String {
    let stranger = found.iter().find(|advert| NodeUse::advertising(advert.kind) != Some(node_use));
    let Some(stranger) = stranger else { return remedy_of_one_use(node_use, found) };
    let name = &stranger.resource;
    match (stranger.kind, NodeUse::advertising(stranger.kind)) {
        (ResourceKind::Container, Some(other)) => format!(
            "stop whoever advertises {name} (a leftover container device plugin, or KubeVirt's permittedHostDevices), or label the node {other}"
        ),
        (_, Some(other)) => format!("stop whoever advertises {name}, or label the node {other}"),
        (ResourceKind::Companion | ResourceKind::Fabric, None) => {
            format!(
                "{name} is {}; `--rules operator` accepts it beside a passthrough model",
                stranger.kind.phrase()
            )
        }
        (_, None) => format!("{name} is {}; advertise it under another domain", stranger.kind.phrase()),
    }
}

/// All belong to the use, but the strict rules want one, and `nvidia.com/gpu` on container nodes.
fn remedy_of_one_use(node_use: NodeUse, found: &[Advert]) -> String {
    match node_use {
        NodeUse::Container => {
            let name = found
                .iter()
                .find(|advert| advert.kind != ResourceKind::Container)
                .map_or("it", |advert| &advert.resource);
            format!(
                "turn {name} off in the device plugin's settings, or judge by `--rules operator`, which accepts it"
            )
        }
        NodeUse::VmPassthrough => "keep one model of card a node, or judge by `--rules operator`".to_owned(),
        NodeUse::VmVgpu => "keep one profile a node, or judge by `--rules operator`".to_owned(),
    }
}

/// Adverts as part of a sentence.
struct Listed<'a>(&'a [Advert]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0 {
            return write!(f, "{one}, {},", one.kind.phrase());
        }
        for (count, advert) in self.0.iter().take(NAMED).enumerate() {
            let before = if count == 0 { "" } else { ", " };
            write!(f, "{before}{advert}")?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

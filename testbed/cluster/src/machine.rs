//! Nodes with a kubelet, as tests and people describe them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

const GIB: u64 = 1 << 30;

/// What a kubelet reports of the machine it runs on, whatever the real one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// CPUs.
    pub cpu: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: u64,
}

impl Machine {
    /// The machine of the page on GPU sharing: 176 CPUs, 1800Gi of memory, 6Ti of ephemeral storage.
    pub const PUBLISHED: Self = Self { cpu: 176, memory: 1800 * GIB, ephemeral_storage: 6 * 1024 * GIB };
}

impl Default for Machine {
    /// 32 CPUs, 256Gi of memory, 1Ti of ephemeral storage.
    fn default() -> Self {
        Self { cpu: 32, memory: 256 * GIB, ephemeral_storage: 1024 * GIB }
    }
}

/// Simulated GPUs of a node.
#[derive(Clone, Debug)]
pub struct SimulatedCards {
    /// Folder with `libcuda.so.1`, `libnvidia-ml.so.1` and `nvidia-smi`.
    pub(crate) driver: PathBuf,
    pub(crate) cards: String,
}

impl SimulatedCards {
    /// Cards in the form that the simulated driver understands, such as `2` or `2xA100-80GB,1xT4`, served by the
    /// driver in this folder (`libcuda.so.1`, `libnvidia-ml.so.1`, `nvidia-smi`).
    pub fn new(driver: impl AsRef<Path>, cards: impl Into<String>) -> Self {
        Self { driver: driver.as_ref().to_owned(), cards: cards.into() }
    }
}

/// A node with a kubelet and a containerd of its own: pods bound to it really run.
///
/// See [the crate's documentation](crate#nodes-with-a-kubelet) for what a node is and what its pods reach.
#[derive(Clone, Debug)]
pub struct KubeletNode {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) machine: Machine,
    pub(crate) cards: Option<SimulatedCards>,
}

impl KubeletNode {
    /// A node on the default [`Machine`], without cards.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), labels: BTreeMap::new(), machine: Machine::default(), cards: None }
    }

    /// Adds or replaces a label that the kubelet registers the node with.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The kubelet reports this machine.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// The node has these simulated cards.
    #[must_use]
    pub fn cards(mut self, cards: SimulatedCards) -> Self {
        self.cards = Some(cards);
        self
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

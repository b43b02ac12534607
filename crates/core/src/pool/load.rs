//! Percentages of cards in both dimensions, to be added up and compared.

use super::config::{Limits, PodSpec};

/// What one card has to give, in percent, in each dimension.
const WHOLE: u32 = 100;

/// Percentages of a card in both dimensions: charged, free, missing or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Load {
    pub(super) core: u32,
    pub(super) memory: u32,
}

impl Load {
    /// Everything that `cards` cards have to give: 100 percent of each, in both dimensions.
    pub(super) const fn of_cards(cards: u32) -> Self {
        Self { core: WHOLE * cards, memory: WHOLE * cards }
    }

    /// What a pod requests, in percent of one card; its limits are `Load::from`.
    pub(super) fn requests(spec: &PodSpec) -> Self {
        Self { core: spec.core.request().get().into(), memory: spec.memory.request().get().into() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.core += other.core;
        self.memory += other.memory;
    }

    pub(super) fn take(&mut self, other: Self) {
        self.core -= other.core;
        self.memory -= other.memory;
    }

    #[must_use]
    pub(super) const fn plus(self, other: Self) -> Self {
        Self { core: self.core + other.core, memory: self.memory + other.memory }
    }

    /// What is left of this after `other` has been taken away; nothing where `other` is more.
    #[must_use]
    pub(super) const fn beyond(self, other: Self) -> Self {
        Self { core: self.core.saturating_sub(other.core), memory: self.memory.saturating_sub(other.memory) }
    }

    /// Whether this is at most `other`, in both dimensions.
    pub(super) const fn within(self, other: Self) -> bool {
        self.core <= other.core && self.memory <= other.memory
    }

    pub(super) const fn sum(self) -> u32 {
        self.core + self.memory
    }
}

impl From<Limits> for Load {
    fn from(limits: Limits) -> Self {
        Self { core: limits.core.get().into(), memory: limits.memory.get().into() }
    }
}

//! The effect of a taint, as nodes carry it and pods tolerate it.

use gpupool_core::stock::TaintEffect;
use serde::Deserialize;

/// A taint's effect, as it is written.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum EffectName {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl From<EffectName> for TaintEffect {
    fn from(effect: EffectName) -> Self {
        match effect {
            EffectName::NoSchedule => Self::NoSchedule,
            EffectName::PreferNoSchedule => Self::PreferNoSchedule,
            EffectName::NoExecute => Self::NoExecute,
        }
    }
}

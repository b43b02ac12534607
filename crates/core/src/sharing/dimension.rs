//! Computing power and memory: the two things of a card that pods share, and the names under which they are asked for.

use super::names::{
    CORE_CEILING_ANNOTATION, CORE_LIMIT_ANNOTATION, CORE_RESOURCE, MEMORY_CEILING_ANNOTATION,
    MEMORY_LIMIT_ANNOTATION, MEMORY_RESOURCE,
};

/// One of the two things of a card that are shared.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Dimension {
    /// Computing time of the card, in percent.
    Core,
    /// Device memory of the card, in percent of what it has.
    Memory,
}

impl Dimension {
    /// Both dimensions, core first.
    pub const ALL: [Self; 2] = [Self::Core, Self::Memory];

    /// The resource by which it is asked for.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Core => CORE_RESOURCE,
            Self::Memory => MEMORY_RESOURCE,
        }
    }

    /// The annotation that holds the limit.
    pub const fn limit_annotation(self) -> &'static str {
        match self {
            Self::Core => CORE_LIMIT_ANNOTATION,
            Self::Memory => MEMORY_LIMIT_ANNOTATION,
        }
    }

    /// The annotation of a namespace that holds the highest limit there.
    pub const fn ceiling_annotation(self) -> &'static str {
        match self {
            Self::Core => CORE_CEILING_ANNOTATION,
            Self::Memory => MEMORY_CEILING_ANNOTATION,
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Core => Self::Memory,
            Self::Memory => Self::Core,
        }
    }
}

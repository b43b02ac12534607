//! How a node's cards are shared, as labels say it.

use std::fmt;
use std::str::FromStr;

use super::names::POLICY_LABEL;
use crate::names::nearest::nearest;
use crate::one_line::one_line;

/// How the cards of a `container` node are shared.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Policy {
    /// Not at all: whole cards for one container each.
    #[default]
    None,
    /// All cards are one pool; a pod may run on another card each time.
    SharePool,
    /// A pod keeps the card that was chosen for it.
    Static,
}

impl Policy {
    /// Every policy, in the order in which they are listed to users.
    pub const ALL: [Self; 3] = [Self::SharePool, Self::Static, Self::None];

    /// The value of the label, as both published pages write it.
    pub const fn value(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SharePool => "share-pool",
            Self::Static => "static",
        }
    }

    /// Whether pods share cards under it.
    pub const fn shares(self) -> bool {
        !matches!(self, Self::None)
    }

    /// The policy in force, by the label [`super::names::POLICY_IN_FORCE_LABEL`]. Only gpupool writes that label; a value
    /// that it does not know means that nothing is shared.
    pub fn in_force(label: Option<&str>) -> Self {
        label.and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(value: &str) -> Result<Self, PolicyError> {
        if let Some(known) = Self::ALL.into_iter().find(|known| known.value() == value) {
            return Ok(known);
        }
        if value.is_empty() {
            return Err(PolicyError::Empty);
        }
        let meant =
            nearest(value, Self::ALL.map(Self::value), 1).first().and_then(|value| value.parse().ok());
        Err(PolicyError::Unknown { value: one_line(value, 63), meant })
    }
}

/// Why a label's value is no policy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The label is there, without a value.
    #[error("label {POLICY_LABEL} has no value: set it to share-pool, static or none")]
    Empty,
    /// A typo, or another product's word.
    #[error(
        "label {POLICY_LABEL} is \"{value}\", which is none of share-pool, static and none{}",
        did_you_mean(*meant)
    )]
    Unknown {
        /// The value, in one line and at most 63 characters of it.
        value: String,
        /// The policy that is nearest in spelling, if one is near.
        meant: Option<Policy>,
    },
}

fn did_you_mean(meant: Option<Policy>) -> String {
    meant.map_or_else(String::new, |meant| format!("; set it to {meant} if that is meant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_values_are_read_and_nothing_else() {
        for policy in Policy::ALL {
            assert_eq!(policy.value().parse(), Ok(policy));
        }
        for typo in ["Share-Pool", "share_pool", "sharepool", " static", "statics", "None", "pool", "mps", ""]
        {
            assert!(typo.parse::<Policy>().is_err(), "{typo}");
        }
    }

    #[test]
    fn a_typo_is_told_with_the_nearest_value() {
        let refused = |value: &str| value.parse::<Policy>().unwrap_err().to_string();
        assert_eq!(
            refused("share-pol"),
            "label alibabacloud.com/gpu-share-policy is \"share-pol\", which is none of share-pool, static and none; set it to share-pool if that is meant"
        );
        assert!(refused("sharepool").ends_with("; set it to share-pool if that is meant"));
        assert!(refused("Static").ends_with("; set it to static if that is meant"));
        assert!(refused("quotas").ends_with("share-pool, static and none"));
        assert!(refused("").contains("has no value"));
    }

    #[test]
    fn what_is_in_force_is_none_unless_gpupool_wrote_it() {
        assert_eq!(Policy::in_force(None), Policy::None);
        assert_eq!(Policy::in_force(Some("rubbish")), Policy::None);
        assert_eq!(Policy::in_force(Some("static")), Policy::Static);
    }
}

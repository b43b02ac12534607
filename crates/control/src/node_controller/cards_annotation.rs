//! The annotation that names the cards of a node without a kubelet.
//!
//! `gpupool.io/cards` is a JSON object: what the node offers, by resource name, as many of each as there are.
//! The kind of a name says under which use it is offered, so one annotation serves all uses:
//!
//! ```json
//! {"nvidia.com/gpu": 2, "nvidia.com/GA102GL_A10": 2, "nvidia.com/NVIDIA_A10-12Q": 4}
//! ```
//!
//! As a `container` node it advertises `nvidia.com/gpu`, as `vm-passthrough` the model, as `vm-vgpu` the profile.
//! The API server does not check names in a node's status, so they are checked here.

use std::collections::BTreeMap;
use std::fmt;

use gpupool_core::names::{self, DOMAIN, classify};
use gpupool_core::node_use::NodeUse;
use gpupool_core::one_line::one_line;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// The annotation's name.
pub(super) const CARDS_ANNOTATION: &str = "gpupool.io/cards";

/// The most of one resource: more is a typing error, not a node.
const MOST: u32 = 65_536;
/// The most names in one annotation.
const MOST_NAMES: usize = 64;

/// What a node offers, by use and resource name; no entry is zero.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct OfferedResources {
    offers: BTreeMap<String, (NodeUse, u32)>,
}

/// Why an annotation cannot be followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum CardsError {
    /// It is no JSON object of names and whole numbers.
    #[error("it is not of the form {{\"nvidia.com/gpu\": 4}}: {0}")]
    Form(String),
    /// The name is of another domain.
    #[error("\"{0}\" does not begin with nvidia.com/")]
    Domain(String),
    /// No pod could ask for such a name.
    #[error(
        "\"{0}\" is no resource name: after nvidia.com/ come 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit first and last"
    )]
    Name(String),
    /// The name belongs to no use.
    #[error("\"{name}\" is {phrase}, which no use of a node advertises")]
    NoUse {
        /// The resource name.
        name: String,
        /// What the name is the name of, in words.
        phrase: &'static str,
    },
    /// More than any node has.
    #[error("{count} of \"{name}\" are more than any node has (at most {MOST})")]
    Many {
        /// The resource name.
        name: String,
        /// How many.
        count: u32,
    },
}

impl OfferedResources {
    /// Reads the annotation's text.
    pub(super) fn parse(text: &str) -> Result<Self, CardsError> {
        let pairs: Pairs = serde_json::from_str(text)
            .map_err(|error| CardsError::Form(one_line(&error.to_string(), 120)))?;
        let mut offers = BTreeMap::new();
        for (name, count) in pairs.0 {
            let node_use = check(&name, count)?;
            if count > 0 {
                offers.insert(name, (node_use, count));
            }
        }
        Ok(Self { offers })
    }

    /// What the node advertises under a use: names and how many.
    pub(super) fn offered(&self, node_use: NodeUse) -> BTreeMap<String, u32> {
        let of_use = self.offers.iter().filter(|(_, (of, _))| *of == node_use);
        of_use.map(|(name, (_, count))| (name.clone(), *count)).collect()
    }
}

fn check(name: &str, count: u32) -> Result<NodeUse, CardsError> {
    let shown = || one_line(name, 80);
    let local = name.strip_prefix(DOMAIN).ok_or_else(|| CardsError::Domain(shown()))?;
    if !is_local_name(local) {
        return Err(CardsError::Name(shown()));
    }
    let kind = classify(name);
    let node_use = NodeUse::advertising(kind)
        .ok_or_else(|| CardsError::NoUse { name: shown(), phrase: kind.phrase() })?;
    if count > MOST {
        return Err(CardsError::Many { name: shown(), count });
    }
    Ok(node_use)
}

/// The local part of a qualified name, by the rules of Kubernetes.
fn is_local_name(local: &str) -> bool {
    let bytes = local.as_bytes();
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    (1..=63).contains(&bytes.len())
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A JSON object in which no key repeats: two counts for one name are a mistake.
struct Pairs(BTreeMap<String, u32>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of resource names and whole numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((name, count)) = map.next_entry::<String, u32>()? {
                    if pairs.len() == MOST_NAMES {
                        return Err(serde::de::Error::custom(format_args!("more than {MOST_NAMES} names")));
                    }
                    if let Some(before) = pairs.insert(name, count) {
                        return Err(serde::de::Error::custom(format_args!(
                            "a name stands twice, once with {before}"
                        )));
                    }
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// The name that containers ask for, as an example in messages.
pub(super) fn example() -> String {
    format!("{CARDS_ANNOTATION}={{\"{}\": 4}}", names::CONTAINER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"{"nvidia.com/gpu": 2, "nvidia.com/GA102GL_A10": 2, "nvidia.com/NVIDIA_A10-12Q": 4}"#;

    fn names_of(text: &str, node_use: NodeUse) -> Vec<(String, u32)> {
        OfferedResources::parse(text).unwrap().offered(node_use).into_iter().collect()
    }

    #[test]
    fn one_annotation_serves_all_uses() {
        assert_eq!(names_of(ALL, NodeUse::Container), [("nvidia.com/gpu".to_owned(), 2)]);
        assert_eq!(names_of(ALL, NodeUse::VmPassthrough), [("nvidia.com/GA102GL_A10".to_owned(), 2)]);
        assert_eq!(names_of(ALL, NodeUse::VmVgpu), [("nvidia.com/NVIDIA_A10-12Q".to_owned(), 4)]);
    }

    #[test]
    fn a_count_of_zero_offers_nothing() {
        assert!(names_of(r#"{"nvidia.com/gpu": 0}"#, NodeUse::Container).is_empty());
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_what_is_wrong() {
        let refused = |text: &str| OfferedResources::parse(text).unwrap_err().to_string();
        for text in [
            "",
            "[]",
            "4",
            "{",
            r#"{"nvidia.com/gpu": "4"}"#,
            r#"{"nvidia.com/gpu": -1}"#,
            r#"{"nvidia.com/gpu": 0.5}"#,
        ] {
            assert!(refused(text).contains("not of the form"), "{text}");
        }
        assert!(refused(r#"{"nvidia.com/gpu": 1, "nvidia.com/gpu": 2}"#).contains("stands twice"));
        assert!(refused(r#"{"example.com/gpu": 1}"#).contains("does not begin with nvidia.com/"));
        assert!(refused(r#"{"nvidia.com/hostdev": 1}"#).contains("which no use of a node advertises"));
        assert!(refused(r#"{"nvidia.com/gpu": 65537}"#).contains("more than any node has"));
        for name in ["", "-a", "a_", "a b", "a/b", "é", &"x".repeat(64)] {
            assert!(
                refused(&format!(r#"{{"nvidia.com/{name}": 1}}"#)).contains("is no resource name"),
                "{name}"
            );
        }
    }

    #[test]
    fn the_refusal_is_one_short_line_whatever_was_written() {
        let text = format!(r#"{{"{}": 1}}"#, "x\\n".repeat(100_000));
        let refused = OfferedResources::parse(&text).unwrap_err().to_string();
        assert!(refused.len() < 300 && !refused.contains('\n'));
    }
}

//! How sharing behaves on a node, as its annotation says it: read strictly, so that a mistyped key is heard of.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::names::QOS_ANNOTATION;
use crate::names::nearest::nearest;
use crate::one_line::one_line;
use crate::quantity::{Quantity, QuantityError};

const PREEMPT_ENABLED: &str = "preemptEnabled";
const POD_MAX_DURATION: &str = "podMaxDurationMinutes";
const RESERVED_STORAGE: &str = "reservedEphemeralStorage";
const KEYS: [&str; 3] = [PREEMPT_ENABLED, POD_MAX_DURATION, RESERVED_STORAGE];

/// How sharing behaves on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Qos {
    /// Whether a pod may be made to give its card up. True unless said otherwise.
    pub preempt_enabled: bool,
    /// For how long a pod may hold a card before it can be pre-empted, in minutes, at least 1. 120 unless said otherwise.
    pub pod_max_duration_minutes: u32,
    /// Ephemeral storage taken out of the node's `allocatable`, in bytes. Where nothing is said it depends on the node:
    /// [`super::reservation`] has the rule.
    pub reserved_ephemeral_storage: Option<Quantity>,
}

impl Default for Qos {
    fn default() -> Self {
        Self { preempt_enabled: true, pod_max_duration_minutes: 120, reserved_ephemeral_storage: None }
    }
}

impl Qos {
    /// Reads an annotation's text: of [`super::names::QOS_ANNOTATION`], which people write, or of
    /// [`super::names::QOS_IN_FORCE_ANNOTATION`], which gpupool writes.
    pub fn parse(text: &str) -> Result<Self, QosError> {
        let pairs: Pairs = serde_json::from_str(text)
            .map_err(|error| QosError::Form { detail: one_line(&error.to_string(), 120) })?;
        let mut qos = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for (key, value) in pairs.0 {
            if seen.contains(&key) {
                return Err(QosError::Twice { key: one_line(&key, 40) });
            }
            qos.set(&key, &value)?;
            seen.push(key);
        }
        Ok(qos)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), QosError> {
        let shown = || one_line(&value.to_string(), 40);
        match key {
            PREEMPT_ENABLED => {
                self.preempt_enabled = value.as_bool().ok_or_else(|| QosError::NotBool { value: shown() })?;
            }
            POD_MAX_DURATION => {
                let minutes = value.as_u64().and_then(|minutes| u32::try_from(minutes).ok());
                let minutes = minutes.filter(|minutes| *minutes > 0);
                self.pod_max_duration_minutes =
                    minutes.ok_or_else(|| QosError::NotMinutes { value: shown() })?;
            }
            RESERVED_STORAGE => self.reserved_ephemeral_storage = Some(storage(value)?),
            _ => {
                let meant = nearest(key, KEYS, 1).first().map(|key| (*key).to_owned());
                return Err(QosError::UnknownKey { key: one_line(key, 40), meant });
            }
        }
        Ok(())
    }

    /// The text of [`super::names::QOS_IN_FORCE_ANNOTATION`]: every key that is known, in a fixed order.
    pub fn to_json(self) -> String {
        let mut keys = Map::new();
        keys.insert(PREEMPT_ENABLED.to_owned(), self.preempt_enabled.into());
        keys.insert(POD_MAX_DURATION.to_owned(), self.pod_max_duration_minutes.into());
        if let Some(storage) = self.reserved_ephemeral_storage {
            keys.insert(RESERVED_STORAGE.to_owned(), storage.to_string().into());
        }
        Value::Object(keys).to_string()
    }
}

fn storage(value: &Value) -> Result<Quantity, QosError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => return Err(QosError::NotStorage { value: one_line(&other.to_string(), 40) }),
    };
    let amount = Quantity::parse(&text)?;
    // Half a byte can't be reserved.
    let whole = amount.whole().is_some() && !amount.is_negative();
    if whole { Ok(amount) } else { Err(QosError::NotStorage { value: one_line(&text, 40) }) }
}

/// Why an annotation can't be followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QosError {
    /// No JSON object.
    #[error(
        "annotation {QOS_ANNOTATION} is no JSON object ({detail}); write for example {{\"preemptEnabled\": true, \"podMaxDurationMinutes\": 120}}"
    )]
    Form {
        /// What the JSON parser says is wrong, and where.
        detail: String,
    },
    /// A key that means nothing.
    #[error(
        "annotation {QOS_ANNOTATION} has the unknown key \"{key}\": there are preemptEnabled, podMaxDurationMinutes and reservedEphemeralStorage{}",
        did_you_mean(meant.as_deref())
    )]
    UnknownKey {
        /// The key, in one line and at most 40 characters of it.
        key: String,
        /// The known key that is nearest in spelling, if one is near.
        meant: Option<String>,
    },
    /// A key that stands twice.
    #[error("annotation {QOS_ANNOTATION} has the key \"{key}\" twice: keep one of them")]
    Twice {
        /// The key, in one line and at most 40 characters of it.
        key: String,
    },
    /// Neither true nor false.
    #[error("annotation {QOS_ANNOTATION}: preemptEnabled is {value}; write true or false, without quotes")]
    NotBool {
        /// The JSON that was written, in one line and at most 40 characters of it.
        value: String,
    },
    /// No positive whole number of minutes.
    #[error(
        "annotation {QOS_ANNOTATION}: podMaxDurationMinutes is {value}; write a whole number from 1, without quotes"
    )]
    NotMinutes {
        /// The JSON that was written, in one line and at most 40 characters of it.
        value: String,
    },
    /// No amount of storage.
    #[error(
        "annotation {QOS_ANNOTATION}: reservedEphemeralStorage is {value}; write a quantity of bytes such as \"1.5Ti\", or \"0\" for nothing"
    )]
    NotStorage {
        /// The JSON that was written, in one line and at most 40 characters of it.
        value: String,
    },
    /// No quantity.
    #[error("annotation {QOS_ANNOTATION}: reservedEphemeralStorage: {0}")]
    Quantity(#[from] QuantityError),
}

fn did_you_mean(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; write {meant} if that is meant"))
}

/// The pairs of an object, one that stands twice included: a map would keep the last and say nothing.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_annotation_is_read_whole() {
        let text =
            r#"{"preemptEnabled": true, "podMaxDurationMinutes": 120, "reservedEphemeralStorage": "1.5Ti"}"#;
        let qos = Qos::parse(text).unwrap();
        assert_eq!((qos.preempt_enabled, qos.pod_max_duration_minutes), (true, 120));
        assert_eq!(qos.reserved_ephemeral_storage, Some(Quantity::parse("1536Gi").unwrap()));
        assert_eq!(
            qos.to_json(),
            r#"{"podMaxDurationMinutes":120,"preemptEnabled":true,"reservedEphemeralStorage":"1536Gi"}"#
        );
        assert_eq!(Qos::parse(&qos.to_json()), Ok(qos));
    }

    #[test]
    fn every_key_has_its_default() {
        assert_eq!(Qos::parse("{}"), Ok(Qos::default()));
        assert_eq!((Qos::default().preempt_enabled, Qos::default().pod_max_duration_minutes), (true, 120));
        let qos = Qos::parse(r#"{"preemptEnabled": false, "reservedEphemeralStorage": 0}"#).unwrap();
        assert!(!qos.preempt_enabled && qos.reserved_ephemeral_storage == Some(Quantity::ZERO));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_what_to_write() {
        for (text, says) in [
            ("", "no JSON object"),
            ("[]", "no JSON object"),
            ("true", "no JSON object"),
            ("{preemptEnabled: true}", "no JSON object"),
            (r#"{"preemptEnabled": "true"}"#, "preemptEnabled is \"true\"; write true or false"),
            (r#"{"preemptEnabled": 1}"#, "write true or false"),
            (r#"{"preemptEnabled": null}"#, "write true or false"),
            (r#"{"podMaxDurationMinutes": 0}"#, "podMaxDurationMinutes is 0; write a whole number from 1"),
            (r#"{"podMaxDurationMinutes": -5}"#, "a whole number from 1"),
            (r#"{"podMaxDurationMinutes": 1.5}"#, "a whole number from 1"),
            (r#"{"podMaxDurationMinutes": "120"}"#, "without quotes"),
            (r#"{"podMaxDurationMinutes": 4294967296}"#, "a whole number from 1"),
            (
                r#"{"reservedEphemeralStorage": "1.5TB"}"#,
                "reservedEphemeralStorage: \"1.5TB\" is no quantity",
            ),
            (r#"{"reservedEphemeralStorage": "-1Gi"}"#, "reservedEphemeralStorage is -1Gi; write a quantity"),
            (r#"{"reservedEphemeralStorage": "500m"}"#, "write a quantity of bytes"),
            (r#"{"reservedEphemeralStorage": true}"#, "write a quantity of bytes"),
            (r#"{"preemptEnable": true}"#, "unknown key \"preemptEnable\""),
            (r#"{"preemptEnable": true}"#, "write preemptEnabled if that is meant"),
            (r#"{"colour": "red"}"#, "there are preemptEnabled, podMaxDurationMinutes"),
            (r#"{"preemptEnabled": true, "preemptEnabled": false}"#, "twice: keep one"),
        ] {
            let said = Qos::parse(text).map_err(|error| error.to_string()).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
            assert!(said.starts_with("annotation alibabacloud.com/gpu-share-qos-config"), "{said}");
        }
    }

    #[test]
    fn a_refusal_is_one_short_line_whatever_was_written() {
        let long = "x\\n".repeat(100_000);
        for text in
            [format!(r#"{{"{long}": 1}}"#), format!(r#"{{"reservedEphemeralStorage": "{long}"}}"#), long]
        {
            let said = Qos::parse(&text).unwrap_err().to_string();
            assert!(said.len() < 400 && !said.contains('\n'), "{said}");
        }
    }
}

//! Reads of an object's JSON only what is looked at, and only so many values of that.
//!
//! Two bytes of JSON can be a value of a hundred in memory, so the length of a body says little about what reading it
//! costs. What nobody looks at is passed over without being stored; of the rest, values are counted. Lists keep their
//! length and objects the place of what is kept, so a patch made from such an object fits the whole one.
//! It decides nothing about what it reads.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The most values that are kept of one object: strings, numbers, lists and objects, each counted once. A pod of a
/// hundred containers has about a thousand.
const MOST_VALUES: usize = 10_000;

/// What of a value is kept. Of lists and objects that stand where something else belongs nothing is kept but that they
/// are there.
#[derive(Debug)]
pub(crate) enum Kept {
    /// All of it.
    All,
    /// These fields of an object.
    Fields(&'static [(&'static str, Self)]),
    /// Every element of a list, and this of it.
    Each(&'static Self),
}

/// Why an object was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// It is not JSON, or nested too deeply.
    #[error("the object cannot be read: {0}")]
    Form(serde_json::Error),
    /// It has too much of what is looked at.
    #[error(
        "the object has more than {MOST_VALUES} labels, annotations, containers and other values that gpupool looks at: \
         make them fewer"
    )]
    TooMany,
}

const RESOURCES: Kept = Kept::Fields(&[("requests", Kept::All), ("limits", Kept::All)]);
const CONTAINERS: Kept = Kept::Each(&Kept::Fields(&[("name", Kept::All), ("resources", RESOURCES)]));
const METADATA: Kept = Kept::Fields(&[
    ("name", Kept::All),
    ("namespace", Kept::All),
    ("uid", Kept::All),
    ("labels", Kept::All),
    ("annotations", Kept::All),
    ("ownerReferences", Kept::All),
    ("deletionTimestamp", Kept::All),
]);
const AFFINITY: Kept = Kept::Fields(&[("nodeAffinity", Kept::All)]);
const TEMPLATE: Kept = Kept::Fields(&[
    ("metadata", METADATA),
    (
        "spec",
        Kept::Fields(&[("containers", CONTAINERS), ("initContainers", CONTAINERS), ("affinity", AFFINITY)]),
    ),
]);

/// What is looked at of a pod, of every kind that carries the template of one, and of a node.
pub(crate) const LOOKED_AT: Kept = Kept::Fields(&[
    ("metadata", METADATA),
    (
        "spec",
        Kept::Fields(&[
            ("containers", CONTAINERS),
            ("initContainers", CONTAINERS),
            ("affinity", AFFINITY),
            ("nodeName", Kept::All),
            ("template", TEMPLATE),
            ("jobTemplate", Kept::Fields(&[("spec", Kept::Fields(&[("template", TEMPLATE)]))])),
        ]),
    ),
    ("template", TEMPLATE),
    ("status", Kept::Fields(&[("allocatable", Kept::All)])),
]);

/// Reads what is [`LOOKED_AT`] of an object.
pub(crate) fn read(text: &str) -> Result<Value, ReadError> {
    let left = Cell::new(MOST_VALUES);
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Reading { kept: &LOOKED_AT, left: &left }.deserialize(&mut json);
    match read.and_then(|value| json.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(_) if left.get() == 0 => Err(ReadError::TooMany),
        Err(failure) => Err(ReadError::Form(failure)),
    }
}

/// A list of so many texts at most. A longer one is refused before it is stored.
#[derive(Debug, Default)]
pub(crate) struct Texts<'a, const MOST: usize>(pub(crate) Vec<Cow<'a, str>>);

impl<'de: 'a, 'a, const MOST: usize> Deserialize<'de> for Texts<'a, MOST> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(TextsVisitor::<MOST>).map(Texts)
    }
}

struct TextsVisitor<const MOST: usize>;

/// Alone in a list, a text would be copied.
#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, const MOST: usize> Visitor<'de> for TextsVisitor<MOST> {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(Borrowed(text)) = list.next_element()? {
            if texts.len() >= MOST {
                return Err(de::Error::invalid_length(MOST + 1, &self));
            }
            texts.push(text);
        }
        Ok(texts)
    }
}

/// Reads one value; `left` of them may still be kept.
#[derive(Clone, Copy)]
struct Reading<'a> {
    kept: &'a Kept,
    left: &'a Cell<usize>,
}

impl Reading<'_> {
    /// How to read a field of this value; nothing if it is passed over.
    fn field(self, name: &str) -> Option<Self> {
        match self.kept {
            Kept::All => Some(self),
            Kept::Fields(fields) => {
                let (_, kept) = fields.iter().find(|(field, _)| *field == name)?;
                Some(Self { kept, ..self })
            }
            Kept::Each(_) => None,
        }
    }

    /// How to read an element of this value; nothing if they are passed over.
    fn element(self) -> Option<Self> {
        match self.kept {
            Kept::All => Some(self),
            Kept::Each(kept) => Some(Self { kept, ..self }),
            Kept::Fields(_) => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        // At 0 it stays: that is how whoever asked is told why it failed.
        let Some(left) = self.left.get().checked_sub(1).filter(|left| *left > 0) else {
            self.left.set(0);
            return Err(de::Error::custom("too many values"));
        };
        self.left.set(left);
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        match self.element() {
            Some(element) => {
                while let Some(value) = list.next_element_seed(element)? {
                    kept.push(value);
                }
            }
            None => while list.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            match self.field(&name) {
                Some(field) => {
                    let value = object.next_value_seed(field)?;
                    kept.insert(name, value);
                }
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(kept.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_looked_at_is_read_and_stays_in_its_place() {
        let object = json!({
            "kind": "Pod",
            "metadata": { "labels": { "a": "b" }, "managedFields": [{ "f": {} }], "deletionTimestamp": null },
            "spec": {
                "containers": [{ "image": "x" }, { "name": "c", "env": [1, 2], "resources": { "limits": { "cpu": 4 } } }],
                "affinity": { "podAffinity": {}, "nodeAffinity": { "future": [true, 1.5, -1] } },
                "volumes": [{}, {}],
            },
        });
        let read = read(&object.to_string()).unwrap();
        assert_eq!(
            read,
            json!({
                "metadata": { "labels": { "a": "b" }, "deletionTimestamp": null },
                "spec": {
                    "containers": [{}, { "name": "c", "resources": { "limits": { "cpu": 4 } } }],
                    "affinity": { "nodeAffinity": { "future": [true, 1.5, -1] } },
                },
            })
        );
    }

    #[test]
    fn an_odd_shape_is_kept_as_an_empty_one() {
        for (odd, kept) in [
            ("[1,[2]]", json!([])),
            ("null", json!(null)),
            (
                r#"{"spec":[{}],"metadata":7,"template":"x"}"#,
                json!({"spec": [], "metadata": 7, "template": "x"}),
            ),
            (r#"{"spec":{"containers":{"a":1}}}"#, json!({"spec": {"containers": {}}})),
        ] {
            assert_eq!(read(odd).unwrap(), kept, "{odd}");
        }
        assert!(matches!(read("{} x"), Err(ReadError::Form(_))));
        assert!(matches!(read(r#"{"spec""#), Err(ReadError::Form(_))));
    }

    #[test]
    fn values_are_counted_where_they_are_kept_and_only_there() {
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
        let with = |place: &str, text: &str| place.replace('@', text);
        for place in [
            r#"{"spec":{"containers":@}}"#,
            r#"{"metadata":{"annotations":{"a":@}}}"#,
            r#"{"spec":{"template":{"spec":{"initContainers":@}}}}"#,
        ] {
            assert!(matches!(read(&with(place, &zeros(MOST_VALUES))), Err(ReadError::TooMany)), "{place}");
            assert!(read(&with(place, &zeros(MOST_VALUES / 2))).is_ok(), "{place}");
        }
        for place in [r#"{"zeros":@}"#, r#"{"spec":@}"#, r#"{"metadata":{"managedFields":@}}"#] {
            assert!(read(&with(place, &zeros(100 * MOST_VALUES))).is_ok(), "{place}");
        }
    }
}

//! Pieces of objects that several shapes read: strings, quantities and maps, borrowed where the text allows it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use gpupool_core::one_line::one_line;
use gpupool_core::quantity::Quantity;
use gpupool_core::stock::Resources;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{AmountFault, ResourceError};

/// A string, borrowed unless it has escapes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

struct TextVisitor<'a>(PhantomData<&'a str>);

impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
    type Value = Text<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// An object, or nothing for null or a missing key. Unlike derived code, it takes no array for an object.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
    }

    // Not `deserialize_map`: null is allowed.
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// Which keys of a map are kept.
pub(crate) trait KeyFilter {
    /// Whether a key is kept. The same kept key twice is an error.
    fn keep(key: &str) -> bool;
}

/// All of them.
#[derive(Debug)]
pub(crate) struct AllKeys;

impl KeyFilter for AllKeys {
    fn keep(_: &str) -> bool {
        true
    }
}

/// The kept resources of a map, with their quantities as they were written.
#[derive(Debug)]
pub(crate) struct RawResources<'a, K>(Vec<(Cow<'a, str>, &'a RawValue)>, PhantomData<K>);

impl<K> RawResources<'_, K> {
    /// Every kept resource with its quantity.
    pub(crate) fn quantities(&self) -> Result<Vec<(&str, Quantity)>, ResourceError> {
        self.0.iter().map(|(name, raw)| Ok((name.as_ref(), quantity(name, raw)?))).collect()
    }

    /// The same as a map of its own.
    pub(crate) fn to_map(&self) -> Result<Resources, ResourceError> {
        let quantities = self.quantities()?.into_iter();
        Ok(quantities.map(|(name, quantity)| (name.to_owned(), quantity)).collect())
    }
}

impl<'de: 'a, 'a, K: KeyFilter> Deserialize<'de> for RawResources<'a, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept: FilteredMap<'a, &'a RawValue, K> = FilteredMap::deserialize(deserializer)?;
        Ok(Self(kept.0, PhantomData))
    }
}

/// The kept keys of a map with their values, in their order.
#[derive(Debug)]
pub(crate) struct FilteredMap<'a, V, K>(pub(crate) Vec<(Cow<'a, str>, V)>, PhantomData<K>);

impl<'de: 'a, 'a, V: Deserialize<'de> + 'a, K: KeyFilter> Deserialize<'de> for FilteredMap<'a, V, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FilteredMapVisitor(PhantomData))
    }
}

struct FilteredMapVisitor<'a, V, K>(PhantomData<(&'a V, K)>);

impl<'de: 'a, 'a, V: Deserialize<'de> + 'a, K: KeyFilter> Visitor<'de> for FilteredMapVisitor<'a, V, K> {
    type Value = FilteredMap<'a, V, K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kept: Vec<(Cow<'a, str>, V)> = Vec::new();
        while let Some(Text(key)) = map.next_key::<Text<'a>>()? {
            if K::keep(&key) {
                kept.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let mut keys: Vec<&str> = kept.iter().map(|(key, _)| key.as_ref()).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(serde::de::Error::custom(format!(
                "the key \"{}\" stands there twice",
                one_line(twice[0], 60)
            )));
        }
        Ok(FilteredMap(kept, PhantomData))
    }
}

/// A quantity as Kubernetes reads it: a string or a number, exactly as it was written.
fn quantity(name: &str, raw: &RawValue) -> Result<Quantity, ResourceError> {
    amount(raw.get()).map_err(|fault| ResourceError { resource: one_line(name, 100), fault })
}

fn amount(raw: &str) -> Result<Quantity, AmountFault> {
    match raw.bytes().next() {
        Some(b'"') => {
            let Text(text) = serde_json::from_str(raw)?;
            Ok(Quantity::parse(&text)?)
        }
        Some(b'-' | b'0'..=b'9') => Ok(Quantity::parse(raw)?),
        _ => Err(AmountFault::NeitherStringNorNumber(one_line(raw, 40))),
    }
}

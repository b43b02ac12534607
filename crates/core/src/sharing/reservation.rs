//! What the sharing module itself takes of a node, and what is left of `allocatable` then.
//!
//! The published example fixes the figures: 2 CPU and 10Gi for each card, and 1.5Ti of 6Ti ephemeral storage. Cpu and
//! memory are never over a quarter of the node, nor is the storage unless somebody says so.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde_json::{Map, Value};

use crate::quantity::Quantity;

/// One of the three things that are reserved.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reserved {
    /// `cpu`, in cores.
    Cpu,
    /// `memory`, in bytes.
    Memory,
    /// Ephemeral storage, in bytes.
    EphemeralStorage,
}

impl Reserved {
    /// All three, in the order in which sentences list them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::EphemeralStorage];

    /// The resource's name in `capacity` and `allocatable`.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
        }
    }

    /// An amount of it, in a sentence.
    pub fn phrase(self, amount: Quantity) -> String {
        match self {
            Self::Cpu => format!("{amount} CPU"),
            Self::Memory => format!("{amount} of memory"),
            Self::EphemeralStorage => format!("{amount} of ephemeral storage"),
        }
    }

    /// What amounts are rounded to: a thousandth of a processor, a byte.
    fn grain(self) -> Quantity {
        match self {
            Self::Cpu => Quantity::MILLI,
            Self::Memory | Self::EphemeralStorage => Quantity::whole_units(1),
        }
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource())
    }
}

/// Amounts of what is reserved; what is not in it is nothing, or not known of the node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Amounts(BTreeMap<Reserved, Quantity>);

impl Amounts {
    /// Takes the three out of a list of amounts by their resource's name.
    pub fn read<'a>(amount: impl Fn(&str) -> Option<&'a str>) -> Self {
        let read = |one: &Reserved| Quantity::parse(amount(one.resource())?).ok();
        Self(Reserved::ALL.iter().filter_map(|one| Some((*one, read(one)?))).collect())
    }

    /// Reads what [`Amounts::to_json`] wrote; nothing if it is of another form.
    pub fn parse(text: &str) -> Option<Self> {
        let map: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let known = map.iter().all(|(name, amount)| {
            Reserved::ALL.iter().any(|one| one.resource() == name) && Quantity::parse(amount).is_ok()
        });
        known.then(|| Self::read(|name| map.get(name).map(String::as_str)))
    }

    /// The text of an annotation, such as `{"cpu":"32","memory":"160Gi"}`.
    pub fn to_json(&self) -> String {
        let pairs = self.0.iter().map(|(one, amount)| (one.resource().to_owned(), amount.to_string().into()));
        Value::Object(pairs.collect::<Map<_, _>>()).to_string()
    }

    /// One of them, if it is there.
    pub fn get(&self, one: Reserved) -> Option<Quantity> {
        self.0.get(&one).copied()
    }

    /// One of them; zero where it is not there.
    pub fn amount(&self, one: Reserved) -> Quantity {
        self.get(one).unwrap_or(Quantity::ZERO)
    }

    /// Puts an amount in the place of what was there.
    pub fn set(&mut self, one: Reserved, amount: Quantity) {
        self.0.insert(one, amount);
    }

    /// Those that are there, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Reserved, Quantity)> {
        self.0.iter().map(|(one, amount)| (*one, *amount))
    }

    /// Whether no resource has an amount, not even zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left when these are taken away: never below nothing, and only of what is there.
    #[must_use]
    pub fn without(&self, taken: &Self) -> Self {
        let left = |(one, amount): (Reserved, Quantity)| (one, amount.minus(taken.amount(one)).or_zero());
        Self(self.iter().map(left).collect())
    }

    /// Adds another pod's requests.
    pub fn add(&mut self, other: &Self) {
        for (one, amount) in other.iter() {
            let sum = self.amount(one).plus(amount);
            self.set(one, sum);
        }
    }
}

/// Cards' share of cpu: for each, in processors.
const CPU_PER_CARD: Quantity = Quantity::whole_units(2);
/// Cards' share of memory: for each, in bytes.
const MEMORY_PER_CARD: Quantity = Quantity::gibi(10);
/// The most ephemeral storage that is reserved unless somebody asks for more: 1.5Ti.
const MOST_STORAGE: Quantity = Quantity::gibi(1536);
const A_QUARTER: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// What is reserved on a node of this capacity with so many cards. `storage` is what somebody asked for.
pub fn reservation(cards: u32, capacity: &Amounts, storage: Option<Quantity>) -> Amounts {
    let mut reserved = Amounts::default();
    for (one, there) in capacity.iter() {
        let quarter = there.part(A_QUARTER, one.grain());
        let amount = match one {
            Reserved::Cpu => CPU_PER_CARD.times(cards).min(quarter),
            Reserved::Memory => MEMORY_PER_CARD.times(cards).min(quarter),
            Reserved::EphemeralStorage => storage.unwrap_or_else(|| quarter.min(MOST_STORAGE)),
        };
        reserved.set(one, amount);
    }
    reserved
}

/// What `allocatable` is without us, from a status that somebody writes. Whoever writes a status sends only what it
/// thinks has changed: an amount that is as `before` was not sent, and is still the one that was `noted`, if one was.
pub fn unreserved(written: &Amounts, before: Option<&Amounts>, noted: &Amounts) -> Amounts {
    let mut unreserved = Amounts::default();
    for (one, amount) in written.iter() {
        let sent = before.is_some_and(|before| before.get(one) != Some(amount));
        let known = noted.get(one).filter(|_| !sent);
        unreserved.set(one, known.unwrap_or(amount));
    }
    unreserved
}

//! The card table: every card of the node as the driver itself described it to the agent.
//!
//! The shim answers identity questions from it before a program holds a card, so it holds the driver's own values
//! and nothing made up. It is written once and sealed; native byte order, since it never leaves the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::text;
use crate::uuid::CardUuid;

/// First four bytes of the table.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPCT");

/// Layout of the table. What is added follows the cards, so a reader takes any layout from its own on; where that cannot
/// be, [`MAGIC`] changes.
pub const VERSION: u32 = 1;

/// Most cards of one table; the largest machines have 16.
pub const MAX_CARDS: usize = 64;

/// Attributes kept per card: `CUdevice_attribute` numbers `0..ATTRIBUTES` (CUDA 13.5 defines them up to 161).
pub const ATTRIBUTES: usize = 192;

/// Stands in [`Card::attributes`] for a number that the driver refused to answer.
pub const NO_ATTRIBUTE: i32 = i32::MIN;

/// Bytes of a card's name field; the driver's own is 96 with its final NUL (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
pub const NAME_LENGTH: usize = 96;

/// What the table starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TableHeader {
    magic: u32,
    version: u32,
    count: u32,
    driver_version: i32,
}

impl TableHeader {
    /// The header of a table of `count` cards; the driver version is what `cuDriverGetVersion` says (13050 for 13.5).
    pub const fn new(count: u32, driver_version: i32) -> Self {
        Self { magic: MAGIC, version: VERSION, count, driver_version }
    }
}

/// A card as `cuDeviceGet…` and NVML described it to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Card {
    /// The card's identity (`cuDeviceGetUuid`).
    pub uuid: CardUuid,
    /// Its name, padded with NUL bytes; see [`Card::name`] and [`Card::with_name`].
    pub name: [u8; NAME_LENGTH],
    /// All of its memory in bytes (`cuDeviceTotalMem_v2`).
    pub total_memory: u64,
    /// PCI domain (`CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`).
    pub pci_domain: u32,
    /// PCI bus (`CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`).
    pub pci_bus: u32,
    /// PCI device (`CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID`).
    pub pci_device: u32,
    /// Compute capability, major part: the 8 of 8.6.
    pub cc_major: i32,
    /// Compute capability, minor part: the 6 of 8.6.
    pub cc_minor: i32,
    /// NVML's index of the card (`nvmlDeviceGetIndex`), which may differ from CUDA's.
    pub nvml_index: u32,
    /// `cuDeviceGetAttribute` by number; [`NO_ATTRIBUTE`] where the driver refused.
    pub attributes: [i32; ATTRIBUTES],
}

impl Card {
    /// A card of which only the uuid is known; the rest is to be filled in.
    pub const fn new(uuid: CardUuid) -> Self {
        Self {
            uuid,
            name: [0; NAME_LENGTH],
            total_memory: 0,
            pci_domain: 0,
            pci_bus: 0,
            pci_device: 0,
            cc_major: 0,
            cc_minor: 0,
            nvml_index: 0,
            attributes: [NO_ATTRIBUTE; ATTRIBUTES],
        }
    }

    /// The same card with a name, cut where it is longer than the field.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = text::pack(name);
        self
    }

    /// The card's name.
    pub fn name(&self) -> &str {
        text::unpack(&self.name)
    }

    /// The card's name as the driver's own bytes.
    pub fn name_bytes(&self) -> &[u8] {
        text::bytes(&self.name)
    }

    /// The driver's answer for an attribute, or nothing where it refused or the number is not kept.
    pub fn attribute(&self, number: i32) -> Option<i32> {
        let index = usize::try_from(number).ok()?;
        self.attributes.get(index).copied().filter(|&value| value != NO_ATTRIBUTE)
    }
}

const _: () = {
    assert!(size_of::<TableHeader>() == 16);
    assert!(size_of::<Card>() == 16 + NAME_LENGTH + 8 + 24 + 4 * ATTRIBUTES);
    assert!(align_of::<Card>() == 8);
};

/// Length in bytes of a table with this many cards.
pub const fn table_length(cards: usize) -> usize {
    size_of::<TableHeader>() + cards * size_of::<Card>()
}

/// A table that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardTable<'a> {
    driver_version: i32,
    cards: &'a [Card],
}

/// Why some bytes are no card table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// They do not start as a card table does, or lie askew.
    #[error("this is not a card table of layout {VERSION} or a later one")]
    Foreign,
    /// More cards than a table may have.
    #[error("the card table claims {0} cards, at most {MAX_CARDS} are possible")]
    TooMany(u32),
    /// Fewer bytes than its cards take.
    #[error("the card table is cut short: {have} of {need} bytes")]
    Short {
        /// Bytes that there are.
        have: usize,
        /// Bytes that its count of cards takes.
        need: usize,
    },
}

impl<'a> CardTable<'a> {
    /// Checks a table. Bytes after its last card are ignored, since files end at page borders.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TableError> {
        let (header, rest) = TableHeader::ref_from_prefix(bytes).map_err(|_| TableError::Foreign)?;
        if header.magic != MAGIC || header.version < VERSION {
            return Err(TableError::Foreign);
        }
        let count = header.count as usize;
        if count > MAX_CARDS {
            return Err(TableError::TooMany(header.count));
        }
        let (cards, _) = <[Card]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| TableError::Short { have: bytes.len(), need: table_length(count) })?;
        Ok(Self { driver_version: header.driver_version, cards })
    }

    /// What `cuDriverGetVersion` says: 1000 times the major part and 10 times the minor one.
    pub const fn driver_version(&self) -> i32 {
        self.driver_version
    }

    /// The cards in the driver's order.
    pub const fn cards(&self) -> &'a [Card] {
        self.cards
    }

    /// The card at an index, as the limits page and [`crate::message::Granted`] count them.
    pub fn card(&self, index: u32) -> Option<&'a Card> {
        self.cards.get(index as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes aligned as a mapping is.
    fn aligned(bytes: &[u8]) -> Vec<u64> {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        words
    }

    fn table(count: u32, cards: &[Card]) -> Vec<u64> {
        let mut bytes = TableHeader::new(count, 13_050).as_bytes().to_vec();
        bytes.extend_from_slice(cards.as_bytes());
        aligned(&bytes)
    }

    #[test]
    fn a_table_of_a_later_layout_is_read_and_one_of_an_earlier_is_not() {
        let of = |version| {
            let header = TableHeader { version, ..TableHeader::new(1, 13_050) };
            [header.as_bytes(), Card::new([3; 16]).as_bytes(), b"what was added"].concat()
        };
        let words = aligned(&of(VERSION + 1));
        assert_eq!(CardTable::parse(words.as_bytes()).unwrap().cards(), [Card::new([3; 16])]);
        let words = aligned(&of(VERSION - 1));
        assert_eq!(CardTable::parse(words.as_bytes()), Err(TableError::Foreign));
    }

    #[test]
    fn a_table_says_what_was_put_in() {
        let mut card = Card::new([3; 16]).with_name("NVIDIA A100 (simulated)");
        card.attributes[75] = 8;
        let words = table(2, &[card, Card::new([4; 16])]);
        let read = CardTable::parse(words.as_bytes()).unwrap();
        assert_eq!((read.driver_version(), read.cards().len()), (13_050, 2));
        let first = read.card(0).unwrap();
        assert_eq!(first.name(), "NVIDIA A100 (simulated)");
        assert_eq!(first.attribute(75), Some(8));
        assert_eq!(first.attribute(76), None);
        assert_eq!((first.attribute(-1), first.attribute(i32::MAX)), (None, None));
        assert_eq!(read.card(2), None);
    }

    #[test]
    fn a_table_that_claims_more_than_it_has_is_refused() {
        let words = table(2, &[Card::new([3; 16])]);
        assert!(matches!(CardTable::parse(words.as_bytes()), Err(TableError::Short { .. })));
        let words = table(65, &[]);
        assert_eq!(CardTable::parse(words.as_bytes()), Err(TableError::TooMany(65)));
    }

    proptest! {
        #[test]
        fn no_bytes_can_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let words = aligned(&bytes);
            let _ = CardTable::parse(words.as_bytes());
        }

        #[test]
        fn no_cards_behind_a_good_header_can_make_it_panic(
            count in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        ) {
            let mut all = TableHeader::new(count % 70, 1).as_bytes().to_vec();
            all.extend_from_slice(&bytes);
            let words = aligned(&all);
            if let Ok(table) = CardTable::parse(words.as_bytes()) {
                for card in table.cards() {
                    prop_assert!(card.name().len() <= NAME_LENGTH);
                }
            }
        }
    }
}

//! The card table, as the simulated driver describes its cards.

use std::path::Path;
use std::process::Command;

use gpupool_wire::cards::{Card, NO_ATTRIBUTE, TableHeader};
use zerocopy::IntoBytes;

use super::{Link, finish, program, simulated};

/// The cards of a machine and what its driver calls itself.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) driver: i32,
    pub(crate) cards: Vec<Card>,
}

impl Table {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let count = u32::try_from(self.cards.len()).unwrap();
        let mut bytes = TableHeader::new(count, self.driver).as_bytes().to_vec();
        bytes.extend_from_slice(self.cards.as_bytes());
        bytes
    }
}

/// A card's uuid in hexadecimal.
pub(crate) fn uuid_hex(card: &Card) -> String {
    format!("{:032x}", u128::from_be_bytes(card.uuid))
}

/// A card's uuid as text.
pub(crate) fn uuid_text(card: &Card) -> String {
    let hex = uuid_hex(card);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Asks the driver.
pub(crate) fn probe(folder: &Path, cards: &str) -> Table {
    let mut command = Command::new(program(folder, "probe", Link::Nothing));
    simulated(&mut command, folder, cards);
    let mut table = Table { driver: 0, cards: Vec::new() };
    for line in finish(command).out {
        let (what, rest) = line.split_once(' ').unwrap();
        if what == "name" {
            let mut card = Card::new([0; 16]).with_name(rest);
            card.nvml_index = u32::try_from(table.cards.len()).unwrap();
            table.cards.push(card);
        }
        match (what, table.cards.last_mut()) {
            ("driver", _) => table.driver = rest.parse().unwrap(),
            ("uuid", Some(card)) => {
                for (place, byte) in card.uuid.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&rest[place * 2..place * 2 + 2], 16).unwrap();
                }
            }
            ("total", Some(card)) => card.total_memory = rest.parse().unwrap(),
            ("attributes", Some(card)) => {
                for (value, word) in card.attributes.iter_mut().zip(rest.split(' ')) {
                    *value = word.parse().unwrap_or(NO_ATTRIBUTE);
                }
                let [bus, device, domain] = [33, 34, 50].map(|n| u32::try_from(card.attributes[n]).unwrap());
                (card.pci_bus, card.pci_device, card.pci_domain) = (bus, device, domain);
                (card.cc_major, card.cc_minor) = (card.attributes[75], card.attributes[76]);
            }
            _ => {}
        }
    }
    assert!(!table.cards.is_empty(), "the simulated driver shows no card");
    table
}

//! `CUDA_VISIBLE_DEVICES`, read the way the driver reads it.
//!
//! The shim shows one card whatever the list says, with one exception: a program that hides every card from itself
//! must find none.

use gpupool_wire::cards::Card;

use crate::text::Text;

/// Whether the list lets any of these cards through. No variable at all hides nothing.
///
/// The driver stops at the first part that names no card, so the first part decides. A part is a number below the
/// count of cards, or a uuid, or the beginning of exactly one.
pub(crate) fn shows_a_card(list: Option<&[u8]>, cards: &[Card]) -> bool {
    if cards.is_empty() {
        return false;
    }
    let Some(list) = list else { return true };
    let first = list.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii();
    match number(first) {
        Some(number) => number < cards.len(),
        // MIG devices are parts of a card; which ones exist is not in the table.
        None if first.starts_with(b"MIG-") => true,
        None => cards.iter().filter(|card| begins(card, first)).count() == 1,
    }
}

fn number(part: &[u8]) -> Option<usize> {
    if part.is_empty() || part.len() > 9 {
        return None;
    }
    part.iter().try_fold(0_usize, |number, &byte| {
        byte.is_ascii_digit().then(|| number * 10 + usize::from(byte - b'0'))
    })
}

fn begins(card: &Card, part: &[u8]) -> bool {
    let mut uuid = Text::new();
    let start = uuid.add_uuid(&card.uuid).as_bytes().get(..part.len()).unwrap_or_default();
    // Byte by byte: the slices' own comparison is built for longer ones and could panic as far as the compiler knows.
    let same = start.len() == part.len() && start.iter().zip(part).all(|(a, b)| a.eq_ignore_ascii_case(b));
    part.len() > b"GPU-".len() && same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards() -> [Card; 2] {
        [Card::new([0xaa; 16]), Card::new([0xab; 16])]
    }

    fn shows(list: &str) -> bool {
        shows_a_card(Some(list.as_bytes()), &cards())
    }

    #[test]
    fn no_list_hides_nothing() {
        assert!(shows_a_card(None, &cards()));
    }

    #[test]
    fn a_machine_without_cards_shows_none() {
        assert!(!shows_a_card(None, &[]));
    }

    #[test]
    fn an_empty_or_senseless_list_hides_every_card() {
        for list in ["", "-1", "none", "NoDevFiles", ",0", "2", "99999999999", "-1,0", "GPU-", "GPU-ac"] {
            assert!(!shows(list), "{list:?}");
        }
    }

    #[test]
    fn a_list_whose_first_part_names_a_card_does_not() {
        for list in ["0", "1", "1,0", " 0 ,9", "0,-1", "GPU-aaaa", "gpu-AB", "MIG-1"] {
            assert!(shows(list), "{list:?}");
        }
    }

    #[test]
    fn the_beginning_of_two_uuids_names_neither() {
        assert!(!shows("GPU-a"));
    }
}

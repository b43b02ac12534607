//! Which cards a program sees, and in what order: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.

use simgpu_device::Card;

/// The cards in CUDA's own order: the fastest first, the rest by their place on the bus; all by their place where
/// `order` says `PCI_BUS_ID`.
pub(crate) fn in_cuda_order(cards: Vec<Card>, order: Option<&str>) -> Vec<Card> {
    let mut cards = cards;
    if order.is_some_and(|order| order.eq_ignore_ascii_case("PCI_BUS_ID")) {
        return cards;
    }
    let speed = |card: &Card| u64::from(card.model().cores()) * u64::from(card.model().core_clock_khz);
    let fastest = cards.iter().map(speed).max();
    if let Some(place) = cards.iter().position(|card| Some(speed(card)) == fastest) {
        cards[..=place].rotate_right(1);
    }
    cards
}

/// The cards that `visible` lets through. The list holds numbers and UUIDs or beginnings of UUIDs; it ends at the
/// first part that names no card or names one twice. An empty list hides every card, no list none.
pub(crate) fn visible(cards: Vec<Card>, visible: Option<&str>) -> Vec<Card> {
    let Some(list) = visible else { return cards };
    let names: Vec<_> = cards.iter().map(|card| card.uuid().to_string()).collect();
    chosen(&names, list).into_iter().map(|place| cards[place]).collect()
}

fn chosen(uuids: &[String], list: &str) -> Vec<usize> {
    let mut places = Vec::new();
    for part in list.split(',').map(str::trim) {
        match place(uuids, part) {
            Some(place) if !places.contains(&place) => places.push(place),
            _ => break,
        }
    }
    places
}

fn place(uuids: &[String], part: &str) -> Option<usize> {
    if let Ok(number) = part.parse::<usize>() {
        return (number < uuids.len()).then_some(number);
    }
    let begins = |uuid: &String| {
        part.len() > 4 && uuid.get(..part.len()).is_some_and(|start| start.eq_ignore_ascii_case(part))
    };
    let mut matches = uuids.iter().enumerate().filter(|(_, uuid)| begins(uuid)).map(|(place, _)| place);
    let first = matches.next();
    first.filter(|_| matches.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::chosen;

    fn uuids() -> Vec<String> {
        ["GPU-aa00", "GPU-ab11", "GPU-b222"].map(str::to_owned).to_vec()
    }

    #[test]
    fn numbers_choose_and_order() {
        assert_eq!(chosen(&uuids(), "2,0"), [2, 0]);
    }

    #[test]
    fn a_unique_beginning_of_a_uuid_is_enough() {
        assert_eq!(chosen(&uuids(), "GPU-b,gpu-AA"), [2, 0]);
        assert!(chosen(&uuids(), "GPU-a").is_empty());
        assert!(chosen(&uuids(), "GPU-").is_empty());
    }

    #[test]
    fn the_list_ends_at_the_first_part_that_names_no_card() {
        assert_eq!(chosen(&uuids(), "1,7,0"), [1]);
        assert_eq!(chosen(&uuids(), "1,-1,0"), [1]);
        assert_eq!(chosen(&uuids(), "1,1,0"), [1]);
        assert!(chosen(&uuids(), "").is_empty());
        assert!(chosen(&uuids(), "-1").is_empty());
        assert!(chosen(&uuids(), "NoDevFiles").is_empty());
    }
}

//! What is free on each card of a `static` node, by requests.

use crate::pool::CardUuid;
use crate::share::Percent;

/// A card as its node's agent names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Card {
    /// The card's UUID.
    pub uuid: CardUuid,
    /// Its index on the node; ties between cards go to the lowest.
    pub index: u32,
    /// Whether it works. One that does not takes no new pod.
    pub healthy: bool,
}

/// What one card has left for requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Room {
    /// The card.
    pub card: Card,
    /// Percent of computing time that no request holds. Never below 0, whatever the pods there say.
    pub core: u32,
    /// Percent of memory that no request holds.
    pub memory: u32,
}

impl Room {
    fn whole(card: Card) -> Self {
        Self { card, core: 100, memory: 100 }
    }

    fn fits(&self, (core, memory): (Percent, Percent)) -> bool {
        self.card.healthy && self.core >= u32::from(core.get()) && self.memory >= u32::from(memory.get())
    }

    fn take(&mut self, (core, memory): (Percent, Percent)) {
        self.core = self.core.saturating_sub(u32::from(core.get()));
        self.memory = self.memory.saturating_sub(u32::from(memory.get()));
    }

    /// Percent left of both dimensions together: what "fullest" compares.
    pub const fn left(&self) -> u32 {
        self.core + self.memory
    }
}

/// The rooms of a node: its cards less the requests of the pods there, each with its card where that is known.
///
/// A pod whose card is not known yet will get one by the same rule, so it is counted where the rule puts it, and on
/// the emptiest card where it fits nowhere: never nowhere.
pub(super) fn rooms<'a>(
    cards: &[Card],
    pods: impl Iterator<Item = ((Percent, Percent), Option<&'a CardUuid>)>,
) -> Vec<Room> {
    let mut rooms: Vec<Room> = cards.iter().cloned().map(Room::whole).collect();
    rooms.sort_by_key(|room| room.card.index);
    let mut unsettled = Vec::new();
    for (requests, card) in pods {
        match card.and_then(|uuid| rooms.iter_mut().find(|room| room.card.uuid == *uuid)) {
            Some(room) => room.take(requests),
            None if card.is_none() => unsettled.push(requests),
            // A card that the node does not have any more holds nobody up.
            None => {}
        }
    }
    for requests in unsettled {
        let place = fullest(&rooms, requests).or_else(|| emptiest(&rooms));
        if let Some(room) = place.and_then(|place| rooms.get_mut(place)) {
            room.take(requests);
        }
    }
    rooms
}

/// The card that takes the requests and is left fullest; the lowest index among equals.
pub(super) fn fullest(rooms: &[Room], requests: (Percent, Percent)) -> Option<usize> {
    let fitting = rooms.iter().enumerate().filter(|(_, room)| room.fits(requests));
    fitting.min_by_key(|(_, room)| room.left()).map(|(place, _)| place)
}

fn emptiest(rooms: &[Room]) -> Option<usize> {
    rooms
        .iter()
        .enumerate()
        .max_by_key(|(place, room)| (room.left(), usize::MAX - place))
        .map(|(place, _)| place)
}

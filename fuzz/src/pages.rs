//! Pages of shared memory that the agent writes and programs read: the limits of a pod, the table of cards.

use gpupool_wire::cards::{self, ATTRIBUTES, Card, CardTable, MAX_CARDS, NAME_LENGTH, NO_ATTRIBUTE};
use gpupool_wire::limits::{LimitsPage, MAGIC, PodState, VERSION};

use crate::choices::Choices;

/// Bytes of a limits page.
const LENGTH: usize = size_of::<LimitsPage>();
/// Bytes of a table's header, and of a card.
const HEADER: usize = 16;
const CARD: usize = size_of::<Card>();

/// Bytes as they lie in a mapping: aligned.
fn mapped(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Reads a limits page: every field must be what stands at its place.
///
/// # Panics
/// Where an answer is wrong.
pub fn limits(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut page = Vec::new();
    if choices.coin() {
        page.extend(MAGIC.to_ne_bytes());
        page.extend(VERSION.to_ne_bytes());
    }
    page.extend(choices.rest());
    let memory = mapped(&page);
    // SAFETY: this many bytes of memory that lives longer than the page and that nobody changes.
    let found = unsafe { LimitsPage::open(memory.as_ptr().cast(), page.len()) };
    let ours = page.len() >= LENGTH && word(&page, 0) == MAGIC && word(&page, 4) == VERSION;
    assert_eq!(found.is_ok(), ours, "recognised");
    let Ok(found) = found else { return };
    let limits = found.read();
    let settled = long(&page, 8).is_multiple_of(2);
    assert_eq!(found.read_at_once(), settled.then_some(limits), "all of one moment");
    assert_eq!((limits.memory_bytes, found.memory_bytes()), (long(&page, 16), long(&page, 16)));
    assert_eq!(limits.context_reserve_bytes, long(&page, 24));
    assert_eq!(limits.core_percent, word(&page, 32));
    let state = match word(&page, 36) {
        1 => PodState::Ready,
        2 => PodState::Running,
        _ => PodState::Hibernating,
    };
    assert_eq!(limits.state, state);
    assert_eq!((limits.position, found.position()), (word(&page, 40), word(&page, 40)));
    assert_eq!(limits.card, word(&page, 44));
    assert_eq!((limits.core_rate.per_second, limits.core_rate.burst), (long(&page, 48), long(&page, 56)));
}

/// Reads a table of cards: it must have as many as it says, and nothing beyond its bytes.
///
/// # Panics
/// Where an answer is wrong.
pub fn cards(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut table = Vec::new();
    if choices.coin() {
        table.extend(cards::MAGIC.to_ne_bytes());
        table.extend(cards::VERSION.to_ne_bytes());
        table.extend(u32::from(choices.byte() % 80).to_ne_bytes());
        table.extend(choices.bytes(4));
        let blank = choices.below(4) * CARD;
        table.resize(table.len() + blank, 0xff);
    }
    table.extend(choices.rest());
    let memory = mapped(&table);
    // SAFETY: bytes of that memory, which lives longer than the table and is not changed.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), table.len()) };
    let found = CardTable::parse(bytes);
    let ours = word(&table, 0) == cards::MAGIC && word(&table, 4) == cards::VERSION;
    let count = word(&table, 8) as usize;
    let whole = table.len() >= HEADER && count <= MAX_CARDS && (table.len() - HEADER) / CARD >= count;
    assert_eq!(found.is_ok(), ours && whole, "recognised");
    let Ok(found) = found else { return };
    assert_eq!(found.cards().len(), count);
    assert!(found.card(word(&table, 8)).is_none(), "a card after the last");
    for card in found.cards() {
        assert!(card.name().len() <= card.name_bytes().len() && card.name_bytes().len() <= NAME_LENGTH);
        for number in (-1..200).chain([i32::MIN, i32::MAX]) {
            let kept = usize::try_from(number).is_ok_and(|number| number < ATTRIBUTES);
            assert!(card.attribute(number).is_none_or(|value| kept && value != NO_ATTRIBUTE));
        }
    }
}

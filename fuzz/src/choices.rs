//! Decisions of a generator, taken from the engine's bytes.

/// The bytes that are left to decide by. When they are used up, every decision falls on the first alternative.
#[derive(Debug)]
pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Decisions by these bytes.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// One of two.
    pub(crate) fn coin(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// A number below `end`, or 0 where there is none; of as many bytes as it needs.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let mut number = 0;
        let mut reach = 1_usize;
        while reach < end {
            number = number << 8 | usize::from(self.byte());
            reach = reach.saturating_mul(256);
        }
        number.checked_rem(end).unwrap_or(0)
    }

    /// One of a list that is not empty.
    pub(crate) fn one_of<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Up to `most` bytes as they are.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let length = self.below(most + 1).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Everything that is left.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Changes some of the bytes of an encoded input: flips, overwrites, cuts, doubles; nothing in half of the cases.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        let changes = self.byte().saturating_sub(128) / 32;
        for _ in 0..changes {
            let length = bytes.len();
            let place = self.below(length + 1);
            match self.byte() % 6 {
                0 if place < length => bytes[place] ^= 1 << (self.byte() % 8),
                1 if place < length => bytes[place] = self.byte(),
                2 => bytes.truncate(place),
                3 => _ = bytes.splice(place..place, self.bytes(16).iter().copied()),
                4 => {
                    let end = (place + self.below(32)).min(length);
                    bytes.extend_from_within(place..end);
                }
                _ => {
                    let end = (place + self.below(32)).min(length);
                    bytes.drain(place..end);
                }
            }
        }
    }
}

//! A card's identity.

/// `cudaUUID_t` of a card: 16 bytes as `cuDeviceGetUuid` gives them; all zero stands for "none" ([`NO_CARD`]).
pub type CardUuid = [u8; 16];

/// No card: where a frame has room for a card and none is meant.
pub const NO_CARD: CardUuid = [0; 16];

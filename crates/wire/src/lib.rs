//! What shim and agent share: messages, the memory ledger, the limits page, the card table; no_std.

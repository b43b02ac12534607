//! Who has how much of a card's memory: exact, without locks, and safe against a kill at any instruction.
//!
//! To take memory a process first adds it to its own `pending` word, then adds up all processes' words. What fits is
//! moved to `committed`; what doesn't is taken back. Two processes that ask at the same time see each other's pending
//! words (all operations are sequentially consistent), so together they never pass the total; where only one of them
//! fits, the one with the lower slot wins and the other looks again.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::layout::HoldingState;

/// Memory is given out in units of this many bytes.
pub const GRANULE: u64 = 512;

/// What an allocation of `bytes` is charged: rounded up to [`GRANULE`].
pub const fn round_up(bytes: u64) -> u64 {
    bytes.saturating_add(GRANULE - 1) / GRANULE * GRANULE
}

const AMOUNT_BITS: u32 = 40;
const AMOUNT: u64 = (1 << AMOUNT_BITS) - 1;
/// Tags are what is left of the word.
pub(crate) const TAGS: u64 = 1 << (64 - AMOUNT_BITS);

/// How often a loser looks again before it believes that there is no memory: some process that stopped in the middle
/// of asking must not hold the others for ever.
const ATTEMPTS: u32 = 10_000;

/// The slot has another owner: this process lost its record lock (it closed all its descriptors, say).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotLost;

/// Why memory was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeRefusal {
    NoMemory,
    SlotLost,
}

/// The amount in a word, whoever owns it.
pub(crate) fn amount(word: &AtomicU64) -> u64 {
    word.load(SeqCst) & AMOUNT
}

/// An empty word of the owner with `tag`.
pub(crate) const fn empty(tag: u64) -> u64 {
    tag << AMOUNT_BITS
}

/// Adds to (or with a negative number takes from) a word of the owner with `tag`; never below zero.
pub(crate) fn change(word: &AtomicU64, tag: u64, by: i64) -> Result<(), SlotLost> {
    word.fetch_update(SeqCst, SeqCst, |old| {
        let held = old & AMOUNT;
        (old >> AMOUNT_BITS == tag).then(|| empty(tag) | held.saturating_add_signed(by).min(AMOUNT))
    })
    .map(|_| ())
    .map_err(|_| SlotLost)
}

struct MemoryTotals {
    committed: u64,
    /// Pending of slots below the asking one.
    pending_below: u64,
    /// Pending of all, the asking one included.
    pending: u64,
}

fn add_up(cells: &[HoldingState], me: usize) -> MemoryTotals {
    let mut sums = MemoryTotals { committed: 0, pending_below: 0, pending: 0 };
    for (slot, cell) in cells.iter().enumerate() {
        // Pending first: a grant adds to committed before it takes from pending, so nothing is missed on its way.
        let pending = amount(&cell.pending);
        sums.pending += pending;
        if slot < me {
            sums.pending_below += pending;
        }
        sums.committed += amount(&cell.committed);
    }
    sums
}

impl<C, H, S> CardAccount<C, H, S>
where
    C: Fn() -> &'static [HoldingState],
    H: Fn() -> u64,
{
    /// What is shared counts as committed; it is looked at last, for the same reason.
    fn add_up(&self, me: usize) -> MemoryTotals {
        let mut sums = add_up((self.cells)(), me);
        sums.committed += (self.shared)();
        sums
    }
}

/// Memory committed by all processes, in bytes.
pub(crate) fn used(cells: &[HoldingState]) -> u64 {
    cells.iter().map(|cell| amount(&cell.committed)).sum::<u64>() * GRANULE
}

/// What a taker has to know about its card.
pub(crate) struct CardAccount<C, H, S> {
    /// The card's memory in granules.
    pub(crate) total: u64,
    /// The cells of all slots used so far. Asked for again at each look: a process may join in between.
    pub(crate) cells: C,
    /// Granules that processes share.
    pub(crate) shared: H,
    /// Gives back what dead processes hold.
    pub(crate) sweep: S,
}

/// Takes `granules` for slot `me` of the owner with `tag`; sweeps before it refuses. What fits is entered by `enter`,
/// where everybody sees it.
pub(crate) fn take<C, H, S>(
    account: &CardAccount<C, H, S>,
    me: usize,
    tag: u64,
    granules: u64,
    enter: impl FnOnce() -> Result<(), SlotLost>,
) -> Result<(), TakeRefusal>
where
    C: Fn() -> &'static [HoldingState],
    H: Fn() -> u64,
    S: Fn(),
{
    let amount_signed = i64::try_from(granules).unwrap_or(i64::MAX);
    let lost = |_: SlotLost| TakeRefusal::SlotLost;
    if granules > account.total {
        return Err(TakeRefusal::NoMemory);
    }
    let cell = &(account.cells)()[me];
    for attempt in 0..ATTEMPTS {
        change(&cell.pending, tag, amount_signed).map_err(lost)?;
        if wait_for_verdict(account, me, granules) {
            // A kill between these two counts the memory twice until the next sweep, which forgets both.
            let entered = enter();
            change(&cell.pending, tag, -amount_signed).map_err(lost)?;
            return entered.map_err(lost);
        }
        change(&cell.pending, tag, -amount_signed).map_err(lost)?;
        if attempt == 0 {
            (account.sweep)();
            continue;
        }
        if account.add_up(me).committed + granules > account.total {
            return Err(TakeRefusal::NoMemory);
        }
        std::thread::yield_now();
    }
    Err(TakeRefusal::NoMemory)
}

/// Whether what is pending in slot `me` fits. While only requests from higher slots stand in the way, waits for them
/// to step back.
fn wait_for_verdict<C, H, S>(account: &CardAccount<C, H, S>, me: usize, granules: u64) -> bool
where
    C: Fn() -> &'static [HoldingState],
    H: Fn() -> u64,
{
    for _ in 0..ATTEMPTS {
        let sums = account.add_up(me);
        if sums.committed + sums.pending <= account.total {
            return true;
        }
        if sums.committed + sums.pending_below + granules > account.total {
            return false;
        }
        std::thread::yield_now();
    }
    false
}

/// Gives `granules` back.
pub(crate) fn give(cell: &HoldingState, tag: u64, granules: u64) {
    // A lost slot was emptied by its next owner: there is nothing left to give.
    let _ = change(&cell.committed, tag, -i64::try_from(granules).unwrap_or(i64::MAX));
}

/// The words of one cell as they were before its owner was found dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldingSnapshot([u64; 3]);

/// Reads a cell. Must come before the question whether its owner lives; see [`forget`].
pub(crate) fn snapshot(cell: &HoldingState) -> HoldingSnapshot {
    HoldingSnapshot([cell.committed.load(SeqCst), cell.pending.load(SeqCst), cell.contexts.load(SeqCst)])
}

impl HoldingSnapshot {
    /// Whether there is anything to give back.
    pub(crate) fn is_empty(self) -> bool {
        self.0.iter().all(|word| word & AMOUNT == 0)
    }
}

/// Empties the words of a dead owner. What changed since [`snapshot`] belongs to the slot's next owner and stays.
pub(crate) fn forget(cell: &HoldingState, seen: HoldingSnapshot) {
    for (word, old) in [&cell.committed, &cell.pending, &cell.contexts].into_iter().zip(seen.0) {
        let _ = word.compare_exchange(old, old & !AMOUNT, SeqCst, SeqCst);
    }
}

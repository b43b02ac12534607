//! The process's allocations: what every pointer belongs to.

use std::{
    collections::BTreeMap,
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    arena::Arena,
    driver::ready,
    error::{CuError, Res},
    handles::Handle,
    sync::{read, write},
};

/// What kind of memory an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Plain device memory.
    Device,
    /// Managed memory.
    Managed,
    /// Page-locked memory of the host, made by the driver.
    Host,
    /// Memory of the program's that it had page-locked.
    Registered,
    /// Device memory of a pool, which is charged for it.
    Pooled(Handle),
    /// A variable of a module.
    Variable,
}

impl Kind {
    /// Whether it lies on the card.
    pub(crate) const fn on_device(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Pooled(_) | Self::Variable)
    }

    const fn charged(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Variable)
    }
}

/// Who an allocation belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) context: Handle,
    /// CUDA ordinal.
    pub(crate) device: i32,
    /// Index of the card in the machine.
    pub(crate) card: usize,
}

/// One allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    /// Bytes asked for.
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    /// Flags it was made with.
    pub(crate) flags: u32,
    /// Never used twice in a process.
    pub(crate) id: u64,
}

#[derive(Debug)]
struct Space {
    arena: Arena,
    live: BTreeMap<u64, Allocation>,
}

static SPACE: RwLock<Space> = RwLock::new(Space { arena: Arena::new(), live: BTreeMap::new() });
static IDS: AtomicU64 = AtomicU64::new(1);

impl Space {
    /// The allocation that `address` lies in.
    fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.live.range(..=address).next_back()?;
        (address - allocation.base < allocation.size).then_some(allocation)
    }
}

impl Allocation {
    /// Whether `bytes` from `address` on lie in it.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_sub(self.base)
            .and_then(|offset| offset.checked_add(bytes))
            .is_some_and(|end| end <= self.size)
    }
}

/// Makes an allocation of `size` bytes, charged to the card if it is of a kind that is.
pub(crate) fn allocate(kind: Kind, size: u64, owner: Owner, flags: u32) -> Res<u64> {
    if size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let process = ready()?.process()?;
    if kind.charged() {
        process.take_memory(owner.card, size)?;
    }
    let mut space = write(&SPACE);
    let Some(base) = space.arena.allocate(size) else {
        drop(space);
        if kind.charged() {
            process.give_memory(owner.card, size);
        }
        return Err(CuError::OUT_OF_MEMORY);
    };
    space.live.insert(base, Allocation { base, size, kind, owner, flags, id: IDS.fetch_add(1, Relaxed) });
    Ok(base)
}

/// Enters memory of the program's; fails when some of it is entered already.
pub(crate) fn register(base: u64, size: u64, owner: Owner, flags: u32) -> Res {
    let end = base.checked_add(size).filter(|_| base != 0 && size != 0).ok_or(CuError::INVALID_VALUE)?;
    let mut space = write(&SPACE);
    let overlaps = space.live.range(..end).next_back().is_some_and(|(_, last)| last.base + last.size > base);
    if overlaps {
        return Err(CuError::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let id = IDS.fetch_add(1, Relaxed);
    space.live.insert(base, Allocation { base, size, kind: Kind::Registered, owner, flags, id });
    Ok(())
}

/// Ends the allocation that begins at `base`, if it is one that `fits`; gives what it was.
pub(crate) fn release(base: u64, fits: impl Fn(&Allocation) -> bool) -> Option<Allocation> {
    let mut space = write(&SPACE);
    let allocation = *space.live.get(&base).filter(|allocation| fits(allocation))?;
    space.live.remove(&base);
    if allocation.kind != Kind::Registered {
        space.arena.free(base, allocation.size);
    }
    drop(space);
    if allocation.kind.charged()
        && let Ok(process) = ready().and_then(super::driver::Ready::process)
    {
        process.give_memory(allocation.owner.card, allocation.size);
    }
    Some(allocation)
}

/// Ends every allocation that `gone` says is gone; gives what they were.
pub(crate) fn release_all(gone: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
    let bases: Vec<_> =
        read(&SPACE).live.values().filter(|allocation| gone(allocation)).map(|one| one.base).collect();
    bases.into_iter().filter_map(|base| release(base, &gone)).collect()
}

/// The allocation that `address` lies in.
pub(crate) fn find(address: u64) -> Option<Allocation> {
    read(&SPACE).find(address).copied()
}

/// What a pointer in a copy is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Memory that the driver knows.
    Device(u64),
    /// The program's own memory.
    Host(u64),
    /// Either: found out by the address.
    Any(u64),
}

impl Side {
    /// The same side, `bytes` further on.
    pub(crate) const fn offset(self, bytes: u64) -> Self {
        match self {
            Self::Device(address) => Self::Device(address.wrapping_add(bytes)),
            Self::Host(address) => Self::Host(address.wrapping_add(bytes)),
            Self::Any(address) => Self::Any(address.wrapping_add(bytes)),
        }
    }

    /// The address, if `bytes` from there on may be touched.
    fn checked(self, space: &Space, bytes: u64) -> Res<usize> {
        let (address, host_allowed) = match self {
            Self::Device(address) => (address, false),
            Self::Host(address) | Self::Any(address) => (address, true),
        };
        let valid = match space.find(address) {
            // Registered memory may be part of a larger buffer of the program's.
            Some(found) if found.kind == Kind::Registered && host_allowed => true,
            Some(found) => found.holds(address, bytes),
            None => host_allowed && address != 0 && !space.arena.covers(address),
        };
        usize::try_from(address).ok().filter(|_| valid).ok_or(CuError::INVALID_VALUE)
    }
}

/// A rectangular copy: `rows` rows of `width` bytes, that many bytes apart on each side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) width: u64,
    pub(crate) rows: u64,
    pub(crate) to_pitch: u64,
    pub(crate) from_pitch: u64,
}

/// A rectangular fill with a pattern of 1, 2 or 4 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) pattern: [u8; 4],
    /// Bytes of the pattern.
    pub(crate) unit: u64,
    /// Patterns in a row.
    pub(crate) count: u64,
    pub(crate) rows: u64,
    pub(crate) pitch: u64,
}

impl Copy {
    /// A copy of `bytes` in a row.
    pub(crate) const fn plain(to: Side, from: Side, bytes: u64) -> Self {
        Self { to, from, width: bytes, rows: 1, to_pitch: 0, from_pitch: 0 }
    }

    fn each_row(&self, mut row: impl FnMut(Side, Side) -> Res) -> Res {
        for number in 0..self.rows {
            row(
                self.to.offset(number.wrapping_mul(self.to_pitch)),
                self.from.offset(number.wrapping_mul(self.from_pitch)),
            )?;
        }
        Ok(())
    }

    /// Fails with `CUDA_ERROR_INVALID_VALUE` where it would touch what is not the program's to touch.
    pub(crate) fn check(&self) -> Res {
        self.check_in(&read(&SPACE))
    }

    fn check_in(&self, space: &Space) -> Res {
        if self.width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            to.checked(space, self.width)?;
            from.checked(space, self.width).map(|_| ())
        })
    }

    /// Moves the bytes. All or nothing: every row is checked before the first byte moves.
    pub(crate) fn run(&self) -> Res {
        // The lock is held throughout: nobody frees what is being copied.
        let space = read(&SPACE);
        self.check_in(&space)?;
        let width = usize::try_from(self.width).map_err(|_| CuError::INVALID_VALUE)?;
        if width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            let (to, from) = (to.checked(&space, self.width)?, from.checked(&space, self.width)?);
            // SAFETY: what the driver knows was checked; the program vouches for its own memory.
            unsafe {
                std::ptr::copy(
                    std::ptr::with_exposed_provenance::<u8>(from),
                    std::ptr::with_exposed_provenance_mut::<u8>(to),
                    width,
                );
            }
            Ok(())
        })
    }
}

impl Fill {
    /// Fails with `CUDA_ERROR_INVALID_VALUE` where it would touch what is not the program's to touch.
    pub(crate) fn check(&self) -> Res {
        self.check_in(&read(&SPACE))
    }

    fn check_in(&self, space: &Space) -> Res {
        let width = self.count.checked_mul(self.unit).ok_or(CuError::INVALID_VALUE)?;
        if !self.to.is_multiple_of(self.unit) || (self.rows > 1 && self.pitch < width) {
            return Err(CuError::INVALID_VALUE);
        }
        for row in 0..if width == 0 { 0 } else { self.rows } {
            Side::Device(self.to).offset(row.wrapping_mul(self.pitch)).checked(space, width)?;
        }
        Ok(())
    }

    /// Writes the pattern. All or nothing, as in [`Copy::run`].
    pub(crate) fn run(&self) -> Res {
        let space = read(&SPACE);
        self.check_in(&space)?;
        let width = usize::try_from(self.count * self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let unit = usize::try_from(self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let pattern = &self.pattern[..unit];
        for row in 0..if width == 0 { 0 } else { self.rows } {
            let to =
                Side::Device(self.to).offset(row.wrapping_mul(self.pitch)).checked(&space, width as u64)?;
            // SAFETY: checked right above, and the lock keeps it so.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(to), width) };
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                bytes.fill(pattern[0]);
            } else {
                bytes.chunks_exact_mut(unit).for_each(|place: &mut [u8]| place.copy_from_slice(pattern));
            }
        }
        Ok(())
    }
}

//! Moving and filling bytes: what a program may touch, and how.

use crate::{
    error::{CuError, Res},
    memory::space::{Kind, SPACE, Space},
    sync::read,
};

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

    /// The address, if `bytes` from there on may be read, or written where `writes`: now, or when a recording runs.
    fn checked(self, space: &Space, bytes: u64, writes: bool, when: When) -> Res<usize> {
        let (address, host_allowed) = match self {
            Self::Device(address) => (address, false),
            Self::Host(address) | Self::Any(address) => (address, true),
        };
        let valid = match space.find(address) {
            // Registered memory may be part of a larger buffer of the program's.
            Some(found) if found.kind == Kind::Registered && host_allowed => true,
            Some(found) => found.holds(address, bytes) && found.allows(writes),
            None if when == When::Later && space.is_held(address, bytes) => true,
            None => host_allowed && address != 0 && !space.covers(address),
        };
        usize::try_from(address).ok().filter(|_| valid).ok_or(CuError::INVALID_VALUE)
    }
}

/// When bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// At once: memory must be there.
    Now,
    /// Perhaps as part of a graph: memory that a graph is going to allocate will be there.
    Later,
}

/// Where a copy begins on one side, and how far apart its rows and slices are there in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Box3 {
    pub(crate) start: Side,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// A copy of `slices` times `rows` rows of `width` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: Box3,
    pub(crate) from: Box3,
    pub(crate) width: u64,
    pub(crate) rows: u64,
    pub(crate) slices: u64,
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

impl Box3 {
    /// A single row.
    const fn row_at(start: Side) -> Self {
        Self { start, pitch: 0, slice: 0 }
    }

    fn row(&self, slice: u64, row: u64) -> Side {
        self.start.offset(slice.wrapping_mul(self.slice).wrapping_add(row.wrapping_mul(self.pitch)))
    }
}

impl Copy {
    /// A copy of `bytes` in a row.
    pub(crate) const fn plain(to: Side, from: Side, bytes: u64) -> Self {
        Self { to: Box3::row_at(to), from: Box3::row_at(from), width: bytes, rows: 1, slices: 1 }
    }

    fn each_row(&self, mut row: impl FnMut(Side, Side) -> Res) -> Res {
        for slice in 0..self.slices {
            for number in 0..self.rows {
                row(self.to.row(slice, number), self.from.row(slice, number))?;
            }
        }
        Ok(())
    }

    /// Fails with `CUDA_ERROR_INVALID_VALUE` where it would touch what is not the program's to touch.
    pub(crate) fn check(&self) -> Res {
        self.check_in(&read(&SPACE), When::Later)
    }

    fn check_in(&self, space: &Space, when: When) -> Res {
        if self.width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            to.checked(space, self.width, true, when)?;
            from.checked(space, self.width, false, when).map(|_| ())
        })
    }

    /// Moves the bytes. All or nothing: every row is checked before the first byte moves.
    pub(crate) fn run(&self) -> Res {
        // The lock is held throughout: nobody frees what is being copied.
        let space = read(&SPACE);
        self.check_in(&space, When::Now)?;
        let width = usize::try_from(self.width).map_err(|_| CuError::INVALID_VALUE)?;
        if width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            let (to, from) = (
                to.checked(&space, self.width, true, When::Now)?,
                from.checked(&space, self.width, false, When::Now)?,
            );
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
        self.check_in(&read(&SPACE), When::Later)
    }

    fn check_in(&self, space: &Space, when: When) -> Res {
        let width = self.count.checked_mul(self.unit).ok_or(CuError::INVALID_VALUE)?;
        if !self.to.is_multiple_of(self.unit) || (self.rows > 1 && self.pitch < width) {
            return Err(CuError::INVALID_VALUE);
        }
        for row in 0..if width == 0 { 0 } else { self.rows } {
            Side::Device(self.to).offset(row.wrapping_mul(self.pitch)).checked(space, width, true, when)?;
        }
        Ok(())
    }

    /// Writes the pattern. All or nothing, as in [`Copy::run`].
    pub(crate) fn run(&self) -> Res {
        let space = read(&SPACE);
        self.check_in(&space, When::Now)?;
        let width = usize::try_from(self.count * self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let unit = usize::try_from(self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let pattern = &self.pattern[..unit];
        for row in 0..if width == 0 { 0 } else { self.rows } {
            let to = Side::Device(self.to).offset(row.wrapping_mul(self.pitch)).checked(
                &space,
                width as u64,
                true,
                When::Now,
            )?;
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

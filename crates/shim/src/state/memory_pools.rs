//! The memory pools of this process and what each is charged.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::lock::Lock;

/// Most pools that are counted; memory of pools beyond is charged by what was asked for.
const MOST: usize = 64;

/// A memory pool of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPool {
    /// 0 for a free place.
    pub(crate) handle: usize,
    /// Bytes charged for it.
    pub(crate) charged: u64,
    /// Its memory is the host's, which is not charged.
    pub(crate) on_host: bool,
}

impl MemoryPool {
    /// A free place.
    pub(crate) const FREE: Self = Self { handle: 0, charged: 0, on_host: false };
}

/// The pools of this process.
#[derive(Debug)]
pub(crate) struct MemoryPools {
    /// Places in use; 0 keeps every other call from looking.
    pub(crate) used: AtomicU32,
    /// By place.
    pub(crate) list: Lock<[MemoryPool; MOST]>,
}

impl MemoryPools {
    /// No pools.
    pub(crate) const fn new() -> Self {
        Self { used: AtomicU32::new(0), list: Lock::new([MemoryPool::FREE; MOST]) }
    }

    /// The place of a pool, a new one if it was not known.
    pub(crate) fn place(&self, handle: usize, on_host: Option<bool>) -> Option<usize> {
        let mut list = self.list.lock();
        let known = list.iter().position(|pool| pool.handle == handle);
        let place = known.or_else(|| list.iter().position(|pool| pool.handle == 0))?;
        let pool = list.get_mut(place)?;
        if known.is_none() {
            *pool = MemoryPool { handle, ..MemoryPool::FREE };
            self.used.fetch_add(1, Ordering::Release);
        }
        pool.on_host = on_host.unwrap_or(pool.on_host);
        Some(place)
    }

    /// Whether the pool at a place has its memory on the host.
    pub(crate) fn is_on_host(&self, place: usize) -> bool {
        self.list.lock().get(place).is_some_and(|pool| pool.on_host)
    }

    /// Whether there is any pool.
    pub(crate) fn any(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }
}

//! Telling a forked child from the process it came from.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A word that the kernel wipes in a forked child: whatever was set up before the fork is not the child's.
#[derive(Debug, Clone, Copy)]
pub struct ForkMark(Option<&'static AtomicU32>);

impl ForkMark {
    /// Marks the calling process. Where the kernel can't wipe pages on fork (before Linux 4.14) the mark holds in
    /// children too.
    pub fn here() -> Self {
        // SAFETY: a fresh anonymous mapping of one page, nobody else's.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Self(None);
        }
        // SAFETY: the page was mapped above and is never unmapped.
        let word = unsafe {
            libc::madvise(page, 4096, libc::MADV_WIPEONFORK);
            &*page.cast::<AtomicU32>()
        };
        word.store(1, Relaxed);
        Self(Some(word))
    }

    /// Whether the caller runs in the process that was marked.
    pub fn holds(&self) -> bool {
        self.0.is_none_or(|word| word.load(Relaxed) == 1)
    }
}

//! Opening, making and checking the state file.

use std::{
    ffi::{CString, c_void},
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, IntoRawFd, RawFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{OpenOptionsExt, PermissionsExt},
        },
    },
    path::Path,
    sync::{Mutex, OnceLock},
};

use crate::{
    error::Error,
    layout::{self, CardState, Header, LAYOUT, MAGIC, MAX_CARDS},
    locks,
    model::MODELS,
    settings::MachineSettings,
};

/// A mapped state file and the descriptor that must never be closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateFile {
    pub(crate) fd: RawFd,
    pub(crate) base: *const c_void,
    pub(crate) shared: &'static SharedFile,
}

/// The file beside it that has the bytes of segments, opened when it is first needed.
#[derive(Debug)]
pub(crate) struct SharedFile {
    pub(crate) path: CString,
    mode: u32,
    fd: OnceLock<RawFd>,
    /// For the threads of this process, to whom the file's own lock is one and the same.
    pub(crate) threads: Mutex<()>,
}

impl SharedFile {
    /// Its descriptor; `None` where there can be no such file.
    pub(crate) fn open(&self) -> Option<RawFd> {
        if let Some(&fd) = self.fd.get() {
            return Some(fd);
        }
        let opened = locks::open(&self.path, self.mode)?;
        let fd = *self.fd.get_or_init(|| opened);
        if fd != opened {
            // SAFETY: another thread was first, and nobody knows this one.
            unsafe { libc::close(opened) };
        }
        Some(fd)
    }
}

/// Opens the file, making it if there is none.
pub(crate) fn open_or_create(settings: &MachineSettings) -> Result<StateFile, Error> {
    let path = &settings.path;
    let io_error = |action| move |source| Error::Io { action, path: path.clone(), source };
    // It can only be missing, or be removed in between, a few times in a row.
    for _ in 0..16 {
        match OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path) {
            Ok(file) => return map(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("open")(error)),
        }
        let made = unnamed(path).map_err(io_error("create"))?;
        fill(&made, settings).map_err(io_error("fill"))?;
        match link(&made, path) {
            // The very descriptor is used on: closing it would be closing a descriptor of the state file.
            Ok(()) => {
                let made = map(made, path)?;
                // Its maker may be the only one who may make files here; where it can't, nobody shares memory.
                let _ = made.shared.open();
                return Ok(made);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error("create")(error)),
        }
    }
    Err(io_error("create")(io::Error::from(io::ErrorKind::AlreadyExists)))
}

/// A file without a name in the directory of `path`: a crash leaves nothing behind.
fn unnamed(path: &Path) -> io::Result<File> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).open(directory)
}

/// Writes header and cards; everything else starts as zeros.
fn fill(file: &File, settings: &MachineSettings) -> io::Result<()> {
    let cards = &settings.cards;
    let size = layout::file_size(cards.len());
    file.set_len(size as u64)?;
    file.set_permissions(std::fs::Permissions::from_mode(if settings.open_to_all { 0o666 } else { 0o600 }))?;
    let base = map_bytes(file, size)?;
    // SAFETY: the mapping is `size` bytes long, page aligned, and known to nobody else yet.
    unsafe {
        let header = base.cast::<Header>();
        (&raw mut (*header).magic).write(MAGIC);
        (&raw mut (*header).layout).write(LAYOUT);
        (&raw mut (*header).cards).write(u32::try_from(cards.len()).unwrap_or_default());
        (&raw mut (*header).size).write(size as u64);
        let first = base.byte_add(layout::cards_offset()).cast::<CardState>();
        for (index, model) in cards.iter().enumerate() {
            let number = MODELS.iter().position(|known| known.key == model.key).unwrap_or_default();
            (&raw mut (*first.add(index)).model).write(u32::try_from(number).unwrap_or_default());
        }
        libc::munmap(base, size);
    }
    Ok(())
}

/// Gives the file its name, unless the name is taken.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with a zero byte.
    let result = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks and maps an open file. From here on its descriptor is never closed, not even when the file is refused:
/// another copy of this code in the process may hold locks through it.
fn map(file: File, path: &Path) -> Result<StateFile, Error> {
    let found = file.metadata().map(|data| (data.len(), data.permissions().mode() & 0o666));
    let fd = file.into_raw_fd();
    let (found, mode) =
        found.map_err(|source| Error::Io { action: "examine", path: path.to_owned(), source })?;
    let not_a_state_file = || Error::NotAStateFile { path: path.to_owned() };
    let mut start = [0_u8; 24];
    // SAFETY: the buffer is as long as said.
    let read = unsafe { libc::pread(fd, start.as_mut_ptr().cast(), start.len(), 0) };
    if read != 24 || start[..8] != MAGIC.to_ne_bytes() {
        return Err(not_a_state_file());
    }
    let word = |at: usize| u32::from_ne_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let (layout, cards) = (word(8), word(12) as usize);
    if layout != LAYOUT {
        return Err(Error::OtherLayout { path: path.to_owned(), found: layout, wanted: LAYOUT });
    }
    if cards == 0 || cards > MAX_CARDS {
        return Err(not_a_state_file());
    }
    let wanted = layout::file_size(cards);
    if found < wanted as u64 {
        return Err(Error::Truncated { path: path.to_owned(), found, wanted: wanted as u64 });
    }
    let base =
        map_fd(fd, wanted).map_err(|source| Error::Io { action: "map", path: path.to_owned(), source })?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".shared");
    let shared = CString::new(beside.into_vec()).map_err(|_| not_a_state_file())?;
    let shared = SharedFile { path: shared, mode, fd: OnceLock::new(), threads: Mutex::new(()) };
    // A machine stays open until the process ends, and so does what it knows.
    Ok(StateFile { fd, base, shared: Box::leak(Box::new(shared)) })
}

fn map_bytes(file: &File, size: usize) -> io::Result<*mut c_void> {
    map_fd(file.as_raw_fd(), size)
}

fn map_fd(fd: RawFd, size: usize) -> io::Result<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base) }
}

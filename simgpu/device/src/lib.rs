//! The simulated cards: their state in memory shared by every process of the machine.
//!
//! This room knows what a card is, who holds how much of its memory, and when its work ends. It must not know CUDA or
//! NVML: `simgpu-cuda` and `simgpu-nvml` translate their calls into the words used here.
//!
//! The ground rules, which everything here obeys:
//!
//! - Any process may be killed at any instruction. Nothing is held across processes: no mutex lives in the shared
//!   file, and every step is one atomic operation on a word that names its owner. Where that is not enough (memory that
//!   processes share) there is a record lock, which the kernel drops with its owner, and every step can be gone on from.
//! - A process is alive as long as its POSIX record lock on the state file stands. The kernel drops the lock when
//!   the process dies, and tells its pid in the reader's own namespace.
//! - Closing *any* descriptor of the state file would drop the locks of the whole process, so once opened it is never
//!   closed: a [`Machine`] has no `Drop`, and `libcuda` and `libnvidia-ml` may each open one in the same process.
//!
//! ```no_run
//! use simgpu_device::Machine;
//!
//! let machine = Machine::open_from_env()?;
//! for card in machine.cards() {
//!     println!("{} {} {} of {} bytes", card.index(), card.uuid(), card.used_memory(), card.total_memory());
//!     for process in card.processes() {
//!         println!("  pid {:?}: {} bytes, {} %", process.pid, process.memory, process.utilisation);
//!     }
//! }
//! # Ok::<(), simgpu_device::Error>(())
//! ```

mod process;

mod card;

mod reclaim;

mod segment;

mod machine;

mod state_file;

mod memory;
mod settings;
mod time;

mod faults;
mod layout;
mod locks;

mod busy;
mod error;
mod fork;
mod identity;
mod model;

pub use busy::WINDOW_NS;
pub use card::{Card, ProcessUse};
pub use error::Error;
pub use faults::{Fault, Faults, parse_duration};
pub use fork::ForkMark;
pub use identity::{PciAddress, Uuid};
pub use layout::{MAX_CARDS, MAX_PROCESSES};
pub use machine::Machine;
pub use memory::{GRANULE, round_up};
pub use model::{MODELS, Model};
pub use process::{Process, TakeError};
pub use segment::{Segment, SegmentCharge};
pub use settings::MachineSettings;
pub use time::{Booking, now_ns, sleep_until};

//! Any sequence of allocations and frees, of every family, against a model: the card has what the sum of the live
//! ones says, refuses what would pass its end and nothing else, and has all of it back when a process is killed.

use simgpu_device::{Card, Machine};

use crate::{
    api::{Handle, OUT_OF_MEMORY, SUCCESS, cu, get, start},
    calls::{Access, Array3, Properties},
    runner::{Peer, Scenario, eventually, given, role, say},
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "the_card_has_what_a_model_says_after_every_step", env: SMALL, run: steps },
    Scenario { name: "a_killed_process_leaves_nothing_whatever_it_did", env: SMALL, run: killed },
];

const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];
const PIECE: u64 = 2 << 20;
const CODE: &std::ffi::CStr = c".version 8.0 .target sm_75 .address_size 64 .visible .entry empty() { ret; }";

/// Marsaglia's xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Something live: what it takes of the card, and how it ends.
struct Live {
    bytes: u64,
    end: Box<dyn FnOnce()>,
}

/// What a family takes for a size, and how it is made: how that ends, or a code.
type Made = (u64, Box<dyn FnOnce() -> Result<Box<dyn FnOnce()>, i32>>);
type Family = fn(u64) -> Made;

fn made(code: i32, end: impl FnOnce() -> i32 + 'static) -> Result<Box<dyn FnOnce()>, i32> {
    if code != SUCCESS {
        return Err(code);
    }
    Ok(Box::new(move || assert_eq!(end(), SUCCESS)))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn plain(wanted: u64) -> Made {
    let make = move || {
        let mut pointer = 0;
        made(cu!(cuMemAlloc_v2(&raw mut pointer, size(wanted))), move || cu!(cuMemFree_v2(pointer)))
    };
    (wanted.next_multiple_of(512), Box::new(make))
}

fn managed(wanted: u64) -> Made {
    let make = move || {
        let mut pointer = 0;
        made(cu!(cuMemAllocManaged(&raw mut pointer, size(wanted), 1)), move || cu!(cuMemFree_v2(pointer)))
    };
    (wanted.next_multiple_of(512), Box::new(make))
}

/// Rows of 4096 bytes, so that only the whole is rounded up.
fn array(wanted: u64) -> Made {
    let rows = wanted.div_ceil(4096).clamp(1, 65_536).next_multiple_of(16);
    let make = move || {
        let shape = Array3 { width: 1024, height: size(rows), depth: 0, format: 0x20, channels: 1, flags: 0 };
        let mut array = 0;
        made(cu!(cuArray3DCreate_v2(&raw mut array, &raw const shape)), move || cu!(cuArrayDestroy(array)))
    };
    (rows * 4096, Box::new(make))
}

fn physical(wanted: u64, handle_types: u32) -> Result<Handle, i32> {
    let properties = Properties { allocation: 1, handle_types, location: 1, ..Properties::default() };
    let mut handle = 0;
    match cu!(cuMemCreate(&raw mut handle, size(wanted), &raw const properties, 0)) {
        SUCCESS => Ok(handle),
        code => Err(code),
    }
}

/// The mapping alone holds the memory.
fn mapped(wanted: u64) -> Made {
    let wanted = wanted.next_multiple_of(PIECE);
    let make = move || {
        let handle = physical(wanted, 0)?;
        let length = size(wanted);
        let place: u64 = get!(cuMemAddressReserve(length, 0, 0, 0));
        let access = Access { location: 1, location_id: 0, flags: 3 };
        assert_eq!(cu!(cuMemMap(place, length, 0, handle, 0)), SUCCESS);
        assert_eq!(cu!(cuMemSetAccess(place, length, &raw const access, 1)), SUCCESS);
        assert_eq!(cu!(cuMemRelease(handle)), SUCCESS);
        made(SUCCESS, move || cu!(cuMemUnmap(place, length)) | cu!(cuMemAddressFree(place, length)))
    };
    (wanted, Box::new(make))
}

fn exportable(wanted: u64) -> Made {
    let wanted = wanted.next_multiple_of(PIECE);
    let make = move || {
        let handle = physical(wanted, 1)?;
        made(SUCCESS, move || cu!(cuMemRelease(handle)))
    };
    (wanted, Box::new(make))
}

/// An open descriptor alone holds the memory.
fn exported(wanted: u64) -> Made {
    let wanted = wanted.next_multiple_of(PIECE);
    let make = move || {
        let handle = physical(wanted, 1)?;
        let descriptor: i32 = get!(cuMemExportToShareableHandle(handle, 1, 0));
        assert_eq!(cu!(cuMemRelease(handle)), SUCCESS);
        // SAFETY: the descriptor is ours.
        made(SUCCESS, move || unsafe { libc::close(descriptor) })
    };
    (wanted, Box::new(make))
}

/// Made known to other processes, which moves its bytes and changes nothing else.
fn shared(wanted: u64) -> Made {
    let make = move || {
        let mut pointer = 0;
        let code = cu!(cuMemAlloc_v2(&raw mut pointer, size(wanted)));
        if code == SUCCESS {
            let _token: crate::calls::Opaque = get!(cuIpcGetMemHandle(pointer));
        }
        made(code, move || cu!(cuMemFree_v2(pointer)))
    };
    (wanted.next_multiple_of(512), Box::new(make))
}

fn code(_wanted: u64) -> Made {
    let make = || {
        let mut module = 0;
        made(cu!(cuModuleLoadData(&raw mut module, CODE.as_ptr().cast())), move || {
            cu!(cuModuleUnload(module))
        })
    };
    (65536, Box::new(make))
}

fn context(_wanted: u64) -> Made {
    let make = || {
        let mut context = 0;
        let code = cu!(cuCtxCreate_v2(&raw mut context, 0, 0));
        if code == SUCCESS {
            assert_eq!(get!(cuCtxPopCurrent_v2()), context);
        }
        made(code, move || cu!(cuCtxDestroy_v2(context)))
    };
    (card().model().context_memory, Box::new(make))
}

const FAMILIES: &[(&str, Family)] = &[
    ("plain", plain),
    ("managed", managed),
    ("array", array),
    ("mapped", mapped),
    ("exportable", exportable),
    ("exported", exported),
    ("shared", shared),
    ("code", code),
    ("context", context),
];

fn card() -> Card {
    static MACHINE: std::sync::LazyLock<Machine> =
        std::sync::LazyLock::new(|| Machine::open_from_env().unwrap());
    MACHINE.card(0).unwrap()
}

/// One random step. The bytes of all that is live, before and after.
fn step(random: &mut Random, live: &mut Vec<Live>, used: u64) -> u64 {
    let frees = !live.is_empty() && random.below(5) < 2;
    if frees {
        let one = live.swap_remove(size(random.below(live.len() as u64)));
        (one.end)();
        return used - one.bytes;
    }
    let (name, family) = FAMILIES[size(random.below(FAMILIES.len() as u64))];
    let magnitude = 8 + random.below(22);
    let wanted = 1 + random.below(1 << magnitude);
    let (bytes, make) = family(wanted);
    match make() {
        Ok(end) => {
            live.push(Live { bytes, end });
            used + bytes
        }
        Err(answer) => {
            let room = card().total_memory() - used;
            assert!(answer == OUT_OF_MEMORY && bytes > room, "{name} of {wanted}: {answer}, room for {room}");
            used
        }
    }
}

fn steps() {
    let _context = start();
    let empty = card().used_memory();
    for seed in 1..=8_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut live, mut used) = (Vec::new(), empty);
        for number in 0..250 {
            used = step(&mut random, &mut live, used);
            assert_eq!(card().used_memory(), used, "seed {seed}, step {number}");
        }
        for one in live {
            (one.end)();
        }
        assert_eq!(card().used_memory(), empty, "seed {seed}");
    }
}

fn killed() {
    if role() == "worker" {
        let _context = start();
        let mut random = Random(given("SEED").parse().unwrap());
        let mut live = Vec::new();
        say("begun");
        loop {
            // What others have is unknown here: a refusal proves nothing.
            let (_, family) = FAMILIES[size(random.below(FAMILIES.len() as u64))];
            if live.len() > 30 {
                let one: Box<dyn FnOnce()> = live.swap_remove(size(random.below(30)));
                one();
            }
            live.extend((family(1 + random.below(1 << 24)).1)().ok());
        }
    }
    for round in 0..6_u64 {
        let mut workers: Vec<_> = (1..=3)
            .map(|worker| Peer::start("worker", &[("SEED", &(round * 77 + worker).to_string())]))
            .collect();
        for worker in &mut workers {
            worker.expect("begun");
        }
        eventually("they have something", || card().used_memory() > 1 << 30);
        workers.into_iter().for_each(Peer::kill);
        assert_eq!(card().used_memory(), 0, "round {round}");
        assert!(card().processes().is_empty());
    }
}

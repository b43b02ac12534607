//! Reserved addresses and the physical memory mapped there.

use crate::{
    api::{
        Handle, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, cu, get, memory_info,
        read, start,
    },
    calls::{Access, Properties},
    runner::{Peer, Scenario, given, pause, role, say},
};

const PIECE: usize = 2 << 20;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "mapped_memory_is_one_range_of_bytes", env: &[], run: mapped },
    Scenario { name: "physical_memory_goes_with_its_last_handle_and_mapping", env: SMALL, run: counted },
    Scenario { name: "wrong_ranges_and_handles_are_refused", env: &[], run: wrong },
    Scenario {
        name: "exported_memory_is_the_same_in_every_process_and_counts_once",
        env: SMALL,
        run: exported,
    },
    Scenario { name: "an_exported_descriptor_keeps_the_memory", env: SMALL, run: descriptor },
];

const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "2xSim-4GB")];
const DESCRIPTOR: u32 = 1;

const fn properties(handle_types: u32) -> Properties {
    Properties { allocation: 1, handle_types, location: 1, location_id: 0, rest: [0; 2] }
}

fn create(size: usize, handle_types: u32) -> Handle {
    get!(cuMemCreate(size, &properties(handle_types), 0))
}

fn reserve(size: usize) -> u64 {
    get!(cuMemAddressReserve(size, 0, 0, 0))
}

fn access(start: u64, size: usize, flags: u32) -> i32 {
    let list = [Access { location: 1, location_id: 0, flags }];
    cu!(cuMemSetAccess(start, size, list.as_ptr(), 1))
}

fn accessible(pointer: u64) -> u64 {
    get!(cuMemGetAccess(&[1, 0], pointer))
}

fn mapped() {
    let _context = start();
    let (free, _) = memory_info();
    let place = reserve(8 * PIECE);
    assert_eq!((memory_info().0, place % PIECE as u64), (free, 0), "addresses cost nothing");
    let aligned: u64 = get!(cuMemAddressReserve(PIECE, 1 << 30, 0, 0));
    assert_eq!(aligned % (1 << 30), 0);
    let (first, second) = (create(PIECE, 0), create(3 * PIECE, 0));
    assert_eq!(memory_info().0, free - 4 * PIECE);
    assert_eq!(cu!(cuMemMap(place, PIECE, 0, first, 0)), SUCCESS);
    assert_eq!(cu!(cuMemMap(place + PIECE as u64, 3 * PIECE, 0, second, 0)), SUCCESS);
    // Nothing may touch it until access was given.
    assert_eq!((accessible(place), cu!(cuMemsetD8_v2(place, 1, 1))), (0, INVALID_VALUE));
    assert_eq!(access(place, 4 * PIECE, 3), SUCCESS);
    assert_eq!(accessible(place + 3 * PIECE as u64), 3);
    assert_eq!(cu!(cuMemsetD8_v2(place + 5, 7, 100)), SUCCESS);
    assert_eq!(read(place, 8), [0, 0, 0, 0, 0, 7, 7, 7]);
    assert_eq!(access(place, PIECE, 1), SUCCESS);
    assert_eq!(cu!(cuMemsetD8_v2(place, 1, 1)), INVALID_VALUE, "read only");
    assert_eq!(read(place + 5, 1), [7]);
    // The same memory at a second place has the same bytes.
    let other = reserve(PIECE);
    assert_eq!(cu!(cuMemMap(other, PIECE, 0, first, 0)), SUCCESS);
    assert_eq!(access(other, PIECE, 3), SUCCESS);
    assert_eq!(cu!(cuMemsetD8_v2(other, 9, 6)), SUCCESS);
    assert_eq!(read(place, 7), [9, 9, 9, 9, 9, 9, 7]);
    assert_eq!(cu!(cuMemFree_v2(place)), INVALID_VALUE);
    let (mut base, mut size) = (0, 0);
    let inside = place + PIECE as u64 + 77;
    assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, inside)), SUCCESS);
    assert_eq!((base, size), (place + PIECE as u64, 3 * PIECE));
}

fn counted() {
    let _context = start();
    let (free, _) = memory_info();
    let used = || free - memory_info().0;
    let place = reserve(4 * PIECE);
    let handle = create(PIECE, 0);
    assert_eq!(cu!(cuMemMap(place, PIECE, 0, handle, 0)), SUCCESS);
    assert_eq!(cu!(cuMemRelease(handle)), SUCCESS);
    assert_eq!(used(), PIECE, "the mapping holds it");
    assert_eq!(cu!(cuMemRelease(handle)), INVALID_VALUE);
    let mut again: Handle = 0;
    assert_eq!(cu!(cuMemMap(place + PIECE as u64, PIECE, 0, handle, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemRetainAllocationHandle(&raw mut again, place + 99)), SUCCESS);
    assert_eq!(again, handle);
    assert_eq!(cu!(cuMemUnmap(place, PIECE)), SUCCESS);
    assert_eq!(used(), PIECE, "the handle holds it");
    assert_eq!(cu!(cuMemRetainAllocationHandle(&raw mut again, place)), INVALID_VALUE);
    assert_eq!(cu!(cuMemRelease(handle)), SUCCESS);
    assert_eq!(used(), 0);
    // The host's memory costs the card nothing.
    let host = Properties { location: 2, ..properties(0) };
    let handle: Handle = get!(cuMemCreate(PIECE, &raw const host, 0));
    assert_eq!((used(), cu!(cuMemRelease(handle))), (0, SUCCESS));
    // To the last byte of the card and no further.
    let rest = memory_info().0 / PIECE * PIECE;
    let mut handle = 0;
    for types in [0, DESCRIPTOR] {
        let properties = properties(types);
        assert_eq!(cu!(cuMemCreate(&raw mut handle, rest + PIECE, &raw const properties, 0)), OUT_OF_MEMORY);
        assert_eq!(cu!(cuMemCreate(&raw mut handle, rest, &raw const properties, 0)), SUCCESS);
        assert_eq!((used(), cu!(cuMemRelease(handle))), (rest, SUCCESS));
    }
}

fn wrong() {
    let mut out = 0;
    assert_eq!(cu!(cuMemAddressReserve(&raw mut out, PIECE, 0, 0, 0)), 3);
    let _context = start();
    let granularity: usize = get!(cuMemGetAllocationGranularity(&properties(0), 0));
    assert_eq!(granularity, PIECE);
    let mut size = 0;
    assert_eq!(cu!(cuMemGetAllocationGranularity(&raw mut size, &properties(0), 7)), INVALID_VALUE);
    for (length, alignment, flags) in [(0, 0, 0), (5, 0, 0), (PIECE, 3, 0), (PIECE, 0, 1)] {
        assert_eq!(cu!(cuMemAddressReserve(&raw mut out, length, alignment, 0, flags)), INVALID_VALUE);
    }
    assert_eq!(cu!(cuMemAddressReserve(&raw mut out, usize::MAX - 4095, 0, 0, 0)), OUT_OF_MEMORY);
    let refused = |size, properties: Properties| {
        let mut handle = 0;
        cu!(cuMemCreate(&raw mut handle, size, &raw const properties, 0))
    };
    let plain = properties(0);
    assert_eq!([refused(0, plain), refused(PIECE + 1, plain)], [INVALID_VALUE; 2]);
    assert_eq!(refused(PIECE, Properties { location_id: 5, ..plain }), INVALID_DEVICE);
    assert_eq!(refused(PIECE, Properties { location: 77, ..plain }), INVALID_VALUE);
    assert_eq!(refused(PIECE, Properties { allocation: 0, ..plain }), INVALID_VALUE);
    assert_eq!(refused(PIECE, properties(8)), NOT_SUPPORTED, "fabric handles");
    assert_eq!(refused(1 << 60, plain), OUT_OF_MEMORY);
    let (place, handle) = (reserve(4 * PIECE), create(2 * PIECE, 0));
    let map = |at: u64, size, offset| cu!(cuMemMap(at, size, offset, handle, 0));
    assert_eq!(map(place + 3 * PIECE as u64, 2 * PIECE, 0), INVALID_VALUE, "past the reservation");
    assert_eq!(map(place + 4096, PIECE, 0), INVALID_VALUE);
    assert_eq!(map(place, 3 * PIECE, 0), INVALID_VALUE, "more than there is");
    assert_eq!(map(place, PIECE, PIECE), INVALID_VALUE, "offsets are not supported by real drivers either");
    assert_eq!(map(get!(cuMemAlloc_v2(PIECE)), PIECE, 0), INVALID_VALUE);
    assert_eq!(map(place, 2 * PIECE, 0), SUCCESS);
    assert_eq!(map(place + PIECE as u64, PIECE, 0), INVALID_VALUE, "something is there");
    assert_eq!(cu!(cuMemUnmap(place, PIECE)), INVALID_VALUE, "half a mapping");
    assert_eq!(cu!(cuMemUnmap(place, 4 * PIECE)), INVALID_VALUE);
    assert_eq!(access(place, 3 * PIECE, 3), INVALID_VALUE);
    assert_eq!(access(place, 2 * PIECE, 2), INVALID_VALUE);
    assert_eq!(cu!(cuMemAddressFree(place, 4 * PIECE)), INVALID_VALUE, "still mapped");
    assert_eq!(cu!(cuMemUnmap(place, 2 * PIECE)), SUCCESS);
    assert_eq!(cu!(cuMemAddressFree(place, PIECE)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAddressFree(place, 4 * PIECE)), SUCCESS);
    assert_eq!(cu!(cuMemAddressFree(place, 4 * PIECE)), INVALID_VALUE);
    let mut descriptor = -1;
    assert_eq!(cu!(cuMemExportToShareableHandle(&raw mut descriptor, handle, DESCRIPTOR, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemImportFromShareableHandle(&raw mut out, 0, DESCRIPTOR)), INVALID_VALUE);
    assert_eq!(cu!(cuMemImportFromShareableHandle(&raw mut out, usize::MAX, DESCRIPTOR)), INVALID_VALUE);
    assert_eq!(cu!(cuMemRelease(handle + 1)), INVALID_VALUE);
}

/// A descriptor that a peer inherits.
fn export(handle: Handle) -> i32 {
    let descriptor: i32 = get!(cuMemExportToShareableHandle(handle, DESCRIPTOR, 0));
    // SAFETY: the descriptor is ours.
    let inherited = unsafe { libc::dup(descriptor) };
    close(descriptor);
    inherited
}

fn close(descriptor: i32) {
    // SAFETY: the descriptor is ours, and not used any more.
    unsafe { libc::close(descriptor) };
}

fn exported() {
    let _context = start();
    let place = reserve(PIECE);
    if role() == "importer" {
        let descriptor = given("DESCRIPTOR").parse().unwrap();
        let handle: Handle =
            get!(cuMemImportFromShareableHandle(usize::try_from(descriptor).unwrap(), DESCRIPTOR));
        close(descriptor);
        assert_eq!(
            get!(cuMemGetAllocationPropertiesFromHandle(handle)) as Properties,
            properties(DESCRIPTOR)
        );
        assert_eq!(cu!(cuMemMap(place, PIECE, 0, handle, 0)), SUCCESS);
        assert_eq!((cu!(cuMemRelease(handle)), access(place, PIECE, 3)), (SUCCESS, SUCCESS));
        assert_eq!(read(place, 3), [5; 3]);
        assert_eq!(cu!(cuMemsetD8_v2(place, 6, PIECE)), SUCCESS);
        say("written");
        pause();
        return;
    }
    let card = simgpu_device::Machine::open_from_env().unwrap().card(0).unwrap();
    let handle = create(PIECE, DESCRIPTOR);
    assert_eq!(cu!(cuMemMap(place, PIECE, 0, handle, 0)), SUCCESS);
    assert_eq!(access(place, PIECE, 3), SUCCESS);
    assert_eq!(cu!(cuMemsetD8_v2(place, 5, PIECE)), SUCCESS);
    let alone = card.used_memory();
    let descriptor = export(handle);
    let mut peer = Peer::start("importer", &[("DESCRIPTOR", &descriptor.to_string())]);
    peer.expect("written");
    close(descriptor);
    assert_eq!(read(place, 3), [6; 3]);
    // Two contexts, and the memory once.
    let both = alone + card.model().context_memory;
    assert_eq!(card.used_memory(), both);
    assert_eq!((cu!(cuMemUnmap(place, PIECE)), cu!(cuMemRelease(handle))), (SUCCESS, SUCCESS));
    assert_eq!(card.used_memory(), both, "the other one has it mapped");
    peer.kill();
    assert_eq!(card.used_memory(), alone - PIECE as u64);
}

fn descriptor() {
    let _context = start();
    let (free, _) = memory_info();
    let handle = create(PIECE, DESCRIPTOR);
    let descriptor = export(handle);
    assert_eq!((cu!(cuMemRelease(handle)), memory_info().0), (SUCCESS, free - PIECE));
    let number = usize::try_from(descriptor).unwrap();
    let (first, second): (Handle, Handle) = (
        get!(cuMemImportFromShareableHandle(number, DESCRIPTOR)),
        get!(cuMemImportFromShareableHandle(number, DESCRIPTOR)),
    );
    close(descriptor);
    assert_eq!((cu!(cuMemRelease(first)), memory_info().0), (SUCCESS, free - PIECE));
    assert_eq!((cu!(cuMemRelease(second)), memory_info().0), (SUCCESS, free));
    // A descriptor that nobody imports holds it until it is closed.
    let handle = create(PIECE, DESCRIPTOR);
    let descriptor = export(handle);
    assert_eq!(cu!(cuMemRelease(handle)), SUCCESS);
    assert_eq!(memory_info().0, free - PIECE);
    close(descriptor);
    assert_eq!(memory_info().0, free);
}

//! Memory of every kind, and bytes that really move.

use simgpu_device::Machine;

use crate::{
    api::{
        INVALID_CONTEXT, INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY, SUCCESS, cu, get, memory_info, read, start,
    },
    runner::{Peer, Scenario, eventually, pause, role, say},
};

const MIB: usize = 1 << 20;
const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_card_can_be_filled_to_the_last_byte_and_no_further", env: SMALL, run: fill },
    Scenario { name: "processes_share_a_cards_memory_and_a_killed_ones_comes_back", env: SMALL, run: shared },
    Scenario { name: "bytes_arrive_where_they_were_sent", env: &[], run: copies },
    Scenario { name: "wrong_pointers_are_refused_and_change_nothing", env: &[], run: wrong_pointers },
    Scenario { name: "host_and_managed_memory_are_known_to_the_driver", env: SMALL, run: host_and_managed },
    Scenario { name: "pitched_rows_are_copied_and_filled_as_rectangles", env: &[], run: rectangles },
    Scenario { name: "a_hundred_thousand_allocations_live_at_once", env: &[], run: many },
    Scenario { name: "threads_allocate_and_free_side_by_side", env: SMALL, run: threads },
];

fn fill() {
    let _context = start();
    let (free, total) = memory_info();
    let rest: u64 = get!(cuMemAlloc_v2(free - 3 * 512));
    let mut small: Vec<u64> = Vec::new();
    for _ in 0..3 {
        small.push(get!(cuMemAlloc_v2(1)));
    }
    let mut pointer = 99;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 1)), OUT_OF_MEMORY);
    assert_eq!(memory_info(), (0, total));
    assert_eq!(cu!(cuMemFree_v2(small[1])), SUCCESS);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 513)), OUT_OF_MEMORY);
    assert_eq!(pointer, 99);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 512)), SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(rest)), SUCCESS);
    assert_eq!(memory_info().0, free - 3 * 512);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, usize::MAX)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 0)), INVALID_VALUE);
    // A second context does not fit into a full card.
    let _all: u64 = get!(cuMemAlloc_v2(memory_info().0));
    let mut context = 0;
    assert_eq!(cu!(cuCtxCreate_v2(&raw mut context, 0, 0)), OUT_OF_MEMORY);
}

fn shared() {
    let _context = start();
    if role() == "hog" {
        let (free, _) = memory_info();
        let _pointer: u64 = get!(cuMemAlloc_v2(free - 5 * MIB));
        say("full");
        pause();
        return;
    }
    let (before, _) = memory_info();
    let mut hog = Peer::start("hog", &[]);
    hog.expect("full");
    assert_eq!(memory_info().0, 5 * MIB);
    let mut pointer = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 6 * MIB)), OUT_OF_MEMORY);
    hog.kill();
    assert_eq!(memory_info().0, before);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, before)), SUCCESS);
}

fn copies() {
    let _context = start();
    let data: Vec<u8> = (0..=255).cycle().take(3 * MIB + 17).collect();
    let (first, second): (u64, u64) = (get!(cuMemAlloc_v2(data.len())), get!(cuMemAlloc_v2(data.len())));
    assert_eq!(cu!(cuMemcpyHtoD_v2(first, data.as_ptr().cast(), data.len())), SUCCESS);
    assert_eq!(cu!(cuMemcpyDtoD_v2(second, first, data.len())), SUCCESS);
    assert_eq!(read(second, data.len()), data);
    // Without a direction, into the middle of an allocation.
    let mut part = [0_u8; 100];
    assert_eq!(cu!(cuMemcpy(part.as_mut_ptr() as u64, second + 1000, 100)), SUCCESS);
    assert_eq!(part, data[1000..1100]);
    assert_eq!(cu!(cuMemcpy(first + 5, part.as_ptr() as u64, 100)), SUCCESS);
    assert_eq!(read(first + 5, 100), part);
    assert_eq!(cu!(cuMemsetD8_v2(first + 1, 7, 3)), SUCCESS);
    assert_eq!(read(first, 5), [data[0], 7, 7, 7, data[4]]);
    assert_eq!(cu!(cuMemsetD16_v2(first, 0x0102, 2)), SUCCESS);
    assert_eq!(cu!(cuMemsetD32_v2(first + 4, 0x0304_0506, 1)), SUCCESS);
    assert_eq!(read(first, 8), [2, 1, 2, 1, 6, 5, 4, 3]);
    assert_eq!(cu!(cuMemsetD32_v2(first + 2, 0, 1)), INVALID_VALUE);
}

fn wrong_pointers() {
    let context = start();
    let pointer: u64 = get!(cuMemAlloc_v2(1000));
    let mut buffer = [5_u8; 2000];
    let host = buffer.as_mut_ptr();
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), pointer, 1001)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), pointer + 990, 11)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), pointer - 1, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), 0, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), u64::MAX, 2)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), pointer, usize::MAX)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(host as u64, host.cast(), 10)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(pointer, std::ptr::null(), 10)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD8_v2(pointer + 1, 0, 1000)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD2D8_v2(pointer, 0, 0, 1, usize::MAX)), INVALID_VALUE);
    assert_eq!(buffer, [5; 2000]);
    assert_eq!(cu!(cuMemFree_v2(pointer + 512)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(pointer)), SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(pointer)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(0)), SUCCESS);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.cast(), pointer, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpy(host as u64, pointer, 1)), INVALID_VALUE);
    let (mut base, mut size) = (0, 0);
    assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, pointer)), NOT_FOUND);
    assert_eq!(cu!(cuMemAlloc_v2(std::ptr::null_mut(), 512)), INVALID_VALUE);
    assert_eq!(cu!(cuCtxDestroy_v2(context)), SUCCESS);
    assert_eq!(cu!(cuMemGetInfo_v2(&raw mut size, &raw mut size)), INVALID_CONTEXT);
}

fn attribute(number: i32, pointer: u64) -> Option<u64> {
    let mut value = 0_u64;
    (cu!(cuPointerGetAttribute((&raw mut value).cast(), number, pointer)) == SUCCESS).then_some(value)
}

fn host_and_managed() {
    let _context = start();
    let (free, _) = memory_info();
    let host: u64 = get!(cuMemHostAlloc(MIB, 0));
    assert_eq!(memory_info().0, free, "memory of the host costs the card nothing");
    let managed: u64 = get!(cuMemAllocManaged(MIB, 1));
    assert_eq!(memory_info().0, free - MIB);
    let plain: u64 = get!(cuMemAlloc_v2(100));
    // Memory type: 1 host, 2 device. Whether managed. Start and size of the range.
    assert_eq!([host, managed, plain].map(|pointer| attribute(2, pointer)), [Some(1), Some(2), Some(2)]);
    assert_eq!([host, managed, plain].map(|pointer| attribute(8, pointer)), [Some(0), Some(1), Some(0)]);
    assert_eq!((attribute(11, plain + 99), attribute(12, plain + 99)), (Some(plain), Some(100)));
    assert_eq!(attribute(2, plain + 100), None);
    // The program writes managed memory itself.
    let place: *mut u8 = std::ptr::with_exposed_provenance_mut(usize::try_from(managed).unwrap());
    // SAFETY: memory that the driver gave for this.
    unsafe { place.write(42) };
    assert_eq!(read(managed, 1), [42]);
    let own = vec![9_u8; 5000];
    let address = own.as_ptr() as u64;
    assert_eq!(cu!(cuMemHostRegister_v2(address, own.len(), 0)), SUCCESS);
    assert_eq!(cu!(cuMemHostRegister_v2(address + 100, 10, 0)), 712);
    assert_eq!(attribute(2, address), Some(1));
    assert_eq!(cu!(cuMemcpyHtoD_v2(plain, own.as_ptr().cast(), 100)), SUCCESS);
    assert_eq!(cu!(cuMemHostUnregister(address)), SUCCESS);
    assert_eq!(cu!(cuMemHostUnregister(address)), 713);
    assert_eq!(cu!(cuMemFreeHost(plain)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(host)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeHost(host)), SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(managed)), SUCCESS);
    assert_eq!(memory_info().0, free - 512);
}

fn rectangles() {
    let _context = start();
    let (mut pointer, mut pitch) = (0, 0);
    assert_eq!(cu!(cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, 600, 4, 4)), SUCCESS);
    assert_eq!(pitch, 1024);
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 0, 4 * pitch)), SUCCESS);
    assert_eq!(cu!(cuMemsetD2D8_v2(pointer, pitch, 3, 2, 4)), SUCCESS);
    let data: Vec<u8> = (0..50).collect();
    // CUDA_MEMCPY2D: x, y, type, host, device, array, pitch of the source, the same of the destination, width, height.
    let pitch = pitch as u64;
    let host = data.as_ptr() as u64;
    let up = [0, 1, 1, host, 0, 0, 10, 4, 2, 2, 0, pointer, 0, pitch, 10, 2];
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const up)), SUCCESS);
    let rows = read(pointer, 4096);
    for (row, expected) in [
        (0, [3, 3, 0, 0, 0, 0]),
        (1, [3, 3, 0, 0, 0, 0]),
        (2, [3, 3, 0, 0, 10, 11]),
        (3, [3, 3, 0, 0, 20, 21]),
    ] {
        assert_eq!(rows[row * 1024..row * 1024 + 6], expected, "row {row}");
    }
    let past_the_end = [0, 0, 1, host, 0, 0, 10, 0, 3, 2, 0, pointer, 0, pitch, 10, 2];
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const past_the_end)), INVALID_VALUE);
    assert_eq!(read(pointer, 4096), rows);
    let narrow = [0, 0, 1, host, 0, 0, 9, 0, 0, 2, 0, pointer, 0, pitch, 10, 2];
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const narrow)), INVALID_VALUE);
}

fn many() {
    let _context = start();
    let (free, _) = memory_info();
    let mut pointers: Vec<u64> = (0..100_000).map(|_| get!(cuMemAlloc_v2(700))).collect();
    assert_eq!(memory_info().0, free - 100_000 * 1024);
    for (number, &pointer) in (0_u32..).zip(&pointers).step_by(997) {
        assert_eq!(cu!(cuMemsetD32_v2(pointer, number, 175)), SUCCESS);
    }
    for (number, &pointer) in (0_u32..).zip(&pointers).step_by(997) {
        assert_eq!(read(pointer + 696, 4), number.to_le_bytes());
    }
    pointers.sort_unstable();
    assert!(pointers.windows(2).all(|pair| pair[0] + 700 <= pair[1]));
    for pointer in pointers {
        assert_eq!(cu!(cuMemFree_v2(pointer)), SUCCESS);
    }
    assert_eq!(memory_info().0, free);
}

fn threads() {
    let context = start();
    let (free, _) = memory_info();
    let work = move |number: u8| {
        assert_eq!(cu!(cuCtxSetCurrent(context)), SUCCESS);
        for round in 0..300 {
            let size = 1 + (round * 7919 + usize::from(number) * 131) % (2 * MIB);
            let pointer: u64 = get!(cuMemAlloc_v2(size));
            assert_eq!(cu!(cuMemsetD8_v2(pointer, number, size.min(5000))), SUCCESS);
            let bytes = read(pointer, size.min(5000));
            assert!(bytes.iter().all(|&byte| byte == number));
            assert_eq!(cu!(cuMemFree_v2(pointer)), SUCCESS);
        }
    };
    let threads: Vec<_> = (0..6).map(|number| std::thread::spawn(move || work(number))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    eventually("all memory is back", || memory_info().0 == free && card.processes().len() == 1);
}

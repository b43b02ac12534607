//! Memory and events of one process in another.

use crate::{
    api::{
        Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Opaque, SUCCESS, cu, empty_kernel,
        get, launch, memory_info, read, start,
    },
    runner::{Peer, Scenario, given, pause, role, say},
};
use simgpu_device::{Card, Machine};

const SIZE: usize = 3 * (1 << 20) + 5;
const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];
const LONG: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "20ms")];

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "memory_opened_by_another_process_is_the_same_and_counts_once",
        env: SMALL,
        run: memory,
    },
    Scenario { name: "opened_memory_outlives_its_killed_owner", env: SMALL, run: killed_owner },
    Scenario { name: "wrong_tokens_are_refused", env: SMALL, run: wrong },
    Scenario { name: "an_event_of_another_process_tells_when_its_work_is_done", env: LONG, run: event },
    Scenario { name: "a_pools_memory_can_be_opened_by_another_process", env: SMALL, run: pool },
];

fn words(token: Opaque) -> String {
    token.0.map(|word| word.to_string()).join(" ")
}

fn token(words: &str) -> Opaque {
    Opaque(words.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap())
}

fn card() -> Card {
    Machine::open_from_env().unwrap().card(0).unwrap()
}

fn open(token: Opaque) -> u64 {
    get!(cuIpcOpenMemHandle_v2(token, 1))
}

fn memory() {
    let _context = start();
    if role() == "opener" {
        let token = token(&given("TOKEN"));
        let pointer = open(token);
        assert_eq!(open(token), pointer);
        let (mut base, mut size) = (0, 0);
        assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, pointer + 9)), SUCCESS);
        assert_eq!((base, size), (pointer, SIZE));
        assert_eq!(read(pointer + SIZE as u64 - 3, 3), [4; 3]);
        assert_eq!(cu!(cuMemsetD8_v2(pointer, 5, SIZE)), SUCCESS);
        assert_eq!(cu!(cuMemsetD8_v2(pointer, 5, SIZE + 1)), INVALID_VALUE);
        assert_eq!(cu!(cuMemFree_v2(pointer)), INVALID_VALUE, "it is closed, not freed");
        say("written");
        pause();
        assert_eq!(read(pointer, 1), [5]);
        assert_eq!([cu!(cuIpcCloseMemHandle(pointer)), cu!(cuIpcCloseMemHandle(pointer))], [SUCCESS; 2]);
        assert_eq!(cu!(cuIpcCloseMemHandle(pointer)), INVALID_VALUE);
        let mut again = 0;
        assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut again, token, 1)), INVALID_HANDLE, "nobody has it");
        say("closed");
        pause();
        return;
    }
    // A neighbour in the same page, if there were such a thing, would be torn away.
    let (pointer, neighbour): (u64, u64) = (get!(cuMemAlloc_v2(SIZE)), get!(cuMemAlloc_v2(100)));
    assert_eq!(
        (cu!(cuMemsetD8_v2(pointer, 4, SIZE)), cu!(cuMemsetD8_v2(neighbour, 1, 100))),
        (SUCCESS, SUCCESS)
    );
    let before = card().used_memory();
    let first: Opaque = get!(cuIpcGetMemHandle(pointer + 77));
    assert_eq!(get!(cuIpcGetMemHandle(pointer)) as Opaque, first);
    assert_eq!(card().used_memory(), before);
    let mut peer = Peer::start("opener", &[("TOKEN", &words(first))]);
    peer.expect("written");
    assert_eq!((read(pointer, 2), read(neighbour, 100)), (vec![5; 2], vec![1; 100]));
    let with_peer = before + card().model().context_memory;
    assert_eq!(card().used_memory(), with_peer, "the memory counts once");
    assert_eq!(cu!(cuMemFree_v2(pointer)), SUCCESS);
    assert_eq!(card().used_memory(), with_peer, "the other one still has it open");
    peer.go_on();
    peer.expect("closed");
    assert_eq!(card().used_memory(), with_peer - (SIZE as u64).next_multiple_of(512));
    // The place can be used again.
    let next: u64 = get!(cuMemAlloc_v2(SIZE));
    assert_eq!(cu!(cuMemsetD8_v2(next, 9, SIZE)), SUCCESS);
}

fn killed_owner() {
    let _context = start();
    if role() == "owner" {
        let pointer: u64 = get!(cuMemAlloc_v2(SIZE));
        assert_eq!(cu!(cuMemsetD8_v2(pointer, 4, SIZE)), SUCCESS);
        say(&words(get!(cuIpcGetMemHandle(pointer))));
        pause();
        return;
    }
    let (free, _) = memory_info();
    let mut owner = Peer::start("owner", &[]);
    let pointer = open(token(&owner.hear()));
    owner.kill();
    assert_eq!(read(pointer, 2), [4; 2]);
    assert_eq!(memory_info().0, free - SIZE.next_multiple_of(512));
    assert_eq!((cu!(cuIpcCloseMemHandle(pointer)), memory_info().0), (SUCCESS, free));
}

fn wrong() {
    let _context = start();
    let open = |token, flags| {
        let mut pointer = 0;
        cu!(cuIpcOpenMemHandle_v2(&raw mut pointer, token, flags))
    };
    assert_eq!(open(Opaque([0; 8]), 1), INVALID_HANDLE);
    assert_eq!(open(Opaque([u64::MAX; 8]), 1), INVALID_HANDLE);
    let own: u64 = get!(cuMemAlloc_v2(SIZE));
    let handle: Opaque = get!(cuIpcGetMemHandle(own));
    assert_eq!([open(handle, 1), open(handle, 0)], [INVALID_CONTEXT, INVALID_VALUE]);
    let mut out = Opaque([0; 8]);
    let (managed, pooled): (u64, u64) = (get!(cuMemAllocManaged(512, 1)), get!(cuMemAllocAsync(512, 0)));
    for pointer in [0, 1, managed, pooled, (&raw mut out) as u64] {
        assert_eq!(cu!(cuIpcGetMemHandle(&raw mut out, pointer)), INVALID_VALUE);
    }
    assert_eq!(cu!(cuIpcGetMemHandle(std::ptr::null_mut(), own)), INVALID_VALUE);
    let plain: Handle = get!(cuEventCreate(0));
    assert_eq!(cu!(cuIpcGetEventHandle(&raw mut out, plain)), INVALID_VALUE);
    let mut event = 0;
    assert_eq!(cu!(cuIpcOpenEventHandle(&raw mut event, handle)), INVALID_HANDLE);
    assert_eq!(cu!(cuMemFree_v2(own)), SUCCESS);
    assert_eq!(open(handle, 1), INVALID_HANDLE);
}

fn event() {
    let _context = start();
    let stream: Handle = get!(cuStreamCreate(0));
    if role() == "waiter" {
        let event: Handle = get!(cuIpcOpenEventHandle(token(&given("TOKEN"))));
        assert_eq!(cu!(cuEventQuery(event)), SUCCESS, "never recorded");
        say("opened");
        pause();
        assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
        assert_eq!(cu!(cuStreamWaitEvent(stream, event, 0)), SUCCESS);
        assert_eq!((cu!(cuStreamSynchronize(stream)), cu!(cuEventQuery(event))), (SUCCESS, SUCCESS));
        say("done");
        pause();
        return;
    }
    // For processes, without timing.
    let event: Handle = get!(cuEventCreate(4 | 2));
    let handle: Opaque = get!(cuIpcGetEventHandle(event));
    let mut peer = Peer::start("waiter", &[("TOKEN", &words(handle))]);
    peer.expect("opened");
    let begun = simgpu_device::now_ns();
    let kernel = empty_kernel();
    for _ in 0..100 {
        assert_eq!(launch(kernel, stream), SUCCESS);
    }
    assert_eq!(cu!(cuEventRecord(event, stream)), SUCCESS);
    peer.go_on();
    peer.expect("done");
    assert!(simgpu_device::now_ns() >= begun + 2_000_000_000);
}

fn pool() {
    let _context = start();
    if role() == "importer" {
        let descriptor: usize = given("DESCRIPTOR").parse().unwrap();
        let pool: Handle = get!(cuMemPoolImportFromShareableHandle(descriptor, 1, 0));
        // SAFETY: inherited for this one use.
        unsafe { libc::close(i32::try_from(descriptor).unwrap()) };
        let mut pointer = 0;
        assert_eq!(cu!(cuMemAllocFromPoolAsync(&raw mut pointer, 512, pool, 0)), INVALID_VALUE);
        let token = token(&given("TOKEN"));
        let pointer: u64 = get!(cuMemPoolImportPointer(pool, &raw const token));
        assert_eq!(read(pointer, 2), [3; 2]);
        assert_eq!(cu!(cuMemsetD8_v2(pointer, 4, SIZE)), SUCCESS);
        say("written");
        pause();
        assert_eq!(cu!(cuMemFreeAsync(pointer, 0)), SUCCESS);
        assert_eq!(cu!(cuMemFreeAsync(pointer, 0)), INVALID_VALUE);
        say("freed");
        pause();
        return;
    }
    // CUmemPoolProps: pinned, descriptors, on device, number 0.
    let mut properties = [0; 24];
    (properties[0], properties[1], properties[2]) = (1, 1, 1);
    let pool: Handle = get!(cuMemPoolCreate(&raw const properties));
    let before = card().used_memory();
    let pointer: u64 = get!(cuMemAllocFromPoolAsync(SIZE, pool, 0));
    assert_eq!(card().used_memory(), before + (4 << 20));
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 3, SIZE)), SUCCESS);
    let mut token = Opaque([0; 8]);
    assert_eq!(cu!(cuMemPoolExportPointer(&raw mut token, pointer)), SUCCESS);
    let plain: u64 = get!(cuMemAllocAsync(512, 0));
    assert_eq!(cu!(cuMemPoolExportPointer(&raw mut token, plain)), INVALID_VALUE);
    assert_eq!((cu!(cuMemFreeAsync(plain, 0)), cu!(cuStreamSynchronize(0))), (SUCCESS, SUCCESS));
    let mut descriptor = -1;
    assert_eq!(cu!(cuMemPoolExportToShareableHandle(&raw mut descriptor, pool, 1, 0)), SUCCESS);
    // SAFETY: the descriptors are ours; the second is for the peer.
    let inherited = unsafe { libc::dup(descriptor) };
    let environment = [("TOKEN", &*words(token)), ("DESCRIPTOR", &*inherited.to_string())];
    let mut peer = Peer::start("importer", &environment);
    peer.expect("written");
    for descriptor in [descriptor, inherited] {
        // SAFETY: as above, and not used any more.
        unsafe { libc::close(descriptor) };
    }
    assert_eq!(read(pointer, 2), [4; 2]);
    let both = before + (4 << 20) + card().model().context_memory;
    assert_eq!(card().used_memory(), both);
    peer.go_on();
    peer.expect("freed");
    assert_eq!(card().used_memory(), both);
    // What was freed is handed out again, and given back at a synchronisation.
    assert_eq!(cu!(cuMemFreeAsync(pointer, 0)), SUCCESS);
    let again: u64 = get!(cuMemAllocFromPoolAsync(SIZE - 1, pool, 0));
    assert_eq!(card().used_memory(), both);
    assert_eq!((cu!(cuMemFreeAsync(again, 0)), cu!(cuStreamSynchronize(0))), (SUCCESS, SUCCESS));
    assert_eq!((card().used_memory(), cu!(cuMemPoolDestroy(pool))), (both - (4 << 20), SUCCESS));
}

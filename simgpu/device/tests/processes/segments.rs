//! Memory that several processes hold: counted once, gone with its last holder, however that ended.

use std::os::fd::AsRawFd as _;

use simgpu_device::{Machine, Process, Segment, SegmentCharge, TakeError};

use crate::runner::{Peer, Scenario, given, pause, role, say};

const MIB: u64 = 1 << 20;
const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a_shared_segment_counts_once_and_goes_with_its_last_holder",
        env: SMALL,
        run: counts_once,
    },
    Scenario {
        name: "an_open_descriptor_holds_a_segment_that_no_process_holds",
        env: SMALL,
        run: descriptor,
    },
    Scenario {
        name: "a_killed_makers_segment_lives_on_with_its_other_holder",
        env: SMALL,
        run: killed_maker,
    },
    Scenario { name: "bytes_written_by_one_holder_are_read_by_the_other", env: SMALL, run: bytes },
    Scenario { name: "segments_and_plain_memory_fill_one_card_together", env: SMALL, run: together },
    Scenario { name: "shared_memory_was_the_makers_own_before", env: SMALL, run: shared_later },
];

fn start() -> (Machine, Process) {
    let machine = Machine::open_from_env().unwrap();
    (machine, machine.join().unwrap())
}

fn used(machine: Machine) -> u64 {
    machine.card(0).unwrap().used_memory()
}

/// A peer that inherits an exported descriptor of the segment.
fn peer_with(process: Process, segment: &Segment, role: &str) -> Peer {
    let exported = process.export_segment(segment).unwrap();
    // SAFETY: a second descriptor, which is passed on to the peer; this process's own is closed below.
    let inherited = unsafe { libc::dup(exported.as_raw_fd()) };
    let mut peer = Peer::start(role, &[("DESCRIPTOR", &inherited.to_string())]);
    peer.expect("holds");
    // SAFETY: nobody uses it any more.
    unsafe { libc::close(inherited) };
    peer
}

/// In a peer: holds the segment of the inherited descriptor, and closes that.
fn hold_inherited() -> (Process, Segment) {
    let (_, process) = start();
    let descriptor = given("DESCRIPTOR").parse().unwrap();
    let segment = process.import_segment(descriptor).unwrap();
    // SAFETY: inherited for this one use.
    unsafe { libc::close(descriptor) };
    say("holds");
    (process, segment)
}

fn counts_once() {
    if role() == "holder" {
        let (process, segment) = hold_inherited();
        pause();
        process.drop_segment(&segment);
        say("dropped");
        return pause();
    }
    let (machine, process) = start();
    let segment = process.create_segment(0, 10 * MIB, SegmentCharge::Card).unwrap();
    let peers = [peer_with(process, &segment, "holder"), peer_with(process, &segment, "holder")];
    let shares = || {
        let processes = machine.card(0).unwrap().processes();
        processes.into_iter().map(|one| (one.pid.unwrap(), one.memory)).collect::<Vec<_>>()
    };
    assert_eq!(used(machine), 10 * MIB);
    assert_eq!(shares(), [(std::process::id(), 10 * MIB)], "it is its maker's while that holds it");
    process.drop_segment(&segment);
    process.drop_segment(&segment);
    assert_eq!((used(machine), shares().len(), shares()[0].1), (10 * MIB, 1, 10 * MIB));
    let [mut first, second] = peers;
    first.go_on();
    first.expect("dropped");
    assert_eq!((used(machine), shares()), (10 * MIB, vec![(second.pid(), 10 * MIB)]));
    second.kill();
    assert_eq!(used(machine), 0);
    assert!(process.hold_segment(segment.index, segment.serial).is_none());
}

fn descriptor() {
    let (machine, process) = start();
    let segment = process.create_segment(0, MIB, SegmentCharge::Card).unwrap();
    let exported = process.export_segment(&segment).unwrap();
    process.drop_segment(&segment);
    assert_eq!(used(machine), MIB);
    let again = process.import_segment(exported.as_raw_fd()).unwrap();
    assert_eq!(again, segment);
    drop(exported);
    assert_eq!(used(machine), MIB);
    process.drop_segment(&again);
    assert_eq!(used(machine), 0);
    assert!(process.import_segment(0).is_none() && process.import_segment(-1).is_none());
    let other = std::fs::File::open("/dev/null").unwrap();
    assert!(process.import_segment(other.as_raw_fd()).is_none());
}

fn killed_maker() {
    if role() == "maker" {
        let (_, process) = start();
        let segment = process.create_segment(0, MIB, SegmentCharge::Card).unwrap();
        say(&format!("{} {}", segment.index, segment.serial));
        return pause();
    }
    let (machine, process) = start();
    let mut maker = Peer::start("maker", &[]);
    let words: Vec<u64> = maker.hear().split(' ').map(|word| word.parse().unwrap()).collect();
    let index = usize::try_from(words[0]).unwrap();
    assert!(process.hold_segment(index, words[1] + 1).is_none());
    let segment = process.hold_segment(index, words[1]).unwrap();
    maker.kill();
    assert_eq!(used(machine), MIB);
    process.drop_segment(&segment);
    assert_eq!(used(machine), 0);
    // The record is used again, for another segment.
    let next = process.create_segment(0, MIB, SegmentCharge::Card).unwrap();
    assert!(next.index == index && next.serial != segment.serial);
}

fn map(process: Process, segment: &Segment) -> &'static mut [u8] {
    // SAFETY: a new mapping, which stays until the process ends.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = process.map_segment(segment, 0, segment.bytes, None, protection).unwrap();
        let length = usize::try_from(segment.bytes).unwrap();
        std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), length)
    }
}

fn bytes() {
    if role() == "holder" {
        let (process, segment) = hold_inherited();
        let bytes = map(process, &segment);
        pause();
        assert!(bytes.iter().all(|byte| *byte == 7));
        bytes.fill(8);
        say("written");
        return pause();
    }
    let (_, process) = start();
    let segment = process.create_segment(0, 3 * MIB, SegmentCharge::Card).unwrap();
    let other = process.create_segment(0, 3 * MIB, SegmentCharge::Nobody).unwrap();
    let mut peer = peer_with(process, &segment, "holder");
    let (bytes, others) = (map(process, &segment), map(process, &other));
    bytes.fill(7);
    peer.go_on();
    peer.expect("written");
    assert!(bytes.iter().all(|byte| *byte == 8) && others.iter().all(|byte| *byte == 0));
    // Freed bytes read as zeros for the next one.
    drop(peer);
    process.drop_segment(&segment);
    let next = process.create_segment(0, 3 * MIB, SegmentCharge::Card).unwrap();
    assert!(map(process, &next).iter().all(|byte| *byte == 0));
}

fn together() {
    let (machine, process) = start();
    let total = machine.card(0).unwrap().total_memory();
    process.take_memory(0, total - 5 * MIB).unwrap();
    assert_eq!(process.create_segment(0, 6 * MIB, SegmentCharge::Card), Err(TakeError::NoMemory));
    let segment = process.create_segment(0, 5 * MIB, SegmentCharge::Card).unwrap();
    assert_eq!(process.take_memory(0, 1), Err(TakeError::NoMemory));
    assert_eq!(used(machine), total);
    assert!(process.create_segment(0, MIB, SegmentCharge::Nobody).is_ok());
    process.drop_segment(&segment);
    process.take_memory(0, 5 * MIB).unwrap();
}

fn shared_later() {
    let (machine, process) = start();
    process.take_memory(0, MIB + 1).unwrap();
    let segment = process.share_memory(0, MIB + 1).unwrap();
    assert_eq!((used(machine), process.held_memory(0)), (MIB + 512, 0));
    process.drop_segment(&segment);
    assert_eq!(used(machine), 0);
}

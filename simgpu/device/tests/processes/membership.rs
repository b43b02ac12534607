//! Who is a process of the machine, and who no longer.

use simgpu_device::{GRANULE, Machine, TakeError};

use crate::runner::{Peer, Scenario, given, pause, role, say};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "live_processes_are_listed_with_their_pids_and_dead_ones_are_not",
        env: &[("SIMGPU_CARDS", "2")],
        run: listing,
    },
    Scenario { name: "two_copies_in_one_process_are_one_member", env: &[], run: two_copies },
    Scenario { name: "a_forked_child_is_no_member", env: &[], run: fork },
    Scenario {
        name: "a_process_that_closed_its_descriptors_can_not_touch_its_successors_memory",
        env: &[],
        run: closed_descriptors,
    },
    Scenario { name: "an_executed_program_starts_without_what_the_old_one_held", env: &[], run: exec },
    Scenario {
        name: "a_lost_card_gives_nothing_until_it_is_recovered",
        env: &[("SIMGPU_CARDS", "2")],
        run: lost,
    },
];

fn listing() {
    let machine = Machine::open_from_env().unwrap();
    if role() == "member" {
        let process = machine.join().unwrap();
        process.open_context(1).unwrap();
        process.take_memory(1, 1000).unwrap();
        say("ready");
        pause();
        return;
    }
    let card = machine.card(1).unwrap();
    let context = card.model().context_memory;
    machine.join().unwrap().take_memory(1, GRANULE).unwrap();
    let mut peers = [Peer::start("member", &[]), Peer::start("member", &[])];
    for peer in &mut peers {
        peer.expect("ready");
    }
    let mut wanted: Vec<_> = peers.iter().map(|peer| (Some(peer.pid()), context + 2 * GRANULE, 1)).collect();
    wanted.push((Some(std::process::id()), GRANULE, 0));
    wanted.sort_unstable();
    let mut seen: Vec<_> = card.processes().iter().map(|one| (one.pid, one.memory, one.contexts)).collect();
    seen.sort_unstable();
    assert_eq!(seen, wanted);
    assert!(machine.card(0).unwrap().processes().is_empty());
    peers.into_iter().for_each(Peer::kill);
    let seen: Vec<_> = card.processes().iter().map(|one| one.pid).collect();
    assert_eq!(seen, [Some(std::process::id())]);
}

fn two_copies() {
    let (first, second) = (Machine::open_from_env().unwrap(), Machine::open_from_env().unwrap());
    first.join().unwrap().take_memory(0, 5 * GRANULE).unwrap();
    second.join().unwrap().take_memory(0, 3 * GRANULE).unwrap();
    let listed = first.card(0).unwrap().processes();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].pid, listed[0].memory), (Some(std::process::id()), 8 * GRANULE));
    // Both give back what either took.
    first.join().unwrap().give_memory(0, 8 * GRANULE);
    assert_eq!(second.card(0).unwrap().used_memory(), 0);
}

fn fork() {
    let machine = Machine::open_from_env().unwrap();
    let process = machine.join().unwrap();
    process.take_memory(0, GRANULE).unwrap();
    // SAFETY: the child only asks, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = process.take_memory(0, GRANULE) == Err(TakeError::PlaceLost);
        process.give_memory(0, GRANULE);
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(machine.card(0).unwrap().used_memory(), GRANULE);
}

fn closed_descriptors() {
    let machine = Machine::open_from_env().unwrap();
    if role() == "successor" {
        let process = machine.join().unwrap();
        process.take_memory(0, 7 * GRANULE).unwrap();
        say("ready");
        pause();
        return;
    }
    let process = machine.join().unwrap();
    process.take_memory(0, GRANULE).unwrap();
    // SAFETY: descriptors above the standard three are the state file's only.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    let mut peer = Peer::start("successor", &[]);
    peer.expect("ready");
    assert_eq!(process.take_memory(0, GRANULE), Err(TakeError::PlaceLost));
    process.give_memory(0, GRANULE);
    let fresh = Machine::open_from_env().unwrap();
    assert_eq!(fresh.card(0).unwrap().used_memory(), 7 * GRANULE);
}

fn exec() {
    let machine = Machine::open_from_env().unwrap();
    if role() == "second life" {
        // The same pid, the same start time, but the locks went with the old program.
        assert_eq!(given("FIRST_PID"), std::process::id().to_string());
        assert_eq!(machine.join().unwrap().held_memory(0), 0);
        say(&machine.card(0).unwrap().used_memory().to_string());
        return;
    }
    if role() == "first life" {
        machine.join().unwrap().take_memory(0, 9 * GRANULE).unwrap();
        let error = std::os::unix::process::CommandExt::exec(
            std::process::Command::new(std::env::current_exe().unwrap())
                .env("ROLE", "second life")
                .env("FIRST_PID", std::process::id().to_string()),
        );
        panic!("{error}");
    }
    assert_eq!(Peer::start("first life", &[]).hear(), "0");
}

fn lost() {
    let machine = Machine::open_from_env().unwrap();
    let (process, card) = (machine.join().unwrap(), machine.card(1).unwrap());
    process.take_memory(1, GRANULE).unwrap();
    card.lose();
    card.lose();
    assert!(card.lost() && !machine.card(0).unwrap().lost());
    assert_eq!(card.losses(), 1);
    assert_eq!(process.take_memory(1, GRANULE), Err(TakeError::CardLost));
    assert_eq!(process.book(1, 0, 1).unwrap_err(), TakeError::CardLost);
    process.take_memory(0, GRANULE).unwrap();
    card.recover();
    process.take_memory(1, GRANULE).unwrap();
    assert_eq!((card.lost(), card.losses()), (false, 1));
}

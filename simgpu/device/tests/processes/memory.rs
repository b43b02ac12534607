//! Memory is exact, whoever asks and whoever dies.

use simgpu_device::{GRANULE, Machine, TakeError};

use crate::runner::{Peer, Scenario, eventually, pause, role, say};

const MIB: u64 = 1 << 20;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "four_processes_fill_a_card_to_the_last_byte_and_never_past_it",
        env: &[("SIMGPU_CARDS", "Sim-4GB")],
        run: fill_together,
    },
    Scenario {
        name: "what_fits_once_is_given_to_exactly_one_of_two_processes",
        env: &[("SIMGPU_CARDS", "Sim-4GB")],
        run: one_of_two,
    },
    Scenario {
        name: "memory_of_killed_processes_comes_back_wherever_they_were",
        env: &[("SIMGPU_CARDS", "2xSim-4GB")],
        run: kills,
    },
    Scenario {
        name: "a_refusal_first_reclaims_what_the_dead_left_behind",
        env: &[("SIMGPU_CARDS", "Sim-4GB")],
        run: refusal_sweeps,
    },
];

fn fill_together() {
    let machine = Machine::open_from_env().unwrap();
    let card = machine.card(0).unwrap();
    if role() == "filler" {
        let process = machine.join().unwrap();
        say("ready");
        pause();
        let mut taken = 0;
        while process.take_memory(0, MIB).is_ok() {
            taken += MIB;
        }
        // The rest is smaller than a MiB now, for everybody.
        while process.take_memory(0, 1).is_ok() {
            taken += GRANULE;
        }
        say(&taken.to_string());
        pause();
        return;
    }
    // An odd amount first, so that the card does not divide evenly.
    machine.join().unwrap().take_memory(0, 3 * MIB + 7 * GRANULE - 1).unwrap();
    let mut peers: Vec<_> = (0..4).map(|_| Peer::start("filler", &[])).collect();
    for peer in &mut peers {
        peer.expect("ready");
    }
    peers.iter_mut().for_each(Peer::go_on);
    for _ in 0..200 {
        assert!(card.used_memory() <= card.total_memory());
    }
    let taken: u64 = peers.iter_mut().map(|peer| peer.hear().parse::<u64>().unwrap()).sum();
    assert_eq!(taken + 3 * MIB + 7 * GRANULE, card.total_memory());
    assert_eq!(card.used_memory(), card.total_memory());
}

fn one_of_two() {
    let machine = Machine::open_from_env().unwrap();
    let total = machine.card(0).unwrap().total_memory();
    if role() == "taker" {
        let process = machine.join().unwrap();
        say("ready");
        for _ in 0..300 {
            pause();
            let got = process.take_memory(0, total / 10 * 6).is_ok();
            say(if got { "got" } else { "refused" });
            pause();
            if got {
                process.give_memory(0, total / 10 * 6);
            }
            say("given");
        }
        return;
    }
    let mut peers = [Peer::start("taker", &[]), Peer::start("taker", &[])];
    for peer in &mut peers {
        peer.expect("ready");
    }
    for _ in 0..300 {
        peers.iter_mut().for_each(Peer::go_on);
        let mut answers: Vec<_> = peers.iter_mut().map(Peer::hear).collect();
        answers.sort();
        assert_eq!(answers, ["got", "refused"]);
        peers.iter_mut().for_each(Peer::go_on);
        for peer in &mut peers {
            peer.expect("given");
        }
    }
}

fn kills() {
    let machine = Machine::open_from_env().unwrap();
    if role() == "churner" {
        let process = machine.join().unwrap();
        say("ready");
        for round in 1_u64.. {
            let (card, size) = (usize::try_from(round % 2).unwrap(), (round * 7919) % (64 * MIB));
            if process.open_context(card).is_ok() {
                if process.take_memory(card, size).is_ok() && round % 3 == 0 {
                    process.give_memory(card, size);
                }
                process.close_context(card);
            }
        }
    }
    for round in 0..20 {
        let mut peers: Vec<_> = (0..3).map(|_| Peer::start("churner", &[])).collect();
        for peer in &mut peers {
            peer.expect("ready");
        }
        // Let them work until all of them hold something, then strike at some instruction.
        eventually("every churner holds something", || {
            machine.cards().map(|card| card.processes().len()).max() == Some(3)
        });
        for spin in 0..round * 1000 {
            std::hint::black_box(spin);
        }
        peers.into_iter().for_each(Peer::kill);
        for card in machine.cards() {
            assert_eq!(card.used_memory(), 0);
            assert!(card.processes().is_empty());
        }
    }
    let process = machine.join().unwrap();
    for card in machine.cards() {
        process.take_memory(card.index(), card.total_memory()).unwrap();
    }
}

fn refusal_sweeps() {
    let machine = Machine::open_from_env().unwrap();
    let total = machine.card(0).unwrap().total_memory();
    if role() == "holder" {
        machine.join().unwrap().take_memory(0, total).unwrap();
        say("full");
        pause();
        return;
    }
    let process = machine.join().unwrap();
    let mut peer = Peer::start("holder", &[]);
    peer.expect("full");
    assert_eq!(process.take_memory(0, 1), Err(TakeError::NoMemory));
    peer.kill();
    process.take_memory(0, total).unwrap();
    assert_eq!(process.take_memory(0, 1), Err(TakeError::NoMemory));
    process.give_memory(0, total);
    assert_eq!(process.held_memory(0), 0);
}

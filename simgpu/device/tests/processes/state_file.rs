//! The state file: made once, checked always.

use simgpu_device::{Error, Machine, MachineSettings};

use crate::runner::{Peer, Scenario, pause, role, say, state_path};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "many_processes_that_come_first_at_once_make_one_machine", env: &[], run: race },
    Scenario { name: "a_file_that_is_no_whole_state_is_refused_with_the_reason", env: &[], run: refused },
    Scenario {
        name: "cards_are_who_they_are_by_their_place",
        env: &[("SIMGPU_CARDS", "2,T4")],
        run: identity,
    },
    Scenario {
        name: "a_card_list_that_makes_no_sense_makes_no_machine",
        env: &[("SIMGPU_CARDS", "2xB9000")],
        run: bad_cards,
    },
];

fn race() {
    if role() == "comer" {
        pause();
        let machine = Machine::open_from_env().unwrap();
        machine.join().unwrap().take_memory(0, 512).unwrap();
        say("open");
        pause();
        return;
    }
    let mut peers: Vec<_> = (0..8).map(|_| Peer::start("comer", &[])).collect();
    peers.iter_mut().for_each(Peer::go_on);
    for peer in &mut peers {
        peer.expect("open");
    }
    let machine = Machine::open_from_env().unwrap();
    assert_eq!(machine.card(0).unwrap().processes().len(), 8);
    let files = std::fs::read_dir(state_path().parent().unwrap()).unwrap();
    let mut left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["state", "state.shared"], "something was left behind");
}

fn refused() {
    Machine::open_from_env().unwrap();
    let whole = std::fs::read(state_path()).unwrap();
    let other = state_path().with_extension("other");
    let open = |bytes: &[u8]| {
        std::fs::write(&other, bytes).unwrap();
        Machine::open(&MachineSettings::new(&other, "1").unwrap()).unwrap_err()
    };
    assert!(matches!(open(b""), Error::NotAStateFile { .. }));
    assert!(matches!(open(b"not a state file, but long enough"), Error::NotAStateFile { .. }));
    assert!(matches!(open(&whole[..whole.len() / 2]), Error::Truncated { .. }));
    let mut newer = whole;
    newer[8] += 1;
    assert!(matches!(open(&newer), Error::OtherLayout { found, wanted, .. } if found == wanted + 1));
    newer[8] -= 1;
    newer[12] = 0;
    assert!(matches!(open(&newer), Error::NotAStateFile { .. }));
}

fn identity() {
    let machine = Machine::open_from_env().unwrap();
    let cards: Vec<_> = machine.cards().collect();
    assert_eq!(cards.len(), 3);
    let mut uuids: Vec<_> = cards.iter().map(simgpu_device::Card::uuid).collect();
    uuids.dedup();
    assert_eq!(uuids.len(), 3);
    // Fixed for ever: scripts and journals name cards by these.
    assert_eq!(cards[0].uuid().to_string(), "GPU-1cc30521-ce8d-87c6-bbfe-34fc8871e997");
    assert_eq!(cards[1].pci().to_string(), "00000000:0F:00.0");
    assert_eq!(cards[2].total_memory(), 16 << 30);
    assert!(cards.iter().all(|card| card.name().ends_with("(simulated)")));
    // What the environment says later changes nothing.
    let again = Machine::open(&MachineSettings::new(state_path(), "7").unwrap()).unwrap();
    assert_eq!(again.card_count(), 3);
}

fn bad_cards() {
    assert!(matches!(Machine::open_from_env(), Err(Error::Cards { .. })));
    assert!(!state_path().exists());
}

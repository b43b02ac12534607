//! Device time is one queue for all processes, and shows as utilisation.

use simgpu_device::{Machine, now_ns, sleep_until};

use crate::runner::{Peer, Scenario, pause, role, say};

const MS: u64 = 1_000_000;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "bookings_of_two_processes_never_overlap", env: &[], run: no_overlap },
    Scenario {
        name: "work_shows_as_utilisation_of_the_card_and_of_its_process_only",
        env: &[],
        run: utilisation,
    },
];

fn no_overlap() {
    let machine = Machine::open_from_env().unwrap();
    let process = machine.join().unwrap();
    let book = || (0..200).map(|_| process.book(0, 0, 10_000).unwrap()).collect::<Vec<_>>();
    if role() == "booker" {
        say("ready");
        pause();
        for booking in book() {
            say(&format!("{} {}", booking.start, booking.end));
        }
        return;
    }
    let mut peer = Peer::start("booker", &[]);
    peer.expect("ready");
    peer.go_on();
    let mut bookings: Vec<_> = book().into_iter().map(|booking| (booking.start, booking.end)).collect();
    for _ in 0..200 {
        let line = peer.hear();
        let (start, end) = line.split_once(' ').unwrap();
        bookings.push((start.parse().unwrap(), end.parse().unwrap()));
    }
    bookings.sort_unstable();
    assert!(bookings.iter().all(|(start, end)| end - start == 10_000));
    assert!(bookings.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

fn utilisation() {
    let machine = Machine::open_from_env().unwrap();
    let card = machine.card(0).unwrap();
    if role() == "idler" {
        machine.join().unwrap().open_context(0).unwrap();
        say("ready");
        pause();
        return;
    }
    let mut peer = Peer::start("idler", &[]);
    peer.expect("ready");
    let process = machine.join().unwrap();
    process.open_context(0).unwrap();
    assert_eq!(card.utilisation(), 0);
    // Three seconds of work are booked: at any moment of the third one the second before was busy.
    let first = process.book(0, 0, 1000 * MS).unwrap();
    let middle = process.book(0, 0, 1000 * MS).unwrap();
    process.book(0, 0, 1000 * MS).unwrap();
    sleep_until(middle.end);
    let (whole, listed) = (card.utilisation(), card.processes());
    assert!(now_ns() < middle.end + 1000 * MS, "the machine is too slow to tell");
    assert!(first.end <= middle.start);
    assert!(whole >= 99, "{whole}");
    for one in listed {
        let busy = one.pid == Some(std::process::id());
        assert_eq!(one.utilisation >= 99, busy, "{one:?}");
        assert_eq!(one.utilisation == 0, !busy, "{one:?}");
    }
}

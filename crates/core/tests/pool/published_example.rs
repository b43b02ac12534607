//! The published notebook example, as its figure shows it: A, B (50/50) and C, D (50/100) on two cards.

use crate::harness::{Node, pod_with};
use gpupool_core::pool::{Event, Pool};

/// What the figure shows at one moment: `card 0: A    card 1: C    queue: D, B`.
fn figure(pool: &Pool) -> String {
    let list = |names: Vec<String>| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
    let mut columns: Vec<String> = pool
        .cards()
        .map(|card| {
            let mut pods: Vec<_> = card.pods.iter().map(ToString::to_string).collect();
            pods.sort();
            format!("card {}: {}", card.index, list(pods))
        })
        .collect();
    columns.push(format!("queue: {}", list(pool.queue().map(|entry| entry.pod.to_string()).collect())));
    columns.join("    ")
}

#[test]
fn t1_and_t2_are_as_published() {
    let mut node = Node::share_pool(2);
    for (name, share) in [("A", "50:50"), ("B", "50:50"), ("C", "50:100"), ("D", "50:100")] {
        node.add(name, pod_with(share, share, 0));
    }
    let table = [
        // who does what            what the figure shows then
        ("A wants a card", "card 0: A    card 1: -    queue: -"),
        ("C wants a card", "card 0: A    card 1: C    queue: -"),
        ("D wants a card", "card 0: A    card 1: C    queue: D"),
        ("B wants a card", "card 0: A    card 1: C    queue: D, B"), // T1
        ("C ends", "card 0: A, B    card 1: D    queue: -"),         // T2
    ];
    for (moment, (what, shown)) in (0_u64..).zip(table) {
        let name = &what[..1];
        let event = if what.ends_with("wants a card") {
            Event::GpuWanted { pod: name.into(), only: None }
        } else {
            node.release_of(name)
        };
        node.step(moment, event);
        assert_eq!(figure(&node.pool), shown, "after `{what}`");
    }
}

#[test]
fn requests_decide_who_is_on_the_node_and_limits_who_runs() {
    let mut node = Node::share_pool(1);
    node.add("A", pod_with("50:100", "50:100", 0));
    node.add("B", pod_with("50:100", "50:100", 0));
    node.want(0, "A");
    node.want(0, "B");
    assert_eq!(figure(&node.pool), "card 0: A    queue: B");
}

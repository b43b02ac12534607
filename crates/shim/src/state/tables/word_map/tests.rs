use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const BASE: u64 = 0x7f00_0000_0000;

const TAG: u16 = 7;

fn value(number: u64) -> u64 {
    tagged(TAG, number)
}

fn tagged(tag: u16, number: u64) -> u64 {
    (u64::from(tag) << TAG_SHIFT) | number
}

fn address(n: u64) -> u64 {
    BASE + n * 512
}

#[test]
fn what_is_put_in_comes_out_once() {
    let map = WordMap::new();
    assert_eq!(map.remove(address(1)), None);
    assert_eq!(map.insert(address(1), value(512)), Ok(None));
    assert_eq!(map.remove(address(1)), Some(value(512)));
    assert_eq!(map.remove(address(1)), None);
}

#[test]
fn nothing_is_kept_at_key_zero() {
    let map = WordMap::new();
    assert_eq!(map.insert(0, value(1)), Err(NoRoom));
    assert_eq!(map.remove(0), None);
}

#[test]
fn an_address_that_is_used_again_gives_back_what_lay_there() {
    let map = WordMap::new();
    map.insert(address(1), value(512)).unwrap();
    assert_eq!(map.insert(address(1), value(1024)), Ok(Some(value(512))));
    assert_eq!(map.remove(address(1)), Some(value(1024)));
}

#[test]
fn values_with_a_tag_go_together_and_others_stay() {
    let map = WordMap::new();
    for n in 1..=2_000 {
        let tag = if n % 2 == 0 { TAG } else { 0xffff };
        map.insert(address(n), tagged(tag, 512)).unwrap();
    }
    assert_eq!(map.sum_tagged(0xffff), 1_000 * 512);
    assert_eq!(map.remove_tagged(TAG), 1_000 * 512);
    assert_eq!(map.remove_tagged(TAG), 0);
    assert_eq!(map.remove(address(2)), None);
    assert_eq!(map.sum_tagged(0xffff), 1_000 * 512);
    assert!(map.remove(address(1_999)).is_some());
}

#[test]
fn values_with_a_tag_are_taken_one_by_one() {
    let map = WordMap::new();
    for n in 1..=3 {
        map.insert(address(n), tagged(if n == 2 { 0 } else { TAG }, n)).unwrap();
    }
    let taken = [map.take_tagged(TAG), map.take_tagged(TAG)].map(|value| value.map(|value| value & 0xff));
    assert!(taken == [Some(1), Some(3)] || taken == [Some(3), Some(1)], "{taken:?}");
    assert_eq!(map.take_tagged(TAG), None);
    assert_eq!(map.get(address(2)), Some(2));
}

#[test]
fn threads_do_not_lose_each_others_values() {
    let map = WordMap::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20 {
                    for n in 0..500 {
                        let at = address(1 + n * 4 + thread);
                        assert_eq!(map.insert(at, value(round + 1)), Ok(None));
                    }
                    for n in 0..500 {
                        let at = address(1 + n * 4 + thread);
                        assert_eq!(map.remove(at), Some(value(round + 1)));
                    }
                }
            });
        }
    });
    assert_eq!(map.sum_tagged(TAG), 0);
}

/// Not a measure of speed but of growth: a pair with 100,000 live may cost cache misses, not a walk over them.
#[test]
fn the_cost_of_a_pair_does_not_grow_with_what_is_live() {
    let map = WordMap::new();
    let pairs = |map: &WordMap| {
        let begin = Instant::now();
        for n in 0..50_000 {
            let at = address(1_000_000 + n % 64);
            map.insert(at, value(512)).unwrap();
            map.remove(at).unwrap();
        }
        begin.elapsed()
    };
    let few = (0..5).map(|_| pairs(&map)).min().unwrap();
    for n in 1..=100_000 {
        map.insert(address(n), value(512)).unwrap();
    }
    let many = (0..5).map(|_| pairs(&map)).min().unwrap();
    assert!(many < few * 50, "{few:?} with none live, {many:?} with 100,000");
}

proptest! {
    #[test]
    fn it_answers_as_a_plain_map_would(
        steps in proptest::collection::vec((any::<bool>(), 1..600_u64, 1..1_000_u64), 0..2_000)
    ) {
        let map = WordMap::new();
        let mut plain = HashMap::new();
        for (put, n, bytes) in steps {
            if put {
                let before = map.insert(address(n), value(bytes)).unwrap();
                prop_assert_eq!(before, plain.insert(n, value(bytes)));
            } else {
                prop_assert_eq!(map.remove(address(n)), plain.remove(&n));
            }
        }
        let total: u64 = plain.values().map(|value| value & ((1 << TAG_SHIFT) - 1)).sum();
        prop_assert_eq!(map.sum_tagged(TAG), total);
    }
}

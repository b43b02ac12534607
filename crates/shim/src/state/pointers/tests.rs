use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const BASE: u64 = 0x7f00_0000_0000;

fn piece(bytes: u64) -> Allocation {
    Allocation { bytes, owner: Owner::context(0) }
}

fn address(n: u64) -> u64 {
    BASE + n * 512
}

#[test]
fn what_is_put_in_comes_out_once() {
    let map = PointerMap::new();
    assert_eq!(map.remove(address(1)), None);
    assert_eq!(map.insert(address(1), piece(512)), Ok(None));
    assert_eq!(map.remove(address(1)), Some(piece(512)));
    assert_eq!(map.remove(address(1)), None);
}

#[test]
fn nothing_lies_at_address_zero() {
    let map = PointerMap::new();
    assert_eq!(map.insert(0, piece(1)), Err(NoRoom));
    assert_eq!(map.remove(0), None);
}

#[test]
fn an_address_that_is_used_again_gives_back_what_lay_there() {
    let map = PointerMap::new();
    map.insert(address(1), piece(512)).unwrap();
    assert_eq!(map.insert(address(1), piece(1024)), Ok(Some(piece(512))));
    assert_eq!(map.remove(address(1)), Some(piece(1024)));
}

#[test]
fn the_largest_card_fits_into_a_piece() {
    let large = Allocation { bytes: (1 << 48) - 512, owner: Owner::pool(63) };
    assert_eq!(Allocation::unpack(large.pack()), large);
    assert_eq!(large.owner.as_pool(), Some(63));
    assert_eq!(Owner::context(3).as_pool(), None);
    assert_eq!(Owner::context(usize::MAX), Owner::UNKNOWN);
}

#[test]
fn an_owners_pieces_go_with_it_and_others_stay() {
    let map = PointerMap::new();
    for n in 1..=2_000 {
        let owner = if n % 2 == 0 { Owner::context(0) } else { Owner::pool(0) };
        map.insert(address(n), Allocation { bytes: 512, owner }).unwrap();
    }
    assert_eq!(map.owned_by(Owner::pool(0)), 1_000 * 512);
    assert_eq!(map.remove_owner(Owner::context(0)), 1_000 * 512);
    assert_eq!(map.remove_owner(Owner::context(0)), 0);
    assert_eq!(map.remove(address(2)), None);
    assert_eq!(map.owned_by(Owner::pool(0)), 1_000 * 512);
    assert!(map.remove(address(1_999)).is_some());
}

#[test]
fn threads_do_not_lose_each_others_pieces() {
    let map = PointerMap::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20 {
                    for n in 0..500 {
                        let at = address(1 + n * 4 + thread);
                        assert_eq!(map.insert(at, piece(round + 1)), Ok(None));
                    }
                    for n in 0..500 {
                        let at = address(1 + n * 4 + thread);
                        assert_eq!(map.remove(at), Some(piece(round + 1)));
                    }
                }
            });
        }
    });
    assert_eq!(map.owned_by(Owner::context(0)), 0);
}

/// Not a measure of speed but of growth: a pair with 100,000 live may cost cache misses, not a walk over them.
#[test]
fn the_cost_of_a_pair_does_not_grow_with_what_is_live() {
    let map = PointerMap::new();
    let pairs = |map: &PointerMap| {
        let begin = Instant::now();
        for n in 0..50_000 {
            let at = address(1_000_000 + n % 64);
            map.insert(at, piece(512)).unwrap();
            map.remove(at).unwrap();
        }
        begin.elapsed()
    };
    let few = (0..5).map(|_| pairs(&map)).min().unwrap();
    for n in 1..=100_000 {
        map.insert(address(n), piece(512)).unwrap();
    }
    let many = (0..5).map(|_| pairs(&map)).min().unwrap();
    assert!(many < few * 50, "{few:?} with none live, {many:?} with 100,000");
}

proptest! {
    #[test]
    fn it_answers_as_a_plain_map_would(
        steps in proptest::collection::vec((any::<bool>(), 1..600_u64, 1..1_000_u64), 0..2_000)
    ) {
        let map = PointerMap::new();
        let mut plain = HashMap::new();
        for (put, n, bytes) in steps {
            if put {
                let before = map.insert(address(n), piece(bytes)).unwrap();
                prop_assert_eq!(before, plain.insert(n, piece(bytes)));
            } else {
                prop_assert_eq!(map.remove(address(n)), plain.remove(&n));
            }
        }
        let total: u64 = plain.values().map(|piece| piece.bytes).sum();
        prop_assert_eq!(map.owned_by(Owner::context(0)), total);
    }
}

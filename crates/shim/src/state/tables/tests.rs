use super::*;

#[test]
fn the_largest_card_fits_into_an_allocation() {
    let large = Allocation { bytes: (1 << 48) - 512, owner: Owner::pool(63) };
    assert_eq!(Allocation::from_word(large.word()), large);
    assert_eq!(large.owner.as_pool(), Some(63));
    assert_eq!(Owner::context(3).as_pool(), None);
    assert_eq!(Owner::context(usize::MAX), Owner::UNKNOWN);
}

#[test]
fn every_value_comes_back_from_its_word() {
    fn same<V: Value + PartialEq>(value: V) -> bool {
        V::from_word(value.word()) == value
    }
    let (memory, array) = (PhysicalMemory::created(0x7f12_3456_7890_abcd), ArrayNumber::of(ArrayHandle(12)));
    assert!(same(TileMapping { memory, array }) && same(memory) && same(array));
    assert!(same(PhysicalMemory::external(0x51)) && same(PhysicalMemory::opened(0x7f00_0000_0000)));
    assert!(same(ExportedAllocation { place: SharedPlace(0), owner: Owner::context(5) }));
    assert!(same(SharedPlace(1023)) && same(References(3)) && same(Bytes(1 << 47)));
    assert!(same(MemoryKey::new(0)) && same(MemoryKey::new(1 << 47)));
}

#[test]
fn a_table_keeps_its_own_and_no_others() {
    let tables = Tables::new();
    tables.lengths.set(Address(4096), Bytes(7));
    assert_eq!(tables.lengths.get(Address(4096)), Some(Bytes(7)));
    assert_eq!((tables.mappings.get(Address(4096)), tables.allocations.get(Address(4096))), (None, None));
    assert_eq!(tables.lengths.remove(Address(4096)), Some(Bytes(7)));
    assert_eq!(tables.lengths.get(Address(4096)), None);
    assert_eq!(tables.lengths.insert(Address(0), Bytes(7)), Err(NoRoom));
}

#[test]
fn where_memory_comes_from_tells_handles_of_one_number_apart() {
    let handle = 0x51;
    let known =
        [PhysicalMemory::created(handle), PhysicalMemory::external(handle), PhysicalMemory::opened(handle)];
    let tables = Tables::new();
    for (count, memory) in (1..).zip(known) {
        tables.references.set(memory, References(count));
    }
    assert_eq!(
        known.map(|memory| tables.references.get(memory).map(|count| count.0)),
        [Some(1), Some(2), Some(3)]
    );
}

#[test]
fn everything_that_is_charged_to_an_owner_goes_with_it() {
    let tables = Tables::new();
    let (theirs, others) = (Owner::context(0), Owner::context(1));
    let of = |owner, bytes| Allocation { bytes, owner };
    tables.allocations.set(Address(512), of(theirs, 1));
    tables.arrays.set(ArrayHandle(512), of(theirs, 10));
    tables.loaded.set(LoadedHandle(512), of(theirs, 100));
    tables.context_limits.set(ContextHandle(512), of(theirs, 1_000));
    tables.allocations.set(Address(1024), of(others, 5));
    // Where it is charged is no number of bytes.
    tables.exported.set(Address(512), ExportedAllocation { place: SharedPlace(64), owner: theirs });
    assert_eq!(tables.remove_owner(theirs), 1_111);
    assert_eq!((tables.remove_owner(theirs), tables.allocations.owned_by(others)), (0, 5));
    assert_eq!(tables.exported.take_one(others), None);
    assert_eq!(tables.exported.take_one(theirs).map(|exported| exported.place), Some(SharedPlace(64)));
    assert_eq!(tables.exported.take_one(theirs), None);
}

#[test]
fn what_was_remembered_of_a_thing_before_is_given_back() {
    let tables = Tables::new();
    let piece = |bytes| Allocation { bytes, owner: Owner::context(0) };
    let entry = tables.arrays.entry(ArrayHandle(8));
    assert_eq!((entry.handle(), entry.remove()), (8, None));
    assert_eq!(entry.insert(piece(512)), Ok(None));
    assert_eq!(entry.insert(piece(1024)), Ok(Some(piece(512))));
    assert_eq!(tables.arrays.get(ArrayHandle(8)), Some(piece(1024)));
    assert_eq!(entry.remove(), Some(piece(1024)));
}

//! Differences between a statement and the sink.

use std::collections::BTreeSet;

use super::{
    Fixture,
    rig::{Rig, difference, everything, item, item_key, item_keys, line_key, line_keys, range, read_id, selected},
};
use crate::{Difference, DifferenceQuery, Extent, KeyBound, KeyList, KeySet, MergedChange, Offset, Removal, Unit};

pub(super) async fn a_range_has_bounds_of_every_kind(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([i64::MIN, -5, 0, 2, 4, 5, 6, 8, i64::MAX]).await;
    let (inclusive, exclusive) = (|id| KeyBound::Inclusive(item_key(id)), |id| KeyBound::Exclusive(item_key(id)));
    let all: &[i64] = &[i64::MIN, -5, 0, 2, 4, 5, 6, 8, i64::MAX];
    let cases: [(KeyBound, KeyBound, &[i64]); 14] = [
        (KeyBound::Open, KeyBound::Open, all),
        (KeyBound::Open, inclusive(2), &[i64::MIN, -5, 0, 2]),
        (KeyBound::Open, exclusive(2), &[i64::MIN, -5, 0]),
        (inclusive(4), KeyBound::Open, &[4, 5, 6, 8, i64::MAX]),
        (exclusive(4), KeyBound::Open, &[5, 6, 8, i64::MAX]),
        (inclusive(2), inclusive(6), &[2, 4, 5, 6]),
        (inclusive(2), exclusive(6), &[2, 4, 5]),
        (exclusive(2), inclusive(6), &[4, 5, 6]),
        (exclusive(2), exclusive(6), &[4, 5]),
        // Bounds that are no rows; bounds that meet.
        (exclusive(-6), exclusive(1), &[-5, 0]),
        (inclusive(4), inclusive(4), &[4]),
        (exclusive(4), inclusive(4), &[]),
        (exclusive(4), exclusive(4), &[]),
        (exclusive(i64::MAX), KeyBound::Open, &[]),
    ];
    let (items, none) = (rig.items.clone(), KeyList::new());

    let mut unit = rig.begin().await;
    for (lower, upper, expected) in cases {
        let extent = range(lower, upper);
        let found = difference(&mut unit, &items, &extent, &selected(&[]), &none).await;
        assert_eq!(found.orphans, item_keys(expected), "{extent:?}");
        assert_eq!((found.orphan_count, found.in_range), (expected.len() as u64, expected.len() as u64), "{extent:?}");
    }
}

pub(super) async fn a_range_of_composite_keys_is_in_byte_order(fixture: &impl Fixture) {
    // In byte order. Languages sort "a b" behind "aa" and "B" behind "b"; UTF-16 sorts U+FFFD behind U+1F600.
    let rows = [
        ("", 0),
        (" ", 3),
        ("A", 1),
        ("B", 1),
        ("a", -7),
        ("a", 0),
        ("a", 1),
        ("a\u{1}", -9),
        ("a b", 0),
        ("aa", 0),
        ("b", i64::MIN),
        ("b", i64::MAX),
        ("é", 0),
        ("\u{fffd}", 0),
        ("\u{1f600}", 0),
    ];
    let mut rig = Rig::new(fixture).await;
    rig.make_lines(&rows).await;
    let inclusive = |code: &str, line| KeyBound::Inclusive(line_key(code, line));
    let exclusive = |code: &str, line| KeyBound::Exclusive(line_key(code, line));
    let cases = [
        (KeyBound::Open, KeyBound::Open, 0..15),
        (KeyBound::Open, exclusive("a", 0), 0..5),
        (exclusive("a", 0), inclusive("aa", 0), 6..10),
        (inclusive("a", 0), exclusive("a", 1), 5..6),
        (exclusive("a", -100), exclusive("b", 0), 4..11),
        (exclusive("a", i64::MAX), exclusive("a a", 0), 7..8),
        (inclusive("B", 2), inclusive("a", -7), 4..5),
        (exclusive("b", i64::MIN), KeyBound::Open, 11..15),
        (inclusive("é", 0), exclusive("\u{1f600}", 0), 12..14),
    ];
    let (lines, none) = (rig.lines.clone(), KeyList::new());

    let mut unit = rig.begin().await;
    for (lower, upper, expected) in cases {
        let extent = range(lower, upper);
        let found = difference(&mut unit, &lines, &extent, &selected(&[]), &none).await;
        assert_eq!(found.orphans, line_keys(&rows[expected]), "{extent:?}");
    }
    let all_but_two = KeySet::List(line_keys(&[&rows[..3], &rows[4..12], &rows[13..]].concat()));
    let found = difference(&mut unit, &lines, &everything(), &all_but_two, &none).await;
    assert_eq!(found.orphans, line_keys(&[rows[3], rows[12]]));
    assert_eq!((found.orphan_count, found.missing_count, found.in_range), (2, 0, 15));
}

pub(super) async fn a_difference_over_listed_keys_looks_at_no_others(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=10).await;
    rig.make_lines(&[("a", 1), ("a", 2), ("b", 1)]).await;
    let (items, lines) = (rig.items.clone(), rig.lines.clone());

    // Asked for: 3 at both, 4 orphan, 5 spared, 11 at the source only, 12 at neither.
    let asked = Extent::Keys(item_keys(&[3, 4, 5, 11, 12]));
    let asked_lines = Extent::Keys(line_keys(&[("a", 2), ("b", 0), ("b", 1)]));
    let mut unit = rig.begin().await;
    let found = difference(&mut unit, &items, &asked, &selected(&[3, 11]), &item_keys(&[5])).await;
    let found_lines = difference(&mut unit, &lines, &asked_lines, &selected(&[]), &KeyList::new()).await;
    let nothing = difference(&mut unit, &items, &Extent::Keys(KeyList::new()), &selected(&[]), &KeyList::new()).await;

    let expected = Difference {
        orphans: item_keys(&[4]),
        orphan_count: 1,
        missing: item_keys(&[11]),
        missing_count: 1,
        in_range: 3,
    };
    assert_eq!(found, expected);
    assert_eq!((found_lines.orphans, found_lines.in_range), (line_keys(&[("a", 2), ("b", 1)]), 2));
    assert_eq!(nothing, Difference::default());
}

pub(super) async fn spared_keys_are_neither_orphans_nor_missing(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2, 3, 12]).await;
    let items = rig.items.clone();
    let extent = range(KeyBound::Open, KeyBound::Inclusive(item_key(10)));

    // At sink and source: 1; at the sink: 2, 3; at the source: 5 to 7. Spared: 3 and 6, and some beyond the range.
    let spared = item_keys(&[-4, 3, 6, 12, 40]);
    let intervals = KeySet::Intervals(vec![(1, 1), (5, 7)]);
    let mut unit = rig.begin().await;
    let by_list = difference(&mut unit, &items, &extent, &selected(&[1, 5, 6, 7]), &spared).await;
    let by_intervals = difference(&mut unit, &items, &extent, &intervals, &spared).await;

    let expected = Difference {
        orphans: item_keys(&[2]),
        orphan_count: 1,
        missing: item_keys(&[5, 7]),
        missing_count: 2,
        in_range: 3,
    };
    assert_eq!(by_list, expected);
    assert_eq!(by_intervals, expected);
}

pub(super) async fn a_difference_counts_all_and_names_the_first(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=20).await;
    let items = rig.items.clone();
    let (extent, selected, none) = (everything(), KeySet::Intervals(vec![(11, 40)]), KeyList::new());

    let mut unit = rig.begin().await;
    for (name_orphans, name_missing) in [(3, 2), (0, 0), (10, 20), (100, 100)] {
        let query = DifferenceQuery {
            table: &items,
            extent: &extent,
            selected: &selected,
            spared: &none,
            name_orphans,
            name_missing,
        };
        let found = unit.difference(&query).await.expect("the difference can be found");
        let named =
            |from: i64, limit: usize, of: i64| item_keys(&(from..from + of.min(limit as i64)).collect::<Vec<_>>());
        assert_eq!((found.orphan_count, found.missing_count, found.in_range), (10, 20, 20));
        assert_eq!(found.orphans, named(1, name_orphans, 10));
        assert_eq!(found.missing, named(21, name_missing, 20));
    }
}

pub(super) async fn a_difference_sees_the_unit_s_own_writes(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=5).await;
    let (items, ids, read, none) = (rig.items.clone(), item_keys(&[4]), read_id("r"), KeyList::new());
    let batch = rig.item_batch(vec![
        (item_key(2), MergedChange::Delete),
        (item_key(3), MergedChange::Upsert(item(3, "changed"))),
        (item_key(6), MergedChange::Upsert(item(6, "made"))),
    ]);

    let mut unit = rig.begin().await;
    unit.write(&batch).await.expect("the batch can be written");
    let removal = Removal { table: &items, keys: &ids, read_id: &read, offset: Offset(1) };
    unit.remove(&removal).await.expect("rows can be removed");
    let by_range = difference(&mut unit, &items, &everything(), &selected(&[]), &none).await;
    let asked = Extent::Keys(item_keys(&[2, 4, 6]));
    let by_keys = difference(&mut unit, &items, &asked, &selected(&[]), &none).await;
    unit.truncate(&items).await.expect("the table can be truncated");
    let empty = difference(&mut unit, &items, &everything(), &selected(&[]), &none).await;

    assert_eq!(by_range.orphans, item_keys(&[1, 3, 5, 6]));
    assert_eq!(by_keys.orphans, item_keys(&[6]));
    assert_eq!(empty, Difference::default());
}

/// Enough rows to fill several pages of any listing.
pub(super) async fn a_difference_goes_on_over_many_rows(fixture: &impl Fixture) {
    const ROWS: i64 = 30_000;
    let mut rig = Rig::new(fixture).await;
    rig.make_items((1..=ROWS).filter(|id| id % 997 != 0)).await;
    let (items, none) = (rig.items.clone(), KeyList::new());
    let source = (1..=ROWS).filter(|id| id % 1_009 != 0).collect::<Vec<_>>();
    let multiples = |of: i64| item_keys(&(1..=ROWS / of).map(|n| n * of).collect::<Vec<_>>());

    let mut unit = rig.begin().await;
    let found = difference(&mut unit, &items, &everything(), &selected(&source), &none).await;
    let asked = Extent::Keys(item_keys(&(1..=ROWS).collect::<Vec<_>>()));
    let asked_found = difference(&mut unit, &items, &asked, &selected(&source), &none).await;

    assert_eq!((found.orphan_count, found.missing_count), (29, 30));
    assert_eq!((&found.orphans, &found.missing), (&multiples(1_009), &multiples(997)));
    assert_eq!(found.in_range, (ROWS - 30) as u64);
    assert_eq!(asked_found, found);
}

/// Runs of integers have a short way in some sinks; what it finds is what any way finds.
pub(super) async fn keys_close_together_are_compared_as_any_others(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let sink: BTreeSet<i64> = (1..=400).filter(|id| ![37, 38, 200].contains(id)).chain([i64::MIN, -3, 410]).collect();
    rig.make_items(sink.iter().copied()).await;
    let items = rig.items.clone();
    let ids = |from: i64, to: i64, but: &[i64]| (from..=to).filter(|id| !but.contains(id)).collect::<BTreeSet<_>>();
    let (open, inclusive, exclusive) =
        (KeyBound::Open, |id| KeyBound::Inclusive(item_key(id)), |id| KeyBound::Exclusive(item_key(id)));
    let orphans = [50, 51, 100, 333];
    let cases: [(KeyBound, KeyBound, BTreeSet<i64>, &[i64]); 9] = [
        // Nothing missing: 37, 38 and 200 are at neither side, or they are spared.
        (exclusive(0), inclusive(400), ids(1, 400, &[37, 38, 50, 51, 100, 200, 333]), &[]),
        (exclusive(0), inclusive(400), ids(1, 400, &orphans), &[37, 38, 100, 200, 399]),
        (inclusive(1), exclusive(300), ids(1, 299, &[37, 38, 50, 51, 200]), &[-3, 50, 410]),
        (inclusive(i64::MIN), inclusive(400), ids(1, 400, &[37, 38, 200]), &[]),
        (open.clone(), open.clone(), ids(1, 400, &[37, 38, 50, 200]), &[i64::MIN]),
        (exclusive(390), open.clone(), ids(391, 410, &(401..=409).collect::<Vec<_>>()), &[]),
        // Something missing, with orphans and spared ones beside it.
        (exclusive(0), inclusive(400), ids(1, 400, &orphans), &[]),
        (exclusive(0), inclusive(400), ids(1, 400, &orphans), &[37, 100, 399]),
        (open, inclusive(409), ids(-3, 409, &orphans), &[402]),
    ];

    let mut unit = rig.begin().await;
    for (lower, upper, source, spared) in cases {
        let extent = range(lower, upper);
        let Extent::Range(within) = &extent else { unreachable!("it is a range") };
        let in_range: Vec<i64> = sink.iter().copied().filter(|id| within.contains(item_key(*id).as_bytes())).collect();
        let free = |id: &i64| !spared.contains(id);
        let orphans: Vec<i64> = in_range.iter().copied().filter(|id| !source.contains(id)).filter(free).collect();
        let missing: Vec<i64> = source.iter().copied().filter(|id| !sink.contains(id)).filter(free).collect();
        let expected = Difference {
            orphan_count: orphans.len() as u64,
            orphans: item_keys(&orphans),
            missing_count: missing.len() as u64,
            missing: item_keys(&missing),
            in_range: in_range.len() as u64,
        };
        let list: Vec<i64> = source.iter().copied().collect();
        let intervals = KeySet::Intervals(selected(&list).runs(usize::MAX).expect("all are integers"));
        let spared = item_keys(spared);
        let by_list = difference(&mut unit, &items, &extent, &selected(&list), &spared).await;
        let by_intervals = difference(&mut unit, &items, &extent, &intervals, &spared).await;
        assert_eq!(by_list, expected, "{extent:?}");
        assert_eq!(by_intervals, expected, "{extent:?}");
    }
}

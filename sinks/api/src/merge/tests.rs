#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Instant};

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
};

use super::*;
use crate::{Key, KeyBound, KeyRange, key};

fn list(values: impl IntoIterator<Item = i64>) -> KeyList {
    let mut list = KeyList::new();
    values.into_iter().for_each(|value| list.push(&key::int(value)));
    list
}

fn merged(sink: &KeyList, selected: &KeySet, spared: &KeyList, name: usize) -> Difference {
    let mut merge = Merge::new(selected, spared, name, name);
    merge.page(sink.iter()).unwrap();
    merge.finish()
}

/// The paper's running example: keys 1 to 10, 4 and 7 absent at the source, 9 changed in the window.
#[test]
fn orphans_are_the_sink_s_keys_that_are_neither_selected_nor_spared() {
    let selected = KeySet::List(list([1, 2, 3, 5, 6, 8, 9, 10]));

    let difference = merged(&list(1..=10), &selected, &list([9]), 10);

    assert_eq!((difference.orphans, difference.orphan_count), (list([4, 7]), 2));
    assert_eq!((difference.missing, difference.missing_count, difference.in_range), (list([]), 0, 10));
}

#[test]
fn missing_are_the_selected_keys_that_the_sink_lacks_and_that_are_not_spared() {
    let selected = KeySet::Intervals(vec![(1, 6)]);

    let difference = merged(&list([2, 4]), &selected, &list([0, 3, 5, 9]), 10);

    assert_eq!((difference.missing, difference.missing_count), (list([1, 6]), 2));
    assert_eq!((difference.orphan_count, difference.in_range), (0, 2));
}

#[test]
fn a_spared_key_is_neither_orphan_nor_missing_wherever_it_is() {
    let selected = KeySet::List(list([1, 2]));

    // 1: at both, 2: at the source, 3: at the sink, 4: at neither.
    let difference = merged(&list([1, 3]), &selected, &list([1, 2, 3, 4]), 10);

    assert_eq!(difference, Difference { in_range: 2, ..Difference::default() });
}

#[test]
fn names_are_limited_and_counts_are_not() {
    let selected = KeySet::Intervals(vec![(100, 199)]);
    let none = KeyList::new();
    let mut merge = Merge::new(&selected, &none, 3, 0);

    merge.page(list(0..50).iter()).unwrap();
    let difference = merge.finish();

    assert_eq!((difference.orphans, difference.orphan_count), (list([0, 1, 2]), 50));
    assert_eq!((difference.missing, difference.missing_count), (list([]), 100));
}

#[test]
fn an_interval_that_the_sink_lacks_is_counted_at_once_however_long_it_is() {
    let selected = KeySet::Intervals(vec![(-5, i64::MAX)]);

    let difference = merged(&list([-10, 1 << 40]), &selected, &list([-20, -4, 7, 1 << 40, 1 << 50]), 2);

    assert_eq!((difference.orphans, difference.orphan_count), (list([-10]), 1));
    assert_eq!(difference.missing, list([-5, -3]));
    // All but the spared -4, 7 and 2^50 and what the sink holds, 2^40.
    assert_eq!(difference.missing_count, i64::MAX as u64 + 6 - 4);
}

#[test]
fn an_empty_statement_over_an_empty_sink_differs_in_nothing() {
    assert_eq!(merged(&list([]), &KeySet::List(list([])), &list([]), 1), Difference::default());
}

#[test]
fn keys_that_do_not_ascend_are_an_error_within_a_page_and_across_pages() {
    let (selected, none) = (KeySet::List(list([])), KeyList::new());
    let listings: [(&[&[i64]], u64); 5] =
        [(&[&[1, 2, 2]], 3), (&[&[2, 1]], 2), (&[&[1, 2], &[2]], 3), (&[&[1, 5], &[], &[3, 6]], 3), (&[&[1], &[0]], 2)];

    for (pages, at) in listings {
        let mut merge = Merge::new(&selected, &none, 9, 9);
        let outcome = pages.iter().try_for_each(|page| merge.page(list(page.iter().copied()).iter()));
        assert_eq!(outcome, Err(OutOfOrder { at, outside: false }), "{pages:?}");
    }
}

#[test]
fn a_first_key_of_no_bytes_is_in_order() {
    let (selected, none) = (KeySet::List(list([])), KeyList::new());
    let mut merge = Merge::new(&selected, &none, 9, 9);

    assert_eq!(merge.page([b"".as_slice(), b"\0"]), Ok(()));
    assert_eq!(merge.finish().orphan_count, 2);
}

#[test]
fn keys_outside_the_extent_are_an_error_and_never_orphans() {
    let bound = |value: i64| Key::from_encoded(key::int(value));
    let range = Extent::Range(KeyRange { lower: KeyBound::Exclusive(bound(2)), upper: KeyBound::Inclusive(bound(5)) });
    let asked = Extent::Keys(list([3, 5]));
    let (selected, none) = (KeySet::List(list([])), KeyList::new());
    let table = std::sync::Arc::new(crate::TableShape::new(crate::TableName::new("s", "t"), vec![], vec![], vec![]));
    let listed = |extent: &Extent, keys: &[i64]| {
        let query = DifferenceQuery {
            table: &table,
            extent,
            selected: &selected,
            spared: &none,
            name_orphans: 9,
            name_missing: 9,
        };
        let mut merge = Merge::of(&query);
        merge.page(list(keys.iter().copied()).iter())?;
        Ok(merge.finish().orphan_count)
    };

    assert_eq!(listed(&range, &[3, 4, 5]), Ok(3));
    assert_eq!(listed(&range, &[2, 3]), Err(OutOfOrder { at: 1, outside: true }));
    assert_eq!(listed(&range, &[3, 6]), Err(OutOfOrder { at: 2, outside: true }));
    assert_eq!(listed(&asked, &[3, 5]), Ok(2));
    assert_eq!(listed(&asked, &[3, 4]), Err(OutOfOrder { at: 2, outside: true }));
    let message = OutOfOrder { at: 2, outside: true }.to_string();
    assert_eq!(message, "the sink listed key number 2 outside the range");
}

/// Keys of different lengths that begin one another, as text keys do before their ends.
fn some_keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    btree_set(vec(prop::sample::select(vec![0u8, 1, 0xff]), 0..4), 0..24)
}

fn some_ints() -> impl Strategy<Value = BTreeSet<i64>> {
    btree_set(-12..28i64, 0..30)
}

fn packed(keys: &BTreeSet<Vec<u8>>) -> KeyList {
    keys.iter().map(Vec::as_slice).collect()
}

fn expected(
    sink: &BTreeSet<Vec<u8>>,
    selected: &BTreeSet<Vec<u8>>,
    spared: &BTreeSet<Vec<u8>>,
    names: (usize, usize),
) -> Difference {
    let orphans: Vec<&Vec<u8>> = sink.iter().filter(|key| !selected.contains(*key) && !spared.contains(*key)).collect();
    let missing: Vec<&Vec<u8>> = selected.iter().filter(|key| !sink.contains(*key) && !spared.contains(*key)).collect();
    Difference {
        orphans: orphans.iter().take(names.0).map(|key| key.as_slice()).collect(),
        orphan_count: orphans.len() as u64,
        missing: missing.iter().take(names.1).map(|key| key.as_slice()).collect(),
        missing_count: missing.len() as u64,
        in_range: sink.len() as u64,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_merge_is_the_difference_of_sets_whatever_the_pages(
        sink in some_keys(), selected in some_keys(), spared in some_keys(),
        names in (0..6usize, 0..6usize), page in 1..9usize,
    ) {
        let (set, spared_list) = (KeySet::List(packed(&selected)), packed(&spared));
        let mut merge = Merge::new(&set, &spared_list, names.0, names.1);

        for keys in sink.iter().map(Vec::as_slice).collect::<Vec<_>>().chunks(page) {
            merge.page(keys.iter().copied()).unwrap();
        }

        prop_assert_eq!(merge.finish(), expected(&sink, &selected, &spared, names));
    }

    #[test]
    fn intervals_merge_as_the_list_of_their_keys(
        sink in some_ints(), ends in some_ints(), spared in some_ints(), names in (0..6usize, 0..6usize),
    ) {
        let ends: Vec<i64> = ends.into_iter().collect();
        let intervals: Vec<(i64, i64)> = ends.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let as_keys = |values: &BTreeSet<i64>| values.iter().map(|value| key::int(*value).to_vec()).collect::<BTreeSet<_>>();
        let selected = intervals.iter().flat_map(|(low, high)| *low..=*high).collect();
        let (set, spared_list) = (KeySet::Intervals(intervals), list(spared.iter().copied()));
        let mut merge = Merge::new(&set, &spared_list, names.0, names.1);

        merge.page(list(sink.iter().copied()).iter()).unwrap();

        prop_assert_eq!(merge.finish(), expected(&as_keys(&sink), &as_keys(&selected), &as_keys(&spared), names));
    }

    #[test]
    fn a_listing_in_any_other_order_is_an_error(keys in vec(-3..3i64, 0..6)) {
        let (selected, none) = (KeySet::List(list([])), KeyList::new());
        let ascending = keys.windows(2).all(|pair| pair[0] < pair[1]);

        let outcome = Merge::new(&selected, &none, 9, 9).page(list(keys).iter());

        prop_assert_eq!(outcome.is_ok(), ascending);
    }
}

/// `cargo test --release -p sink-api the_merge_costs -- --ignored --nocapture` shows the figures.
#[test]
#[ignore = "a measurement: only a release build says something"]
fn the_merge_costs_well_under_100_ns_a_key() {
    const KEYS: i64 = 1_000_000;
    let text = |value: i64| {
        let (types, id) = ([crate::KeyType::Text, crate::KeyType::Int], format!("customer-{value:09}"));
        let values = [crate::KeyValue::Text(id.into()), crate::KeyValue::Int(value)];
        Key::encode(&types, &values).unwrap()
    };
    let ints = list(0..KEYS);
    let texts: Vec<Key> = (0..KEYS).map(text).collect();
    let texts: KeyList = texts.iter().collect();
    let spared = list((0..KEYS).step_by(1_000));
    let cases = [
        ("integers, list", &ints, KeySet::List(list((0..KEYS).filter(|value| value % 10_000 != 7)))),
        ("integers, intervals", &ints, KeySet::Intervals((0..KEYS / 10).map(|n| (n * 10, n * 10 + 8)).collect())),
        ("text and integer, list", &texts, KeySet::List(texts.clone())),
        ("all orphans", &ints, KeySet::List(KeyList::new())),
        ("all missing", &KeyList::new(), KeySet::List(ints.clone())),
    ];

    for (name, sink, selected) in &cases {
        let start = Instant::now();
        let difference = merged(sink, selected, &spared, 1_000);
        let nanos = start.elapsed().as_nanos() as f64 / KEYS as f64;
        #[allow(clippy::print_stderr)]
        {
            eprintln!("{name}: {nanos:.1} ns a key, {} orphans", difference.orphan_count);
        }
        assert!(cfg!(debug_assertions) || nanos < 100.0, "{name}: {nanos} ns a key");
    }
}

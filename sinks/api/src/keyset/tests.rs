#![allow(clippy::unwrap_used)]

use proptest::{collection::vec, prelude::*};

use super::*;

fn encoded(values: impl IntoIterator<Item = i64>) -> KeyList {
    let mut list = KeyList::new();
    values.into_iter().for_each(|value| list.push(&key::int(value)));
    list
}

fn read(set: &KeySet) -> KeyList {
    let mut cursor = set.cursor();
    let mut keys = KeyList::new();
    while let Some(key) = cursor.key() {
        keys.push(key);
        cursor.advance();
    }
    cursor.advance();
    assert_eq!(cursor.key(), None);
    keys
}

#[test]
fn a_list_keeps_empty_and_repeated_keys_apart() {
    let list: KeyList = [b"b".as_slice(), b"", b"a", b"", b"a"].into_iter().collect();

    assert_eq!(list.iter().collect::<Vec<_>>(), [b"b".as_slice(), b"", b"a", b"", b"a"]);
    assert_eq!((list.len(), list.get(1), list.get(5), list.last()), (5, Some(&b""[..]), None, Some(&b"a"[..])));
    assert_eq!(list.sorted().iter().collect::<Vec<_>>(), [b"".as_slice(), b"a", b"b"]);
}

#[test]
fn a_cleared_list_starts_again() {
    let mut list: KeyList = [b"a".as_slice(), b"b"].into_iter().collect();

    list.clear();
    list.push(b"c");

    assert_eq!(list, [b"c".as_slice()].into_iter().collect());
}

#[test]
fn inversions_are_found_where_neighbours_do_not_ascend() {
    let list = |values: &[i64]| KeySet::List(encoded(values.iter().copied()));
    let cases = [
        (list(&[]), None),
        (list(&[1, 2, 3]), None),
        (list(&[1, 3, 2]), Some((1, 2))),
        (list(&[1, 1]), Some((0, 1))),
        (list(&[-1, -2]), Some((0, 1))),
        (KeySet::Intervals(vec![]), None),
        (KeySet::Intervals(vec![(1, 3), (4, 4), (6, 9)]), None),
        (KeySet::Intervals(vec![(1, 3), (3, 4)]), Some((0, 1))),
        (KeySet::Intervals(vec![(5, 6), (1, 2)]), Some((0, 1))),
        (KeySet::Intervals(vec![(1, 2), (5, 4)]), Some((1, 1))),
    ];

    for (set, expected) in cases {
        assert_eq!(set.first_inversion(), expected, "{set:?}");
    }
}

#[test]
fn intervals_reach_both_ends_of_the_integers() {
    let set = KeySet::Intervals(vec![(i64::MIN, i64::MIN + 1), (-1, 1), (i64::MAX - 1, i64::MAX)]);

    assert_eq!(read(&set), encoded([i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]));
    assert_eq!(set.len(), 7);
}

#[test]
fn an_interval_of_all_integers_is_passed_at_once() {
    let set = KeySet::Intervals(vec![(i64::MIN, i64::MAX)]);
    let mut cursor = set.cursor();

    assert_eq!(cursor.skip_below(Some(&key::int(0))), 1 << 63);
    assert_eq!(cursor.key(), Some(&key::int(0)[..]));
    assert_eq!(cursor.skip_below(Some(&key::int(i64::MAX))), i64::MAX as u64);
    assert_eq!(cursor.key(), Some(&key::int(i64::MAX)[..]));
    assert_eq!(cursor.skip_below(None), 1);
    assert_eq!(cursor.key(), None);
    assert_eq!(set.len(), u64::MAX);
}

#[test]
fn a_bound_that_is_no_integer_still_has_a_place_among_them() {
    let set = KeySet::Intervals(vec![(-2, 2), (i64::MAX, i64::MAX)]);
    let passed = |bound: &[u8]| set.cursor().skip_below(Some(bound));

    assert_eq!(passed(b""), 0);
    assert_eq!(passed(&[0x80]), 2);
    assert_eq!(passed(&[&key::int(0)[..], &[0]].concat()), 3);
    assert_eq!(passed(&[0xff; 9]), 6);
}

/// Ascending intervals that do not overlap; some touch.
fn intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
    vec((0..4i64, 0..4i64), 0..8).prop_map(|steps| {
        let mut next = -12;
        let step = |(gap, width): (i64, i64)| {
            let low = next + gap;
            next = low + width + 1;
            (low, low + width)
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn intervals_and_the_list_of_their_keys_are_one_set(intervals in intervals(), bound in -14..40i64, probe in -14..40i64) {
        let list = encoded(intervals.iter().flat_map(|(low, high)| *low..=*high));
        let (short, long) = (KeySet::Intervals(intervals), KeySet::List(list.clone()));

        prop_assert_eq!(read(&short), list.clone());
        prop_assert_eq!(read(&long), list);
        prop_assert_eq!(short.len(), long.len());
        prop_assert_eq!(short.is_empty(), long.is_empty());
        prop_assert_eq!((short.first_inversion(), long.first_inversion()), (None, None));
        prop_assert_eq!(short.contains(&key::int(probe)), long.contains(&key::int(probe)));
        let (mut short, mut long) = (short.cursor(), long.cursor());
        prop_assert_eq!(short.skip_below(Some(&key::int(bound))), long.skip_below(Some(&key::int(bound))));
        prop_assert_eq!(short.key(), long.key());
        prop_assert_eq!(short.skip_below(None), long.skip_below(None));
    }

    #[test]
    fn a_sorted_list_finds_what_a_set_would(keys in vec(vec(0..3u8, 0..3), 0..20), probe in vec(0..3u8, 0..3)) {
        let list: KeyList = keys.iter().map(Vec::as_slice).collect();
        let model: std::collections::BTreeSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();

        let sorted = list.sorted();

        prop_assert!(sorted.iter().eq(model.iter().copied()));
        prop_assert_eq!(sorted.contains(&probe), model.contains(probe.as_slice()));
        prop_assert_eq!(list.first_inversion().is_none(), list == sorted);
    }
}

#[test]
fn runs_are_as_long_as_they_can_be() {
    let list = KeySet::List(encoded([i64::MIN, -1, 0, 1, 5, 7, 8, i64::MAX]));
    let runs = vec![(i64::MIN, i64::MIN), (-1, 1), (5, 5), (7, 8), (i64::MAX, i64::MAX)];
    assert_eq!(list.runs(5), Some(runs));
    assert_eq!(list.runs(4), None);
    assert_eq!(KeySet::Intervals(vec![(1, 3), (4, 4), (6, i64::MAX)]).runs(2), Some(vec![(1, 4), (6, i64::MAX)]));
    assert_eq!(KeySet::Intervals(vec![(i64::MIN, i64::MAX)]).runs(1), Some(vec![(i64::MIN, i64::MAX)]));
    assert_eq!(KeySet::List([b"text".as_slice()].into_iter().collect()).runs(9), None);
    assert_eq!(KeySet::List(KeyList::new()).runs(0), Some(vec![]));
}

//! Rows that statements remove, and their way back.

use std::time::Duration;

use super::{
    Fixture, ITEMS,
    rig::{Rig, item, item_key, item_keys, lane, line_keys, read_id, table, text},
};
use crate::{MergedChange, Offset, Removal, Row, Sink, SourceName, UndoSelector, Undone, Unit, Value};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// 2100-01-01: after every removal that a test makes.
const FAR_FUTURE_MICROS: i64 = 4_102_444_800_000_000;

pub(super) async fn a_removal_takes_the_rows_that_are_there_and_counts_them(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=5).await;

    let removed = rig.remove_items("r", &[-1, 2, 4, 9]).await;
    let again = rig.remove_items("r2", &[2, 4]).await;
    let nothing = rig.remove_items("r3", &[]).await;

    assert_eq!((removed, again, nothing), (2, 0, 0));
    assert_eq!(rig.ids_now().await, [1, 3, 5]);
}

pub(super) async fn a_removal_and_its_copies_are_one_unit(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    let (items, keys, read) = (rig.items.clone(), item_keys(&[1]), read_id("dropped"));
    let delete = rig.item_batch(vec![(item_key(1), MergedChange::Delete)]);

    let mut unit = rig.begin().await;
    let removal = Removal { table: &items, keys: &keys, read_id: &read, offset: Offset(1) };
    unit.remove(&removal).await.expect("rows can be removed");
    drop(unit);
    rig.apply(&delete).await;
    let undone = undo(fixture, UndoSelector::Read(read)).await;

    // A copy that outlived its unit would bring the row back.
    assert_eq!((restored(&undone), rig.ids_now().await), (0, vec![]));
}

pub(super) async fn an_undo_by_read_brings_whole_rows_back_once(fixture: &impl Fixture) {
    let odd: Row = [Value::Int(2), Value::Null, text("'\\x"), text("é\n\t\"{}\"")].into();
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 3]).await;
    let batch = rig.item_batch(vec![(item_key(2), MergedChange::Upsert(odd.clone()))]);
    rig.apply(&batch).await;
    rig.make_lines(&[("a", 1), ("a\u{1}", 2)]).await;
    let lines_before = rig.lines_now().await;
    remove_lines(&mut rig, "r2", &[("a\u{1}", 2)]).await;
    rig.remove_items("r1", &[1, 2]).await;

    let first = undo(fixture, UndoSelector::Read(read_id("r1"))).await;
    let second = undo(fixture, UndoSelector::Read(read_id("r1"))).await;

    assert_eq!(first, [Undone { table: Some(table(ITEMS)), restored: 2, occupied: 0, failed: vec![] }]);
    assert_eq!(restored(&second), 0);
    assert_eq!(rig.items_now().await, [item(1, "n"), odd, item(3, "n")]);
    assert_eq!(rig.lines_now().await.len(), 1);
    undo(fixture, UndoSelector::Read(read_id("r2"))).await;
    assert_eq!(rig.lines_now().await, lines_before);

    // Gone by the stream since: the copy was used and does not come back.
    let batch = rig.item_batch(vec![(item_key(1), MergedChange::Delete)]);
    rig.apply(&batch).await;
    assert_eq!(restored(&undo(fixture, UndoSelector::Read(read_id("r1"))).await), 0);
    assert_eq!(rig.ids_now().await, [2, 3]);
}

pub(super) async fn an_undo_by_table_brings_back_what_was_removed_since(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=4).await;
    rig.make_lines(&[("a", 1)]).await;
    rig.remove_items("r1", &[1]).await;
    rig.remove_items("r2", &[3]).await;
    remove_lines(&mut rig, "r3", &[("a", 1)]).await;
    let since = |since| UndoSelector::Table { table: table(ITEMS), since };

    let none = undo(fixture, since(FAR_FUTURE_MICROS)).await;
    let all = undo(fixture, since(0)).await;

    assert_eq!(restored(&none), 0);
    assert_eq!(all, [Undone { table: Some(table(ITEMS)), restored: 2, occupied: 0, failed: vec![] }]);
    assert_eq!(rig.ids_now().await, [1, 2, 3, 4]);
    assert!(rig.lines_now().await.is_empty());
}

pub(super) async fn an_undo_never_writes_over_a_row(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2]).await;
    rig.remove_items("r", &[1, 2]).await;
    let batch = rig.item_batch(vec![(item_key(1), MergedChange::Upsert(item(1, "newer")))]);
    rig.apply(&batch).await;

    let undone = undo(fixture, UndoSelector::Read(read_id("r"))).await;

    assert_eq!(undone, [Undone { table: Some(table(ITEMS)), restored: 1, occupied: 1, failed: vec![] }]);
    assert_eq!(rig.items_now().await, [item(1, "newer"), item(2, "n")]);
}

pub(super) async fn an_undo_brings_back_the_newest_of_several_copies(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    rig.remove_items("r1", &[1]).await;
    fixture.age(Duration::from_secs(60)).await;
    let batch = rig.item_batch(vec![(item_key(1), MergedChange::Upsert(item(1, "newer")))]);
    rig.apply(&batch).await;
    rig.remove_items("r2", &[1]).await;

    let undone = undo(fixture, UndoSelector::Table { table: table(ITEMS), since: 0 }).await;

    assert_eq!(restored(&undone), 1);
    assert_eq!(rig.items_now().await, [item(1, "newer")]);
}

pub(super) async fn copies_are_forgotten_when_they_are_old(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=4).await;
    rig.remove_items("old", &[1, 2]).await;
    fixture.age(2 * DAY).await;
    rig.remove_items("new", &[3]).await;
    let name = lane(0).name;
    let expire_of =
        async |name: &str, keep| fixture.sink().expire_removed(name, keep).await.expect("the sink is there");
    let expire = async |keep| expire_of(&name, keep).await;

    let others = expire_of("another", Duration::ZERO).await;
    let (too_young, old, again) = (expire(3 * DAY).await, expire(DAY).await, expire(DAY).await);
    let undone = undo(fixture, UndoSelector::Table { table: table(ITEMS), since: 0 }).await;

    assert_eq!(others, 0, "copies are forgotten by those who made them");
    assert_eq!((too_young, old, again), (0, 2, 0));
    assert_eq!(restored(&undone), 1);
    assert_eq!(rig.ids_now().await, [3, 4]);
}

pub(super) async fn the_budget_counts_removals_of_a_day_and_of_the_unit(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=6).await;
    rig.make_lines(&[("a", 1)]).await;
    rig.remove_items("r1", &[1]).await;
    fixture.age(2 * DAY).await;
    rig.remove_items("r2", &[2, 3]).await;
    remove_lines(&mut rig, "r3", &[("a", 1)]).await;
    let (items, keys, read) = (rig.items.clone(), item_keys(&[4]), read_id("r4"));

    let mut unit = rig.begin().await;
    let before =
        unit.removal_budget(&items, &SourceName::of_table("inventory.items")).await.expect("removals can be counted");
    let removal = Removal { table: &items, keys: &keys, read_id: &read, offset: Offset(1) };
    unit.remove(&removal).await.expect("rows can be removed");
    let after =
        unit.removal_budget(&items, &SourceName::of_table("inventory.items")).await.expect("removals can be counted");

    assert_eq!((before.removed_last_day, after.removed_last_day), (2, 3));
}

pub(super) async fn the_budget_is_of_the_rows_that_a_truncate_left(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items(1..=6).await;
    let items = rig.items.clone();

    let mut unit = rig.begin().await;
    let before =
        unit.removal_budget(&items, &SourceName::of_table("inventory.items")).await.expect("rows can be counted").rows;
    unit.truncate(&items).await.expect("the table can be truncated");
    let after =
        unit.removal_budget(&items, &SourceName::of_table("inventory.items")).await.expect("rows can be counted").rows;

    assert_eq!((before, after), (6, 0));
}

async fn undo(fixture: &impl Fixture, selector: UndoSelector) -> Vec<Undone> {
    fixture.sink().undo(&selector).await.expect("the sink is there")
}

fn restored(undone: &[Undone]) -> u64 {
    undone.iter().map(|undone| undone.restored).sum()
}

async fn remove_lines<F: Fixture>(rig: &mut Rig<'_, F>, read: &str, keys: &[(&str, i64)]) {
    let (lines, next, keys, read_id) = (rig.lines.clone(), rig.next_state(), line_keys(keys), read_id(read));
    let mut unit = rig.begin().await;
    let removal = Removal { table: &lines, keys: &keys, read_id: &read_id, offset: Offset(7) };
    let removed = unit.remove(&removal).await.expect("rows can be removed");
    unit.commit(&next).await.expect("the unit can be committed");
    rig.state = Some(next);
    assert_eq!(removed, keys.len() as u64);
}

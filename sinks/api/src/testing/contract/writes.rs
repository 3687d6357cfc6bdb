//! Batches.

use super::{
    Fixture,
    rig::{Rig, batch_of, item, item_key, item_of, line_key, text, write_and_commit},
};
use crate::{
    Batch, ErrorClass,
    MergedChange::{Delete, Replace, Upsert},
    Row, SinkLane, Unit, Value,
};

pub(super) async fn an_upsert_makes_and_changes_rows(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([2]).await;

    let batch = rig.item_batch(vec![
        (item_key(-1), Upsert(item(-1, "below"))),
        (item_key(2), Upsert(item(2, "changed"))),
        (item_key(3), Upsert(item_of(3, Value::Null, text("'; --"), text("é\n\\\"")))),
    ]);
    let written = rig.apply(&batch).await;

    assert_eq!((written.upserted, written.deleted, written.missing), (3, 0, vec![]));
    let third = item_of(3, Value::Null, text("'; --"), text("é\n\\\""));
    assert_eq!(rig.items_now().await, [item(-1, "below"), item(2, "changed"), third]);
}

pub(super) async fn an_upsert_keeps_old_values_that_it_does_not_have(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2, 3]).await;

    let batch = rig.item_batch(vec![
        (item_key(1), Upsert(item_of(1, Value::Absent, text("s"), Value::Unchanged))),
        (item_key(2), Upsert(item_of(2, Value::Null, Value::Unchanged, Value::Absent))),
        (item_key(3), Upsert(item_of(3, text("x"), Value::Absent, Value::Null))),
    ]);
    let written = rig.apply(&batch).await;

    assert_eq!((written.upserted, written.missing), (3, vec![]));
    let expected = [
        item_of(1, text("n"), text("s"), text("body")),
        item_of(2, Value::Null, text("known"), text("body")),
        item_of(3, text("x"), text("known"), Value::Null),
    ];
    assert_eq!(rig.items_now().await, expected);
}

pub(super) async fn a_new_row_takes_the_default_of_an_absent_column(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;

    let batch = rig.item_batch(vec![
        (item_key(1), Upsert(item_of(1, Value::Absent, Value::Absent, text("b")))),
        (item_key(2), Replace(item_of(2, text("x"), Value::Absent, Value::Absent))),
    ]);
    let written = rig.apply(&batch).await;

    assert_eq!((written.upserted, written.missing), (2, vec![]));
    let expected = [item_of(1, Value::Null, text("new"), text("b")), item_of(2, text("x"), text("new"), Value::Null)];
    assert_eq!(rig.items_now().await, expected);
}

pub(super) async fn a_replace_keeps_nothing_of_the_old_row(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;

    let batch = rig.item_batch(vec![
        (item_key(1), Replace(item_of(1, text("x"), Value::Absent, Value::Absent))),
        (item_key(2), Replace(item(2, "fresh"))),
    ]);
    let written = rig.apply(&batch).await;

    assert_eq!((written.upserted, written.missing), (2, vec![]));
    assert_eq!(rig.items_now().await, [item_of(1, text("x"), text("new"), Value::Null), item(2, "fresh")]);
}

pub(super) async fn a_row_that_lacks_its_old_value_is_not_made_but_missing(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 3]).await;
    let large_unchanged = |id: i64| item_of(id, text("x"), text("s"), Value::Unchanged);

    // 1 has its old value at the sink, 2 has none; 3 was deleted and made again, so the old one is not its own.
    let batch = rig.item_batch(vec![
        (item_key(1), Upsert(large_unchanged(1))),
        (item_key(2), Upsert(large_unchanged(2))),
        (item_key(3), Replace(large_unchanged(3))),
        (item_key(4), Upsert(item(4, "n"))),
    ]);
    let written = rig.apply(&batch).await;

    let missing: Vec<_> = written.missing.iter().map(|(table, key)| (table.name.clone(), key.clone())).collect();
    let items = rig.items.name.clone();
    assert_eq!(missing, [(items.clone(), item_key(2)), (items, item_key(3))]);
    assert_eq!(written.upserted, 2);
    assert_eq!(rig.items_now().await, [item_of(1, text("x"), text("s"), text("body")), item(4, "n")]);
}

pub(super) async fn a_delete_takes_its_row_and_needs_none(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2, 3]).await;
    rig.make_lines(&[("a", 1), ("a", 2), ("b", 1)]).await;

    let deletes = vec![(item_key(2), Delete), (item_key(9), Delete)];
    let tables = vec![batch_of(&rig.items, deletes), batch_of(&rig.lines, vec![(line_key("a", 2), Delete)])];
    let written = rig.apply(&Batch { tables }).await;

    assert_eq!((written.upserted, written.deleted, written.missing), (0, 2, vec![]));
    assert_eq!(rig.ids_now().await, [1, 3]);
    assert_eq!(rig.lines_now().await, [line("a", 1, 1), line("b", 1, 1)]);
}

pub(super) async fn one_unit_writes_several_tables(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let tables = vec![
        batch_of(&rig.items, vec![(item_key(1), Upsert(item(1, "n")))]),
        batch_of(
            &rig.lines,
            vec![
                (line_key("b", -1), Upsert(line("b", -1, 3))),
                (line_key("", 7), Upsert(line("", 7, 4))),
                (line_key("B", 7), Upsert(line("B", 7, 5))),
            ],
        ),
    ];

    let written = rig.apply(&Batch { tables }).await;

    assert_eq!(written.upserted, 4);
    assert_eq!(rig.ids_now().await, [1]);
    assert_eq!(rig.lines_now().await, [line("", 7, 4), line("B", 7, 5), line("b", -1, 3)]);
}

pub(super) async fn writes_of_a_unit_build_on_each_other(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([2]).await;
    let next = rig.next_state();
    let first = rig.item_batch(vec![(item_key(1), Upsert(item(1, "n"))), (item_key(2), Delete)]);
    let second = rig.item_batch(vec![
        (item_key(1), Upsert(item_of(1, text("x"), Value::Absent, Value::Unchanged))),
        (item_key(2), Upsert(item_of(2, text("x"), text("s"), Value::Unchanged))),
    ]);

    let mut unit = rig.begin().await;
    unit.write(&first).await.expect("the batch can be written");
    let written = unit.write(&second).await.expect("the batch can be written");
    unit.commit(&next).await.expect("the unit can be committed");

    assert_eq!(written.missing.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), [item_key(2)]);
    assert_eq!(rig.items_now().await, [item_of(1, text("x"), text("known"), text("body"))]);
}

pub(super) async fn a_batch_written_again_changes_nothing(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2, 3]).await;
    let batch = rig.item_batch(vec![
        (item_key(1), Upsert(item_of(1, text("x"), Value::Absent, Value::Unchanged))),
        (item_key(2), Delete),
        (item_key(3), Replace(item(3, "again"))),
    ]);

    rig.apply(&batch).await;
    let once = rig.items_now().await;
    let written = rig.apply(&batch).await;

    assert_eq!((written.upserted, written.deleted), (2, 0));
    assert_eq!(rig.items_now().await, once);
}

pub(super) async fn a_bad_row_is_a_data_error_and_kills_the_whole_unit(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    let (next, committed) = (rig.next_state(), rig.state.clone());
    let good = rig.item_batch(vec![(item_key(1), Upsert(item(1, "good")))]);
    // `state` takes no null.
    let bad = rig.item_batch(vec![
        (item_key(2), Upsert(item(2, "good"))),
        (item_key(3), Upsert(item_of(3, text("bad"), Value::Null, text("body")))),
        (item_key(4), Upsert(item(4, "good"))),
    ]);

    let mut unit = rig.begin().await;
    unit.write(&good).await.expect("the good batch can be written");
    let error = unit.write(&bad).await.expect_err("a row has null where none may be");
    let commit = unit.commit(&next).await;

    assert_eq!(error.class, ErrorClass::Data, "{error}");
    assert!(!error.message.contains("bad"), "no row data in the message: {error}");
    assert!(commit.is_err(), "a dead unit commits nothing and says so");
    assert_eq!(rig.items_now().await, [item(1, "n")]);
    assert_eq!(rig.lane.committed().await.expect("the lane is this owner's"), committed);
    write_and_commit(&mut rig.lane, committed.as_ref(), &good, &next).await.expect("the lane goes on");
    assert_eq!(rig.items_now().await, [item(1, "good")]);
}

pub(super) async fn a_truncate_empties_its_table_with_the_unit(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2]).await;
    rig.make_lines(&[("a", 1)]).await;
    let (items, next) = (rig.items.clone(), rig.next_state());
    let before = rig.item_batch(vec![(item_key(3), Upsert(item(3, "before")))]);
    let after = rig.item_batch(vec![(item_key(2), Upsert(item(2, "after")))]);

    let mut unit = rig.begin().await;
    unit.write(&before).await.expect("the batch can be written");
    unit.truncate(&items).await.expect("the table can be truncated");
    unit.write(&after).await.expect("the batch can be written");
    unit.commit(&next).await.expect("the unit can be committed");

    assert_eq!(rig.items_now().await, [item(2, "after")]);
    assert_eq!(rig.lines_now().await, [line("a", 1, 1)]);
}

fn line(code: &str, line: i64, quantity: i64) -> Row {
    [Value::Int(quantity), Value::Int(line), text(code)].into()
}

//! One owner a lane, one outcome a unit.

use super::{
    Fixture,
    rig::{Rig, item, item_key, item_keys, lane, read_id, state, write_and_commit},
    statements::applied,
};
use crate::{Batch, ErrorClass, KeyList, MergedChange, Offset, Removal, Sink, SinkLane, Unit, Written};

pub(super) async fn a_commit_replaces_only_the_state_that_it_expects(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    let batch = rig.item_batch(vec![(item_key(2), MergedChange::Upsert(item(2, "n")))]);

    for wrong in [None, Some(state(5)), Some(state(1_000))] {
        let error = write_and_commit(&mut rig.lane, wrong.as_ref(), &batch, &state(2_000)).await;
        assert_eq!(error.expect_err("the committed state is another").class, ErrorClass::Fenced, "expected {wrong:?}");
    }

    assert_eq!(rig.ids_now().await, [1]);
    assert_eq!(rig.lane.committed().await.expect("the lane is this owner's"), rig.state);
}

pub(super) async fn a_lane_taken_over_before_its_unit_writes_nothing(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    let batch = rig.item_batch(vec![(item_key(2), MergedChange::Upsert(item(2, "late")))]);
    let next = rig.next_state();

    let mut owner = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let late = write_and_commit(&mut rig.lane, rig.state.as_ref(), &batch, &next).await;

    assert_eq!(late.expect_err("the lane was taken over").class, ErrorClass::Fenced);
    assert_eq!(rig.ids_now().await, [1]);
    assert_eq!(owner.state, rig.state);
    write_and_commit(&mut owner.lane, owner.state.as_ref(), &batch, &next).await.expect("the new owner writes");
    assert_eq!(rig.ids_now().await, [1, 2]);
}

pub(super) async fn a_lane_taken_over_during_its_unit_writes_nothing(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2]).await;
    let batch = rig.item_batch(vec![
        (item_key(1), MergedChange::Upsert(item(1, "late"))),
        (item_key(2), MergedChange::Delete),
        (item_key(3), MergedChange::Upsert(item(3, "late"))),
    ]);
    let (next, items, ids, read) = (rig.next_state(), rig.items.clone(), item_keys(&[1]), read_id("late"));

    let mut unit = rig.begin().await;
    unit.write(&batch).await.expect("the batch can be written");
    let removal = Removal { table: &items, keys: &ids, read_id: &read, offset: Offset(1) };
    unit.remove(&removal).await.expect("rows can be removed");
    unit.record(&applied("late"), &KeyList::new()).await.expect("a statement can be recorded");
    let owner = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let late = unit.commit(&next).await;

    assert_eq!(late.expect_err("the lane was taken over").class, ErrorClass::Fenced);
    assert_eq!(rig.items_now().await, [item(1, "n"), item(2, "n")]);
    assert_eq!(fixture.recorded(&read).await, []);
    // What the late owner expected is still there, so that only its epoch gives it away.
    assert_eq!(owner.state, rig.state);
}

/// The earlier owner may be a process that was stopped with its transaction open.
pub(super) async fn a_claim_does_not_wait_for_the_earlier_owner_s_unit(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;
    let committed = rig.state.clone();
    let stalled_batch = rig.item_batch(vec![(item_key(1), MergedChange::Upsert(item(1, "late")))]);
    let batch = rig.item_batch(vec![(item_key(2), MergedChange::Upsert(item(2, "n")))]);

    let mut stalled = rig.begin().await;
    stalled.write(&stalled_batch).await.expect("the batch can be written");
    let mut owner = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let outcome = write_and_commit(&mut owner.lane, owner.state.as_ref(), &batch, &state(500)).await;
    drop(stalled);

    assert_eq!(owner.state, committed);
    outcome.expect("the new owner writes other rows while the earlier one holds its own");
    assert_eq!(rig.items_now().await, [item(1, "n"), item(2, "n")]);
}

pub(super) async fn a_lane_learns_which_state_is_committed(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;

    let before = rig.lane.committed().await.expect("the lane is this owner's");
    rig.make_items([1]).await;
    let after = rig.lane.committed().await.expect("the lane is this owner's");

    assert_eq!(before, None);
    assert_eq!(after, rig.state);
}

pub(super) async fn a_late_lane_is_fenced_when_it_asks_what_is_committed(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1]).await;

    fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let late = rig.lane.committed().await;

    assert_eq!(late.expect_err("the lane was taken over").class, ErrorClass::Fenced);
}

pub(super) async fn a_dropped_unit_leaves_nothing_and_the_lane_goes_on(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    rig.make_items([1, 2]).await;
    rig.make_lines(&[("a", 1)]).await;
    let batch = rig.item_batch(vec![
        (item_key(1), MergedChange::Upsert(item(1, "dropped"))),
        (item_key(3), MergedChange::Upsert(item(3, "dropped"))),
    ]);
    let (items, lines, ids, read) = (rig.items.clone(), rig.lines.clone(), item_keys(&[2]), read_id("dropped"));

    let mut unit = rig.begin().await;
    unit.write(&batch).await.expect("the batch can be written");
    unit.truncate(&lines).await.expect("the table can be truncated");
    let removal = Removal { table: &items, keys: &ids, read_id: &read, offset: Offset(1) };
    unit.remove(&removal).await.expect("rows can be removed");
    unit.record(&applied("dropped"), &KeyList::new()).await.expect("a statement can be recorded");
    drop(unit);

    assert_eq!(rig.lane.committed().await.expect("the lane is this owner's"), rig.state);
    assert_eq!(rig.items_now().await, [item(1, "n"), item(2, "n")]);
    assert_eq!(rig.lines_now().await.len(), 1);
    assert_eq!(fixture.recorded(&read).await, []);
    rig.make_items([4]).await;
    assert_eq!(rig.ids_now().await, [1, 2, 4]);
}

pub(super) async fn an_empty_unit_moves_the_frontier(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;

    let written = rig.apply(&Batch::default()).await;

    assert_eq!(written, Written::default());
    assert_eq!(rig.lane.committed().await.expect("the lane is this owner's"), Some(state(10)));
}

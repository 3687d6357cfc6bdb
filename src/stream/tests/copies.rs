//! Copied rows that are older than a change.

use super::*;

fn copied(id: i64) -> RowEvent {
    row(id, EventXid::Exempt, RowOp::Upsert([].into()))
}

fn applied(lane: &mut Lane, event: RowEvent) -> bool {
    lane.row(event).steps.iter().any(|step| matches!(step, Step::Row(_)))
}

#[test]
fn a_copied_row_does_not_go_over_a_change_that_came_before_it() {
    let mut lane = Lane::new();
    lane.row(put(1, SEEN)).row(row(2, EventXid::Known(SEEN), RowOp::Delete));

    let applied = [1, 2, 3].map(|id| applied(&mut lane, copied(id)));

    assert_eq!(applied, [false, false, true]);
}

#[test]
fn a_copied_row_that_is_left_out_counts_in_windows() {
    let mut lane = Lane::new();

    lane.row(put(1, SEEN)).low("r").row(copied(1));

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1]));
}

#[test]
fn a_key_that_the_sink_lacked_gets_its_copy() {
    let mut lane = Lane::new();
    lane.row(put(1, SEEN));

    lane.sequencer.lacked(Offset(5), &orders(), &key(1));

    assert!(applied(&mut lane, copied(1)));
}

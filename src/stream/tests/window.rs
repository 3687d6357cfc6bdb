//! Windows: what changed between low and close is spared.

use super::*;

#[test]
fn a_key_changed_in_the_window_is_spared() {
    let mut lane = Lane::forgetful();

    lane.row(put(1, SEEN)).low("r").row(put(2, SEEN)).row(row(3, EventXid::Known(SEEN), RowOp::Delete));

    assert_eq!(lane.part(chunk("r", &[1])), Spares(vec![2, 3]));
}

#[test]
fn both_keys_of_a_primary_key_change_are_spared() {
    let mut lane = Lane::forgetful();

    lane.low("r").row(RowEvent { other_key: Some(key(8)), ..put(7, SEEN) });

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![7, 8]));
}

#[test]
fn rows_of_an_incremental_snapshot_and_tombstones_count_as_changes() {
    let mut lane = Lane::new();

    lane.low("r").row(row(4, EventXid::Exempt, RowOp::Upsert([].into()))).row(row(5, EventXid::Exempt, RowOp::Delete));

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![4, 5]));
}

#[test]
fn a_record_that_cannot_be_decoded_counts_as_a_change_of_its_key() {
    let mut lane = Lane::new();

    lane.low("r").bad(Some(6));

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![6]));
}

#[test]
fn a_record_without_a_readable_key_voids_the_open_windows() {
    let mut lane = Lane::new();

    lane.low("r").bad(None);

    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Window, true));
}

#[test]
fn a_truncate_in_the_window_voids_it() {
    let mut lane = Lane::new();
    let truncate = |name| Event::Truncate { table: shape(name, Ok(())), xid: EventXid::Known(SEEN) };

    lane.low("r").low("s").push(truncate("customers"));
    assert_eq!(lane.part(chunk("r", &[])), spares_nothing());

    lane.push(truncate("orders"));
    assert_eq!(lane.part(chunk("s", &[])), Refused(Rule::TableChange, true));
}

#[test]
fn changes_of_other_tables_are_not_spared() {
    let mut lane = Lane::new();

    lane.low("r").row(RowEvent { table: shape("customers", Ok(())), ..put(2, SEEN) });

    assert_eq!(lane.part(chunk("r", &[])), spares_nothing());
}

#[test]
fn changes_from_any_source_table_count_in_the_windows_of_the_sink_table() {
    let mut lane = Lane::forgetful();
    let source = SourceTable {
        connector: "other".into(),
        database: "attic".into(),
        schema: "old".into(),
        table: "orders_2019".into(),
    };

    lane.low("r").row(RowEvent { source: Arc::new(source), ..put(2, SEEN) });

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![2]));
}

#[test]
fn a_table_whose_shape_was_read_anew_is_the_same_table() {
    let mut lane = Lane::new();
    let anew =
        Arc::new(TableShape::new(TableName::new("shop", "orders"), vec![], orders().key.clone(), vec!["x".into()]));
    let mut close = chunk("r", &[]);
    close.claim.read.table = Arc::clone(&anew);

    lane.low("r").row(RowEvent { table: anew, ..put(2, SEEN) });

    assert_eq!(lane.part(close), Spares(vec![2]));
}

#[test]
fn a_window_runs_from_the_first_low() {
    let mut lane = Lane::forgetful();

    lane.low("r").row(put(2, SEEN)).low("r");

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![2]));
}

#[test]
fn windows_of_several_reads_are_kept_apart() {
    let mut lane = Lane::forgetful();

    lane.low("r").row(put(1, SEEN)).low("s").row(put(2, SEEN));

    assert_eq!(lane.part(chunk("s", &[])), Spares(vec![2]));
    lane.row(put(3, SEEN));
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1, 2, 3]));
}

#[test]
fn a_key_changed_before_and_in_the_window_is_spared() {
    let mut lane = Lane::forgetful();

    lane.low("r").row(put(1, SEEN)).low("s").row(put(1, SEEN)).low("t");

    assert_eq!(lane.part(chunk("t", &[])), spares_nothing());
    assert_eq!(lane.part(chunk("s", &[])), Spares(vec![1]));
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1]));
}

#[test]
fn a_close_without_its_low_is_refused() {
    let mut lane = Lane::new();

    assert_eq!(lane.part(chunk("r", &[1])), Refused(Rule::Window, true));
}

#[test]
fn a_window_ends_by_the_clock_of_the_stream() {
    let limits = Limits { window_age_ms: 2_000, ..Limits::default() };
    let mut lane = Lane::starting(start(), limits);

    lane.low("r").row(put(1, SEEN)).row(put(2, SEEN));
    assert_eq!(lane.outcome(), Ignored);
    lane.row(put(3, SEEN));
    assert_eq!(lane.outcome(), Refused(Rule::Window, true));
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
}

#[test]
fn windows_end_when_they_hold_too_much() {
    let limits = Limits { window_bytes: 200, recent_bytes: 0, copies: 0, ..Limits::default() };
    let mut lane = Lane::starting(start(), limits);

    lane.low("r");
    let refused = (0..20).find_map(|id| match lane.row(put(id, SEEN)).outcome() {
        Ignored => None,
        outcome => Some(outcome),
    });

    assert_eq!(refused, Some(Refused(Rule::Window, true)));
    assert_eq!(lane.sequencer.bytes(), 0);
}

#[test]
fn a_hot_key_costs_its_window_nothing_more() {
    let mut lane = Lane::forgetful();

    lane.low("r").row(put(1, SEEN));
    let once = lane.sequencer.bytes();
    for _ in 0..50 {
        lane.row(put(1, SEEN));
    }

    assert_eq!(lane.sequencer.bytes(), once);
}

#[test]
fn the_oldest_window_gives_way_to_a_new_one() {
    let limits = Limits { windows: 2, ..Limits::default() };
    let mut lane = Lane::starting(start(), limits);

    lane.low("r").low("s").low("t");

    assert_eq!(lane.outcome(), Refused(Rule::Window, true));
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
    assert_eq!(lane.part(chunk("s", &[])), spares_nothing());
}

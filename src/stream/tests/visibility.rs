//! Visibility: a key of a transaction that the read did not see is spared.

use super::*;

#[test]
fn a_key_of_a_transaction_that_the_read_did_not_see_is_spared() {
    let mut lane = Lane::new();

    lane.row(put(1, SEEN)).row(put(2, UNSEEN)).low("r");

    assert_eq!(lane.part(chunk("r", &[1])), Spares(vec![2]));
}

#[test]
fn both_keys_of_an_unseen_primary_key_change_are_spared() {
    let mut lane = Lane::new();

    lane.row(RowEvent { other_key: Some(key(8)), ..put(7, UNSEEN) }).low("r");

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![7, 8]));
}

#[test]
fn a_transaction_that_was_running_is_not_seen() {
    let mut lane = Lane::new();
    let mut close = chunk("r", &[]);
    close.claim.snapshot = Some(Snapshot { xmin: 90, xmax: 100, running: vec![90, 95] });

    lane.row(put(1, 90)).row(put(2, 94)).row(put(3, 95)).row(put(4, 100)).low("r");

    assert_eq!(lane.part(close), Spares(vec![1, 3, 4]));
}

#[test]
fn forgotten_transactions_that_the_read_may_not_have_seen_refuse_it() {
    let mut lane = Lane::forgetful();

    lane.row(put(1, SEEN)).low("r").row(put(2, UNSEEN)).low("s");

    // What was forgotten inside its window is spared by it.
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![2]));
    assert_eq!(lane.part(chunk("s", &[])), Refused(Rule::Visibility, true));
}

#[test]
fn what_is_still_remembered_is_spared_and_not_refused() {
    // Room for two entries.
    let mut lane = Lane::starting(start(), Limits { recent_bytes: 100, ..Limits::default() });

    lane.row(put(1, SEEN)).row(put(2, UNSEEN)).row(put(3, UNSEEN)).low("r");

    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![2, 3]));
}

#[test]
fn a_marker_that_does_not_say_what_its_read_saw_is_refused() {
    let mut lane = Lane::new();
    let mut close = chunk("r", &[]);
    close.claim.snapshot = None;

    lane.low("r");

    assert_eq!(lane.part(close), Refused(Rule::Visibility, false));
}

#[test]
fn a_chunk_info_record_spares_its_own_list_and_what_its_snapshot_did_not_see() {
    let mut lane = Lane::new();
    let mut close = chunk("r", &[1]);
    close.claim.kind = StatementKind::ChunkInfo;
    close.changed = list(&[9]);

    lane.row(put(2, SEEN)).row(put(3, UNSEEN));

    assert_eq!(lane.part(close), Spares(vec![3, 9]));
}

#[test]
fn a_statement_on_a_stream_without_transaction_ids_is_refused() {
    let mut lane = Lane::new();
    let without = || row(1, EventXid::Unknown, RowOp::Delete);

    lane.low("r").row(without()).low("s");
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1]), "in a window it needs none");
    assert_eq!(lane.part(chunk("s", &[])), Refused(Rule::Visibility, false));

    lane.row(RowEvent { table: shape("customers", Ok(())), ..put(2, SEEN) }).low("t");
    assert_eq!(
        lane.part(chunk("t", &[])),
        Refused(Rule::Visibility, false),
        "ids of another table are none of this one"
    );

    lane.row(put(2, SEEN)).low("u");
    assert_eq!(lane.part(chunk("u", &[])), spares_nothing());
}

#[test]
fn a_transaction_from_before_a_wrap_does_not_hide_one_from_after_it() {
    let mut lane = Lane::forgetful();
    let mut close = chunk("r", &[]);
    let wrap = 1_u64 << 32;
    close.claim.snapshot = Some(Snapshot { xmin: wrap + 5, xmax: wrap + 9, running: vec![wrap + 5] });

    // The second began before the wrap of the 32-bit counter, and committed after the first.
    lane.row(put(1, 5)).row(put(2, 0xffff_fff8)).low("r");

    assert_eq!(lane.part(close), Refused(Rule::Visibility, true));
}

#[test]
fn an_idle_table_stays_decidable_however_many_ids_the_cluster_uses() {
    for limits in [Limits::default(), Limits { recent_bytes: 0, ..Limits::default() }] {
        let mut lane = Lane::starting(start(), limits);
        let read = |lane: &mut Lane, read_id: &str, xmax: u64| {
            let mut close = chunk(read_id, &[]);
            close.claim.snapshot = Some(Snapshot { xmin: xmax, xmax, running: vec![] });
            lane.low(read_id);
            lane.part(close)
        };

        lane.row(put(1, SEEN));

        assert_eq!(read(&mut lane, "r", 100), spares_nothing());
        assert_eq!(read(&mut lane, "s", 3 << 31), spares_nothing());
        let mut lane = Lane::resuming(&lane.sequencer.state(), limits);
        assert_eq!(read(&mut lane, "t", 9 << 31), spares_nothing());
        lane.row(put(2, (1 << 31) + 100));
        assert_eq!(
            read(&mut lane, "u", (9 << 31) + 50),
            match limits.recent_bytes {
                0 => Refused(Rule::Visibility, true),
                _ => Spares(vec![2]),
            }
        );
        assert_eq!(read(&mut lane, "v", (9 << 31) + 200), spares_nothing());
    }
}

#[test]
fn an_older_snapshot_is_not_taken_for_a_newer_one() {
    for limits in [Limits::default(), Limits { recent_bytes: 0, ..Limits::default() }] {
        let mut lane = Lane::starting(start(), limits);
        let mut newer = chunk("newer", &[]);
        newer.claim.snapshot = Some(Snapshot { xmin: 200, xmax: 200, running: vec![] });

        lane.row(put(1, UNSEEN + 50)).low("newer").low("older");
        assert_eq!(lane.part(newer), spares_nothing());
        // A late duplicate, of a lower id.
        lane.row(put(2, SEEN));

        assert_eq!(
            lane.part(chunk("older", &[])),
            match limits.recent_bytes {
                0 => Refused(Rule::Visibility, true),
                _ => Spares(vec![1, 2]),
            }
        );
    }
}

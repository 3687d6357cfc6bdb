//! What a lane does not know of its past.

use super::*;

fn mid_stream() -> Start {
    Start { unknown_past: true, ..start() }
}

fn unsettled(read_id: &str) -> Part {
    let mut close = chunk(read_id, &[]);
    close.claim.settled = false;
    close
}

#[test]
fn a_lane_that_began_in_mid_stream_needs_reads_that_settled() {
    let mut lane = Lane::starting(mid_stream(), Limits::default());

    lane.low("r").low("s");

    assert_eq!(lane.part(unsettled("r")), Refused(Rule::Visibility, true));
    assert_eq!(lane.part(chunk("s", &[])), spares_nothing());
}

#[test]
fn what_such_a_lane_has_seen_itself_and_forgotten_still_counts() {
    let limits = Limits { recent_bytes: 0, ..Limits::default() };
    let mut lane = Lane::starting(mid_stream(), limits);

    // A connector that restarts publishes the read's markers again, behind events that are later in the log.
    lane.row(put(1, UNSEEN)).low("r");
    let state = lane.sequencer.state();
    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Visibility, true));

    let mut lane = Lane::resuming(&state, limits);
    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Visibility, true));
}

#[test]
fn a_read_that_settled_closes_an_unknown_past() {
    let mut lane = Lane::starting(mid_stream(), Limits::default());
    let mut later = unsettled("s");
    later.claim.snapshot = Some(Snapshot { xmin: 101, xmax: 101, running: vec![] });

    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), spares_nothing());
    lane.low("s").low("t");

    assert_eq!(lane.part(later), spares_nothing());
    let mut earlier = unsettled("t");
    earlier.claim.snapshot = Some(Snapshot { xmin: 99, xmax: 101, running: vec![99] });
    assert_eq!(lane.part(earlier), Refused(Rule::Visibility, true));
}

#[test]
fn an_undecodable_record_before_the_low_needs_reads_that_settled() {
    for bad in [Some(1), None] {
        let mut lane = Lane::new();

        lane.bad(bad).low("r").low("s");
        let state = lane.sequencer.state();
        assert_eq!(lane.part(unsettled("r")), Refused(Rule::Visibility, true));
        assert_eq!(lane.part(chunk("s", &[])), spares_nothing());

        let mut lane = Lane::resuming(&state, Limits::default());
        lane.low("r");
        assert_eq!(lane.part(unsettled("r")), Refused(Rule::Visibility, true), "and after a restart as well");
    }
}

#[test]
fn a_read_that_settled_before_an_undecodable_record_says_nothing_of_it() {
    let mut lane = Lane::new();

    lane.low("r").bad(Some(1));
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1]));
    lane.low("s");

    assert_eq!(lane.part(unsettled("s")), Refused(Rule::Visibility, true));
}

#[test]
fn a_lane_in_mid_stream_cannot_tell_a_replayed_statement_without_snapshot_from_a_new_one() {
    for kind in [StatementKind::ChunkInfo, StatementKind::Absence] {
        let mut close = chunk("r", &[]);
        (close.claim.kind, close.claim.snapshot) = (kind, None);
        close.asked = keys(&[4]);

        let mut lane = Lane::starting(mid_stream(), Limits::default());
        assert_eq!(lane.part(close.clone()), Refused(Rule::Visibility, false));

        let mut lane = Lane::new();
        assert_eq!(lane.part(close), spares_nothing());
    }
}

#[test]
fn a_stream_without_ids_is_remembered_over_a_restart() {
    let mut lane = Lane::new();
    lane.row(row(1, EventXid::Unknown, RowOp::Delete));

    let mut lane = Lane::resuming(&lane.sequencer.state(), Limits::default());
    lane.low("r");

    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Visibility, false));
}

#[test]
fn what_the_topic_no_longer_holds_was_applied_and_is_not_known() {
    let mut lane = Lane::new();
    lane.row(put(1, SEEN)).low("r").row(put(2, SEEN));
    let state = lane.sequencer.state();
    let resume = |log_start| {
        let (start, begin) = Start::resume(&state, Offset(log_start), 1);
        Lane { next: begin.0, ..Lane::starting(start, Limits::default()) }
    };

    let mut whole = resume(1);
    whole.low("r").row(put(2, SEEN));
    assert_eq!(whole.part(chunk("r", &[])), Spares(vec![2]));

    let mut beheaded = resume(2);
    assert_eq!(beheaded.next, 2);
    beheaded.low("s");
    assert_eq!(beheaded.part(chunk("s", &[])), Refused(Rule::Visibility, false));
}

//! Restarts: the stored state is where windows and memory are rebuilt from.

use super::*;

#[test]
fn a_restart_in_a_window_reads_from_its_low_marker() {
    let mut lane = Lane::forgetful();
    lane.row(put(1, SEEN)).low("r").row(put(2, SEEN)).low("s").row(put(3, SEEN));

    let state = lane.sequencer.state();

    assert_eq!(state.next_offset, Offset(5));
    assert_eq!(state.memory_offset, Offset(1));
    let mut again = Lane::resuming(&state, Limits { recent_bytes: 0, ..Limits::default() });
    again.low("r").row(put(2, SEEN)).low("s").row(put(3, SEEN));
    assert_eq!(again.part(chunk("r", &[])), Spares(vec![2, 3]));
    assert_eq!(again.part(chunk("s", &[])), Spares(vec![3]));
}

#[test]
fn the_highest_id_before_the_oldest_window_is_kept() {
    let limits = Limits { recent_bytes: 0, ..Limits::default() };
    let mut lane = Lane::forgetful();
    lane.row(put(1, UNSEEN)).low("r").row(put(2, UNSEEN + 1));

    let mut again = Lane::resuming(&lane.sequencer.state(), limits);
    again.low("r").row(put(2, UNSEEN + 1));
    assert_eq!(again.part(chunk("r", &[])), Refused(Rule::Visibility, true));

    // What changed in the window does not count against the read.
    let mut lane = Lane::forgetful();
    lane.row(put(1, SEEN)).low("r").row(put(2, UNSEEN));
    let mut again = Lane::resuming(&lane.sequencer.state(), limits);
    again.low("r").row(put(2, UNSEEN));
    assert_eq!(again.part(chunk("r", &[])), Spares(vec![2]));
}

#[test]
fn without_an_open_window_the_memory_starts_at_the_frontier() {
    let mut lane = Lane::new();
    lane.row(put(1, UNSEEN)).low("r");
    lane.part(chunk("r", &[]));

    let state = lane.sequencer.state();

    assert_eq!((state.next_offset, state.memory_offset), (Offset(3), Offset(3)));
    let mut again = Lane::resuming(&state, Limits::default());
    again.low("s");
    assert_eq!(again.part(chunk("s", &[])), Refused(Rule::Visibility, true));
}

#[test]
fn what_stands_before_the_frontier_is_not_done_again() {
    let mut lane = Lane::starting(Start { frontier: Offset(3), ..start() }, Limits::default());
    let truncate = Event::Truncate { table: shape("customers", Ok(())), xid: EventXid::Known(SEEN) };

    assert_eq!(lane.row(put(1, SEEN)).steps, []);
    assert_eq!(lane.push(truncate).steps, []);
    assert_eq!(lane.row(put(2, SEEN)).steps, []);
    assert_eq!(lane.sequencer.state().next_offset, Offset(3));

    assert_eq!(lane.row(put(3, SEEN)).steps.len(), 1);
    assert_eq!(lane.sequencer.state().next_offset, Offset(4));
}

#[test]
fn a_statement_before_the_frontier_is_refused_for_good() {
    // A lane that begins in mid-stream reads a stretch before its start; a read that closes there must not be taken when
    // the connector publishes it again.
    let mut lane = Lane::starting(Start { frontier: Offset(2), ..start() }, Limits::default());

    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Window, true));
    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
}

//! The first verdict on a read is final.

use super::*;

#[test]
fn a_read_with_a_verdict_changes_nothing() {
    let mut lane = Lane::new();

    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), spares_nothing());
    lane.row(put(1, UNSEEN)).low("r");

    assert_eq!(lane.sequencer.open_reads().len(), 0);
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
}

#[test]
fn a_refused_read_stays_refused() {
    let mut lane = Lane::new();

    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Window, true));
    lane.low("r");
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
}

#[test]
fn a_chunk_info_record_seen_again_changes_nothing_even_when_it_would_be_refused_now() {
    let mut lane = Lane::forgetful();
    let mut close = chunk("r", &[]);
    close.claim.kind = StatementKind::ChunkInfo;

    assert_eq!(lane.part(close.clone()), spares_nothing());
    lane.row(put(1, UNSEEN));

    assert_eq!(lane.part(close), Ignored);
}

#[test]
fn each_absence_event_of_a_read_has_a_verdict_of_its_own() {
    let mut lane = Lane::new();
    let absent = |id| {
        let mut part = chunk("r", &[]);
        (part.claim.kind, part.claim.snapshot) = (StatementKind::Absence, None);
        part.asked = keys(&[id]);
        part
    };

    assert_eq!(lane.part(absent(4)), spares_nothing());
    assert_eq!(lane.part(absent(7)), spares_nothing());
    assert_eq!(lane.part(absent(4)), Ignored);
}

#[test]
fn a_damaged_marker_ends_its_read() {
    let mut lane = Lane::new();

    lane.low("r").push(damaged("r", Rule::Authentic));
    assert_eq!(lane.outcome(), Refused(Rule::Authentic, false));
    assert_eq!(lane.part(chunk("r", &[])), Ignored);
    assert_eq!(lane.sequencer.bytes(), 0);
}

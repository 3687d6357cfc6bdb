//! All parts are there and agree.

use super::*;

fn part(number: u32, parts: u32, selected: &[i64]) -> Part {
    Part { part: number, parts, ..chunk("r", selected) }
}

#[test]
fn parts_are_put_together() {
    let mut lane = Lane::new();

    lane.low("r");
    assert_eq!(lane.part(part(1, 2, &[1, 2])), Ignored);
    lane.row(put(9, SEEN));
    lane.part(part(2, 2, &[3]));

    let [Step::Statement(statement)] = lane.steps.as_slice() else { panic!("{:?}", lane.steps) };
    assert_eq!(statement.selected, list(&[1, 2, 3]));
    assert_eq!(statement.offset, Offset(3));
    assert_eq!(spared(statement), [9]);
}

#[test]
fn an_equal_part_seen_again_changes_nothing() {
    let mut lane = Lane::new();

    lane.low("r");
    lane.part(part(1, 2, &[1]));
    assert_eq!(lane.part(part(1, 2, &[1])), Ignored);

    assert_eq!(lane.part(part(2, 2, &[2])), spares_nothing());
}

#[test]
fn a_missing_part_refuses_the_read() {
    let mut lane = Lane::new();

    lane.low("r");
    lane.part(part(1, 3, &[1]));

    assert_eq!(lane.part(part(3, 3, &[3])), Refused(Rule::Whole, true));
    assert_eq!(lane.part(part(2, 3, &[2])), Ignored);
}

#[test]
fn parts_that_disagree_refuse_the_read() {
    let disagreeing: [fn(&mut Part); 7] = [
        |part| part.selected = list(&[2]),
        |part| part.parts = 3,
        |part| part.claim.range = above(0),
        |part| part.claim.settled = false,
        |part| part.claim.snapshot = Some(Snapshot { xmin: 101, xmax: 101, running: vec![] }),
        |part| part.claim.confirmed = Some(10),
        |part| part.claim.read.source.table = "shop.customers".into(),
    ];
    for change in disagreeing {
        let mut lane = Lane::new();
        let mut other = part(1, 2, &[1]);
        change(&mut other);

        lane.low("r");
        lane.part(part(1, 2, &[1]));

        assert_eq!(lane.part(other.clone()), Refused(Rule::Whole, true), "{other:?}");
    }
}

#[test]
fn a_low_of_another_table_refuses_the_read() {
    let mut lane = Lane::new();

    lane.push(Event::Low(ReadName { source: sink_api::SourceName::of_table("shop.customers"), ..read("r") }));

    assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Whole, true));
}

#[test]
fn a_chunk_info_record_has_no_parts() {
    let mut lane = Lane::new();
    let mut close = part(1, 2, &[1]);
    close.claim.kind = StatementKind::ChunkInfo;

    assert_eq!(lane.part(close), Refused(Rule::Whole, false));
}

#[test]
fn a_key_called_present_that_was_not_asked_for_refuses_the_read() {
    for present in [list(&[5]), KeySet::Intervals(vec![(4, i64::MAX)])] {
        let mut lane = Lane::new();
        let mut close = chunk("r", &[]);
        close.claim.kind = StatementKind::Keys;
        (close.asked, close.selected) = (keys(&[4, 7]), present);

        lane.low("r");

        assert_eq!(lane.part(close), Refused(Rule::Whole, false));
    }
}

#[test]
fn lists_that_grow_too_long_refuse_the_read() {
    let mut lane = Lane::starting(start(), Limits { window_bytes: 40, ..Limits::default() });

    lane.low("r");

    assert_eq!(lane.part(chunk("r", &[1, 2, 3, 4])), Refused(Rule::Whole, true));
}

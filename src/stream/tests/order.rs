//! Source and sink agree about the order of keys, and a statement speaks of keys of its partition.

use super::*;
use crate::stream::{UnitBuilder, Work};

fn close(selected: KeySet, changed: KeySet) -> Part {
    Part { selected, changed, ..chunk("r", &[]) }
}

fn outcome(part: Part) -> Outcome {
    let mut lane = Lane::new();
    lane.low("r");
    lane.part(part)
}

#[test]
fn a_list_that_is_not_ascending_refuses_the_statement() {
    let refused = Refused(Rule::Order, false);

    assert_eq!(outcome(close(list(&[1, 3, 2]), list(&[]))), refused);
    assert_eq!(outcome(close(list(&[1, 1]), list(&[]))), refused);
    assert_eq!(outcome(close(list(&[1]), list(&[5, 4]))), refused);
    assert_eq!(outcome(close(KeySet::Intervals(vec![(5, 6), (1, 2)]), list(&[]))), refused);
    assert_eq!(outcome(close(KeySet::Intervals(vec![(1, 3), (3, 4)]), list(&[]))), refused);
    assert_eq!(outcome(close(KeySet::Intervals(vec![(3, 1)]), list(&[]))), refused);
    assert_eq!(outcome(close(list(&[1, 2]), list(&[4, 5]))), Spares(vec![4, 5]));
}

#[test]
fn parts_that_do_not_follow_one_another_refuse_the_statement() {
    let mut lane = Lane::new();

    lane.low("r");
    lane.part(Part { parts: 2, ..chunk("r", &[5]) });

    assert_eq!(lane.part(Part { part: 2, parts: 2, ..chunk("r", &[4]) }), Refused(Rule::Order, false));
}

#[test]
fn a_key_outside_the_bounds_refuses_the_statement() {
    let inside = |selected, changed| {
        let mut part = close(selected, changed);
        part.claim.range = above(3);
        outcome(part)
    };

    assert_eq!(inside(list(&[4, 5]), list(&[])), spares_nothing());
    assert_eq!(inside(list(&[3, 4]), list(&[])), Refused(Rule::Order, false));
    assert_eq!(inside(list(&[4]), list(&[2])), Refused(Rule::Order, false));
    assert_eq!(inside(KeySet::Intervals(vec![(3, 9)]), list(&[])), Refused(Rule::Order, false));
}

#[test]
fn bounds_the_wrong_way_round_refuse_the_statement() {
    let mut part = chunk("r", &[]);
    part.claim.range = KeyRange { lower: KeyBound::Inclusive(key(9)), upper: KeyBound::Inclusive(key(1)) };

    assert_eq!(outcome(part), Refused(Rule::Order, false));
}

#[test]
fn a_sink_without_the_encoding_s_order_takes_no_ranges() {
    let hint = Some("CREATE INDEX ...".into());
    let not_native = NotNative { reason: "text key under a collation".into(), hint };
    let mut part = chunk("r", &[]);
    part.claim.read.table = shape("orders", Err(not_native));
    assert_eq!(outcome(part.clone()), Refused(Rule::Order, false));
    let mut lane = Lane::new();
    lane.low("r");
    lane.part(part.clone());
    let [Step::Refusal(row)] = lane.steps.as_slice() else { panic!("{:?}", lane.steps) };
    let reason = row.verdict.reason().map(|(_, reason)| reason);
    assert_eq!(reason, Some("text key under a collation; what helps: CREATE INDEX ..."));

    part.claim.kind = StatementKind::Keys;
    part.asked = keys(&[4]);
    assert_eq!(outcome(part), spares_nothing());
}

#[test]
fn single_keys_come_in_any_order() {
    let mut lane = Lane::new();
    let mut part = chunk("r", &[12, 4]);
    part.claim.kind = StatementKind::Keys;
    part.asked = keys(&[12, 7, 4]);

    lane.low("r");
    lane.part(part);

    let [Step::Statement(statement)] = lane.steps.as_slice() else { panic!("{:?}", lane.steps) };
    assert_eq!(statement.selected, list(&[4, 12]));
    assert_eq!(statement.extent, sink_api::Extent::Keys(keys(&[4, 7, 12])));
}

#[test]
fn intervals_are_of_integers() {
    let mut part = close(KeySet::Intervals(vec![(1, 3)]), list(&[]));
    let key = KeyColumn { column: 0, key_type: Ok(KeyType::Text), order: Ok(()) };
    let text = TableShape::new(TableName::new("shop", "orders"), vec![], vec![key], vec![]);
    part.claim.read.table = Arc::new(text);

    assert_eq!(outcome(part), Refused(Rule::Order, false));
}

#[test]
fn statements_are_taken_on_topics_of_one_partition() {
    for (first, now) in [(4, 4), (1, 4), (4, 1)] {
        let start = Start { first_partition_count: first, partition_count: now, ..start() };
        let mut lane = Lane::starting(start, Limits::default());

        lane.low("r");

        assert_eq!(lane.part(chunk("r", &[])), Refused(Rule::Scope, false));
    }
}

#[test]
fn partitions_that_are_added_refuse_the_statements_of_the_unit() {
    let mut lane = Lane::new();
    let mut unit = UnitBuilder::default();
    lane.low("r").row(put(1, SEEN)).steps.drain(..).for_each(|step| unit.push(step));
    assert_eq!(lane.part(chunk("r", &[])), Spares(vec![1]));
    lane.steps.drain(..).for_each(|step| unit.push(step));

    let mut unit = unit.finish(lane.sequencer.state());
    unit.partitions(1);
    assert!(unit.has_statements());
    unit.partitions(2);

    assert!(!unit.has_statements());
    let work = unit.work;
    let [Work::Rows(_), Work::Refusal(row)] = work.as_slice() else { panic!("{work:?}") };
    let reason = "the topic had 1 partitions and has 2 now, so keys have moved".to_owned();
    assert_eq!(row.verdict, Verdict::Refused { rule: Rule::Scope, reason, again: false });
    // The next life of the lane, too, must find another count than this one found first.
    assert_eq!(lane.sequencer.state().partition_count, 1);
}

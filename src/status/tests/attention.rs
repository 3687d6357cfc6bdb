//! What asks for a person, and until when.

use super::*;

#[test]
fn a_sink_that_stays_away_needs_attention_once_for_all_lanes_and_until_it_is_back() {
    let worker = worker();
    let lanes: Vec<LaneStatus> = (0..3).map(|partition| worker.board.lane("t", Partition(partition))).collect();
    for lane in &lanes {
        lane.state(LaneState::Waiting {
            on: Awaited::Sink,
            since: worker.now,
            why: "connect: refused".into(),
            hint: None,
            attempts: 4,
        });
    }

    assert_eq!(kinds(&worker.later(9_999)), []);
    assert_eq!(kinds(&worker.later(10_000)), [(AttentionKind::SinkDown, 3)]);

    lanes.iter().for_each(|lane| lane.state(LaneState::Running));
    assert_eq!(kinds(&worker.later(10_000)), []);
}

#[test]
fn a_lane_that_waits_says_what_to_do_where_it_knows_better_than_to_bring_the_sink_back() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let (why, hint) = ("write public.orders: permission denied".to_owned(), Some("GRANT it".to_owned()));
    lane.state(LaneState::Waiting { on: Awaited::Sink, since: worker.now, why, hint, attempts: 4 });

    assert_eq!(worker.later(10_000).attention[0].hint.as_deref(), Some("GRANT it"));
}

#[test]
fn lanes_that_wait_for_kafka_are_not_shown_as_waiting_for_the_sink() {
    let worker = worker();
    let lanes = [Awaited::Kafka, Awaited::Sink, Awaited::Kafka].iter().zip(0..).map(|(on, partition)| {
        let lane = worker.board.lane("t", Partition(partition));
        let why = "no answer".to_owned();
        lane.state(LaneState::Waiting { on: *on, since: worker.now, why, hint: None, attempts: 4 });
        lane
    });
    let _lanes: Vec<LaneStatus> = lanes.collect();

    let status = worker.later(10_000);

    assert_eq!(kinds(&status), [(AttentionKind::KafkaDown, 2), (AttentionKind::SinkDown, 1)]);
    let hints: Vec<&str> = status.attention.iter().map(|item| item.hint.as_deref().unwrap()).collect();
    assert!(hints[0].starts_with("bring Kafka back") && hints[1].starts_with("bring the sink back"), "{hints:?}");
    let text = text::render(&status);
    assert!(text.contains("waiting for Kafka, 10s (4 tries)") && text.contains("  2 lanes\n"), "{text}");
}

#[test]
fn kafka_that_stays_away_and_topics_that_do_not_exist_need_attention_until_they_are_there() {
    let worker = worker();
    let seen = |ms| {
        let status = worker.later(ms);
        let items = status.attention.iter().map(|item| (item.kind, item.what.clone()));
        (items.collect::<Vec<_>>(), text::render(&status).contains("\nNothing needs attention.\n"))
    };
    worker.board.kafka(Some(Away::Silent("1/1 brokers are down".into())), worker.at(0));
    worker.board.kafka(Some(Away::Silent("connection refused".into())), worker.at(5_000));

    assert_eq!(seen(9_999), (vec![], true));
    let silent = "Kafka does not answer: connection refused".to_owned();
    assert_eq!(seen(10_000), (vec![(AttentionKind::KafkaDown, silent)], false));

    worker.board.kafka(None, worker.at(11_000));
    assert_eq!(seen(11_000), (vec![], true));

    worker.board.kafka(Some(Away::NoTopics(vec!["a".into(), "b".into()])), worker.at(12_000));
    let topics = "topics do not exist: a, b".to_owned();
    assert_eq!(seen(22_000), (vec![(AttentionKind::KafkaDown, topics)], false));
}

#[test]
fn held_statements_stand_alone_and_refused_ones_are_counted_together() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));

    lane.statement(&statement("a", 1, held()), worker.at(0));
    let other_range = StatementRow { extent: "21 to 30".into(), ..statement("b", 2, held()) };
    lane.statement(&other_range, worker.at(1));
    lane.statement(&statement("c", 3, refused(Rule::Whole)), worker.at(2));
    lane.statement(&statement("d", 4, refused(Rule::Whole)), worker.at(3));
    lane.statement(&statement("e", 5, refused(Rule::Order)), worker.at(4));
    let elsewhere = StatementRow { extent: "11 to 20".into(), ..statement("f", 6, Verdict::Applied) };
    lane.statement(&elsewhere, worker.at(5));

    let status = worker.later(10);
    assert_eq!(
        kinds(&status),
        [(AttentionKind::Held, 1), (AttentionKind::Held, 1), (AttentionKind::Refused, 2), (AttentionKind::Refused, 1)]
    );
    let together = &status.attention[2];
    assert_eq!((together.read_id.clone(), together.offset), (Some(ReadId("d".into())), Some(Offset(4))));
    assert_eq!((together.since, together.last), (worker.at(2), worker.at(3)));
}

#[test]
fn a_range_that_is_held_again_is_one_item_with_the_latest_read() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let again = Verdict::Held { rule: Rule::FreshRead, reason: "the fresh read found 11 orphans".into() };
    let keys = |read_id: &str| StatementRow { kind: StatementKind::Keys, ..statement(read_id, 3, held()) };

    lane.held(&statement("a", 1, held()), worker.at(0));
    lane.statement(&statement("b", 2, again), worker.at(1));
    // Two lists of as many keys are not the same keys.
    lane.statement(&keys("c"), worker.at(2));
    lane.statement(&keys("d"), worker.at(3));

    let status = worker.later(10);
    assert_eq!(kinds(&status), [(AttentionKind::Held, 2), (AttentionKind::Held, 1), (AttentionKind::Held, 1)]);
    let range = &status.attention[0];
    assert_eq!((range.read_id.clone(), range.rule), (Some(ReadId("b".into())), Some(Rule::FreshRead)));
    assert_eq!((range.since, range.last), (worker.at(0), worker.at(1)));
}

#[test]
fn what_the_sink_itself_refuses_is_not_to_be_confirmed() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let hint = |reason: &str| {
        let verdict = Verdict::Held { rule: Rule::Cascade, reason: reason.into() };
        lane.statement(&StatementRow { orphans: 0, ..statement("a", 1, verdict) }, worker.now);
        worker.later(0).attention[0].hint.clone().unwrap()
    };

    let refused = hint("the sink refuses the removal: remove rows of public.orders: ... (23503)");
    let kept = hint("the sink refuses the removal: remove orphans from a.b: the table kept 2 of 3 rows: trigger ...");
    let late = hint("the sink did not finish the statement in time: remove rows of public.orders: ... (57014)");

    assert!(
        refused.contains("remove first what refers to the rows") && refused.contains("--allow-cascade"),
        "{refused}"
    );
    assert!(late.contains("no index") && late.contains("triggers"), "{late}");
    assert!(kept.contains("a trigger of the sink keeps the rows"), "{kept}");
    assert!(!refused.contains("confirm") && !kept.contains("confirm") && !late.contains("confirm"));
}

#[test]
fn attention_ends_when_a_day_has_passed_or_a_held_statement_was_settled() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    lane.statement(&statement("a", 1, held()), worker.now);
    lane.statement(&statement("b", 2, refused(Rule::Whole)), worker.now);
    lane.dead_letter(Offset(3), None, "the value is no JSON", worker.now);

    assert_eq!(worker.later(24 * HOUR - 1).attention.len(), 3);
    assert_eq!(kinds(&worker.later(24 * HOUR)), [(AttentionKind::Held, 1)]);

    let other = StatementRow { extent: "(100, 200]".into(), ..statement("c", 4, Verdict::Applied) };
    lane.statement(&other, worker.now);
    assert_eq!(worker.later(24 * HOUR).attention.len(), 1);
    lane.statement(&statement("d", 5, Verdict::Applied), worker.now);
    assert_eq!(worker.later(24 * HOUR).attention.len(), 0);
}

#[test]
fn refused_statements_end_when_each_of_their_ranges_was_judged() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let of = |read_id: &str, offset, extent: &str, verdict| StatementRow {
        extent: extent.into(),
        ..statement(read_id, offset, verdict)
    };
    for (read_id, offset, extent) in [("a", 1, "1 to 10"), ("b", 2, "11 to 20"), ("c", 3, "11 to 20")] {
        lane.statement(&of(read_id, offset, extent, refused(Rule::Order)), worker.now);
    }

    lane.statement(&of("d", 4, "11 to 20", Verdict::Reported), worker.now);

    let status = worker.later(0);
    assert_eq!(kinds(&status), [(AttentionKind::Refused, 3)]);
    assert_eq!(status.attention[0].read_id, Some(ReadId("a".into())), "the one that is left is shown");
    lane.statement(&of("e", 5, "1 to 10", held()), worker.now);
    assert_eq!(kinds(&worker.later(0)), [(AttentionKind::Held, 1)]);
}

/// What is not kept cannot be seen to be settled.
#[test]
fn refused_statements_beyond_memory_stay_for_their_day() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let of = |i: i64, verdict| StatementRow { extent: format!("{i}"), ..statement(&format!("r{i}"), i, verdict) };

    (0..1_001).for_each(|i| lane.statement(&of(i, refused(Rule::Order)), worker.now));
    (1..1_001).for_each(|i| lane.statement(&of(i, Verdict::Applied), worker.now));

    assert_eq!(kinds(&worker.later(0)), [(AttentionKind::Refused, 1_001)]);
    assert_eq!(kinds(&worker.later(24 * HOUR)), []);
}

#[test]
fn what_an_earlier_life_of_the_lane_held_goes_with_the_lane() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    lane.held(&statement("a", 1, held()), worker.now);

    let status = worker.later(24 * HOUR);
    assert_eq!(kinds(&status), [(AttentionKind::Held, 1)]);
    assert_eq!((status.attention[0].since, status.lanes[0].last_statement.clone()), (worker.now, None));
    drop(lane);
    assert_eq!(kinds(&worker.later(0)), []);
}

#[test]
fn attention_is_bounded_and_what_is_left_out_is_counted() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));

    for i in 0..130 {
        let row = StatementRow { extent: format!("from {i}"), ..statement(&format!("read-{i}"), i, held()) };
        lane.statement(&row, worker.now);
    }

    let status = worker.later(0);
    assert_eq!((status.attention.len(), status.attention_omitted), (100, 30));
}

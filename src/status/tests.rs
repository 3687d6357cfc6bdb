#![allow(clippy::unwrap_used, missing_docs)]

use std::{sync::Arc, time::Duration};

use sink_api::{StatementRow, TableName, Verdict};

use super::*;
use crate::metrics::{LaneMetrics, Metrics, SparedKeys};

const HOUR: i64 = 3_600_000;

struct Worker {
    board: StatusBoard,
    metrics: Arc<Metrics>,
    now: UnixMillis,
}

fn worker() -> Worker {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("orders", "sink-repair-orders", "postgres://app@db/shop", metrics.clone());
    Worker { board, metrics, now: UnixMillis::now() }
}

impl Worker {
    fn later(&self, ms: i64) -> Status {
        self.board.status_at(self.at(ms))
    }

    fn at(&self, ms: i64) -> UnixMillis {
        UnixMillis(self.now.0 + ms)
    }
}

fn statement(read_id: &str, offset: i64, verdict: Verdict) -> StatementRow {
    StatementRow {
        read_id: ReadId(read_id.into()),
        kind: StatementKind::Chunk,
        table: Some(TableName::new("public", "orders")),
        source_table: "inventory.orders".into(),
        extent: "1 to 10".into(),
        offset: Offset(offset),
        verdict,
        orphans: 5210,
        removed: 0,
        missing: 3,
        spared: 12,
        confirmed: None,
        in_range: 10_000,
    }
}

fn held() -> Verdict {
    Verdict::Held { rule: Rule::Cap, reason: "would remove 5210 of 10000 rows".into() }
}

fn refused(rule: Rule) -> Verdict {
    Verdict::Refused { rule, reason: "its low marker was not seen".into(), again: false }
}

fn kinds(status: &Status) -> Vec<(AttentionKind, u64)> {
    status.attention.iter().map(|item| (item.kind, item.count)).collect()
}

#[test]
fn a_lane_leaves_the_board_unless_it_has_stopped() {
    let worker = worker();
    let stopped = LaneState::Stopped { since: worker.now, what: "records were lost".into(), hint: None };
    worker.board.lane("t", Partition(0)).state(LaneState::Running);
    worker.board.lane("t", Partition(1)).state(stopped.clone());

    let states = |status: &Status| status.lanes.iter().map(|lane| lane.state.clone()).collect::<Vec<_>>();
    assert_eq!(states(&worker.later(0)), [stopped]);
    assert_eq!(kinds(&worker.later(0)), [(AttentionKind::LaneStopped, 1)]);

    worker.board.revoked("t", Partition(1));
    assert_eq!(states(&worker.later(0)), []);
    assert_eq!(kinds(&worker.later(0)), []);
}

#[test]
fn a_late_lane_cannot_touch_its_successor() {
    let worker = worker();
    let late = worker.board.lane("t", Partition(0));
    let successor = worker.board.lane("t", Partition(0));
    successor.state(LaneState::Running);

    late.state(LaneState::ReadingMemory);
    drop(late);

    assert_eq!(worker.later(0).lanes.iter().map(|lane| lane.state.name()).collect::<Vec<_>>(), ["running"]);
}

#[test]
fn a_sink_that_stays_away_needs_attention_once_for_all_lanes_and_until_it_is_back() {
    let worker = worker();
    let lanes: Vec<LaneStatus> = (0..3).map(|partition| worker.board.lane("t", Partition(partition))).collect();
    for lane in &lanes {
        lane.state(LaneState::Waiting { since: worker.now, why: "connect: refused".into(), hint: None, attempts: 4 });
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
    lane.state(LaneState::Waiting { since: worker.now, why, hint, attempts: 4 });

    assert_eq!(worker.later(10_000).attention[0].hint.as_deref(), Some("GRANT it"));
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

#[test]
fn lag_is_the_distance_to_the_end_and_the_age_of_the_last_record() {
    let worker = worker();
    let lane = worker.board.lane("t", Partition(0));
    let progress = |frontier| Progress {
        frontier: Offset(frontier),
        last_record: Some(worker.now),
        open_windows: 1,
        unit_since: Some(worker.at(1_000)),
    };

    lane.progress(progress(40));
    let seen = worker.later(2_500).lanes.remove(0);
    assert_eq!((seen.lag_records, seen.lag_seconds), (None, Some(2.5)));
    assert_eq!(seen.unit_in_flight_seconds, Some(1.5));

    worker.board.end_offset("t", Partition(0), Offset(42).into());
    let seen = worker.later(2_500).lanes.remove(0);
    assert_eq!((seen.lag_records, seen.lag_seconds), (Some(2), Some(2.5)));

    // At the end stand two control records.
    worker.board.end_offset("t", Partition(0), LogEnd { log: Offset(44), records: Offset(42) });
    lane.progress(progress(42));
    let seen = worker.later(2_500).lanes.remove(0);
    assert_eq!((seen.lag_records, seen.lag_seconds), (Some(0), Some(0.0)));
    assert_eq!(seen.end_offset, Some(Offset(44)));
}

/// A worker in which everything happened at once.
fn troubled() -> (Status, Vec<LaneStatus>) {
    let worker = worker();
    worker.board.group(GroupState::Joined, worker.now);
    let lanes: Vec<LaneStatus> =
        (0..4).map(|partition| worker.board.lane("shop.inventory.orders", Partition(partition))).collect();
    for (i, lane) in (0i64..).zip(&lanes) {
        let frontier = Offset([1_204_551, 88, 310_002, 7][i as usize]);
        lane.progress(Progress {
            frontier,
            last_record: Some(worker.at(-40_000 * i)),
            open_windows: usize::from(i == 0),
            unit_since: None,
        });
        worker.board.end_offset("shop.inventory.orders", Partition(i as i32), Offset(frontier.0 + i * 1_500).into());
    }
    let mut metrics = LaneMetrics::new(worker.metrics.clone(), "shop.inventory.orders", Partition(0));
    metrics.read(1_204_600, 1 << 30);
    metrics.committed(
        &sink_api::Written { upserted: 900_000, deleted: 80_000, missing: vec![] },
        Duration::ZERO,
        [],
        worker.now,
    );
    let statements = [
        statement("5b1c-01", 1_204_000, Verdict::Applied),
        statement("5b1c-07", 1_204_551, held()),
        statement("9d\u{1b}[2J\n-02", 80, refused(Rule::Whole)),
    ];
    for (statement, lane) in statements.iter().zip([&lanes[1], &lanes[0], &lanes[2]]) {
        lane.statement(statement, worker.at(60_000));
        metrics.statement(statement, SparedKeys { window: 12, ..SparedKeys::default() });
    }
    lanes[0].state(LaneState::Running);
    lanes[1].state(LaneState::Running);
    let why = "write public.orders: connection refused (08006)".to_owned();
    lanes[2].state(LaneState::Waiting { since: worker.at(50_000), why, hint: None, attempts: 17 });
    lanes[3].state(LaneState::Stopped {
        since: worker.at(30_000),
        what: "records 7 to 41 are gone: Kafka's log starts at 42".into(),
        hint: Some(
            "snapshot the table again, then: sink-repair reset --name orders --topic shop.inventory.orders --partition 3 --to 42"
                .into(),
        ),
    });
    lanes[1].dead_letter(Offset(70), Some("public.orders".into()), "column total: not a number", worker.at(1_000));
    lanes[1].dead_letter(Offset(75), Some("public.orders".into()), "column total: not a number", worker.at(2_000));
    (worker.later(11_520_000), lanes)
}

#[test]
fn a_status_survives_its_way_over_json() {
    let (status, _lanes) = troubled();

    let json = serde_json::to_string(&status).unwrap();

    assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    let lane = &serde_json::to_value(&status).unwrap()["lanes"][2];
    assert_eq!(
        (&lane["state"], &lane["attempts"], &lane["frontier"]),
        (&"waiting".into(), &17.into(), &310_002.into())
    );
}

#[test]
fn the_text_shows_first_what_needs_a_person() {
    let (status, _lanes) = troubled();
    let since = |ms: i64| UnixMillis(status.at.0 - 11_520_000 + ms);

    let text = text::render(&status);

    let expected = include_str!("troubled.txt")
        .replace("{VERSION}", env!("CARGO_PKG_VERSION"))
        .replace("{STOPPED}", &since(30_000).to_the_second())
        .replace("{WAITING}", &since(50_000).to_the_second())
        .replace("{HELD}", &since(60_000).to_the_second())
        .replace("{PARKED}", &since(1_000).to_the_second());
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn a_worker_at_rest_says_so() {
    let worker = worker();

    let text = text::render(&worker.later(5_000));

    assert!(text.contains("\nNothing needs attention.\n\nNo lanes: the worker has no partitions.\n"), "{text}");
    assert!(text.contains("sink-repair-orders: joining (for 5s)"), "{text}");
}

#[test]
fn every_total_comes_from_its_metric() {
    let worker = worker();
    let mut lane = LaneMetrics::new(worker.metrics.clone(), "t", Partition(0));
    lane.read(1, 1);
    lane.committed(&sink_api::Written { upserted: 1, deleted: 0, missing: vec![] }, Duration::ZERO, [], worker.now);
    let statements =
        [StatementRow { removed: 1, ..statement("a", 1, held()) }, statement("b", 2, refused(Rule::Whole))];
    statements
        .iter()
        .for_each(|statement| lane.statement(statement, SparedKeys { changed: 1, ..SparedKeys::default() }));
    lane.dead_letter(crate::decode::Stage::TaskPut);
    lane.retry(sink_api::ErrorClass::Transient);
    worker.metrics.rebalance(crate::metrics::RebalanceKind::Lost);

    let counters = worker.later(0).counters;

    let expected = Counters {
        records: 1,
        rows: 1,
        statements: 2,
        held: 1,
        refused: 1,
        orphans: 10_420,
        removed: 1,
        missing: 6,
        spared: 2,
        dead_letters: 1,
        retries: 1,
        rebalances: 1,
    };
    assert_eq!(counters, expected);
}

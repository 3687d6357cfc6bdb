#![allow(clippy::unwrap_used, missing_docs)]

mod attention;

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
    lanes[2].state(LaneState::Waiting { on: Awaited::Sink, since: worker.at(50_000), why, hint: None, attempts: 17 });
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

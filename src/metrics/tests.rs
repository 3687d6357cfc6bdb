#![allow(clippy::unwrap_used, missing_docs)]

use std::{fmt::Write, fs, path::Path, sync::Arc};

use sink_api::{Offset, Partition, ReadId, Rule, StatementKind, StatementRow, Verdict, Written};

use super::*;
use crate::status::{Progress, StatusBoard};

fn board(metrics: &Arc<Metrics>) -> StatusBoard {
    StatusBoard::new("w", "g", "postgres://app@db/shop", metrics.clone())
}

fn statement(verdict: Verdict) -> StatementRow {
    StatementRow {
        read_id: ReadId("snap-01".into()),
        kind: StatementKind::Chunk,
        table: None,
        source_table: "inventory.orders".into(),
        extent: "all keys".into(),
        offset: Offset(7),
        verdict,
        orphans: 5,
        removed: 2,
        missing: 3,
        spared: 4,
        confirmed: None,
        in_range: 10,
    }
}

/// The lines of the rendering that begin with `sink_repair_` and one of `names`.
fn lines(text: &str, names: &[&str]) -> Vec<String> {
    let named = |line: &&str| names.iter().any(|name| line.starts_with(&format!("sink_repair_{name}")));
    text.lines().filter(named).map(str::to_owned).collect()
}

#[test]
fn the_documentation_lists_the_metrics_as_they_are_declared() {
    let metrics = Metrics::new();
    let mut table = String::from("| metric | type | labels | |\n|---|---|---|---|\n");
    for Declared { name, kind, labels, help } in metrics.declared() {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    let page = format!(
        "# Metrics\n\nServed at `/metrics` on `--listen`, in Prometheus' text format. Made from `src/metrics/mod.rs` by\n\
         `BLESS=1 cargo test -p sink-repair --lib metrics`; a test compares the two.\n\n{table}"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }

    let written = fs::read_to_string(&path).unwrap();

    assert_eq!(written, page, "docs/metrics.md is out of date: BLESS=1 cargo test -p sink-repair --lib metrics");
}

#[test]
fn names_follow_the_convention() {
    for Declared { name, kind, help, .. } in Metrics::new().declared() {
        let word = |char: char| char.is_ascii_lowercase() || char == '_';
        assert!(name.starts_with("sink_repair_") && name.chars().all(word), "{name}");
        assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
        assert!(*kind != "histogram" || name.ends_with("_seconds"), "{name}");
        assert!(!help.ends_with('.') && help.starts_with(char::is_uppercase), "{name}: {help}");
    }
}

#[test]
fn a_statement_counts_under_its_verdict_and_rule() {
    let metrics = Arc::new(Metrics::new());
    let lane = LaneMetrics::new(metrics.clone(), "shop.orders", Partition(0));

    lane.statement(&statement(Verdict::Applied), SparedKeys { window: 1, visibility: 2, changed: 1 });
    lane.statement(&statement(Verdict::Held { rule: Rule::Cap, reason: String::new() }), SparedKeys::default());
    let refused = Verdict::Refused { rule: Rule::Visibility, reason: String::new(), again: true };
    lane.statement(&statement(refused), SparedKeys::default());

    assert_eq!(
        lines(&metrics.render(&board(&metrics).status()), &["statements", "orphan", "removed", "missing", "spared"]),
        [
            r#"sink_repair_missing_rows_total{topic="shop.orders"} 9"#,
            r#"sink_repair_orphan_rows_total{topic="shop.orders"} 15"#,
            r#"sink_repair_removed_rows_total{topic="shop.orders"} 6"#,
            r#"sink_repair_spared_keys_total{reason="changed",topic="shop.orders"} 1"#,
            r#"sink_repair_spared_keys_total{reason="visibility",topic="shop.orders"} 2"#,
            r#"sink_repair_spared_keys_total{reason="window",topic="shop.orders"} 1"#,
            r#"sink_repair_statements_held_total{rule="cap",topic="shop.orders"} 1"#,
            r#"sink_repair_statements_refused_total{rule="visibility",topic="shop.orders"} 1"#,
            r#"sink_repair_statements_total{kind="chunk",topic="shop.orders",verdict="applied"} 1"#,
            r#"sink_repair_statements_total{kind="chunk",topic="shop.orders",verdict="held"} 1"#,
            r#"sink_repair_statements_total{kind="chunk",topic="shop.orders",verdict="refused"} 1"#,
        ]
    );
}

#[test]
fn latency_runs_from_the_records_timestamp_to_the_commit() {
    let metrics = Arc::new(Metrics::new());
    let mut lane = LaneMetrics::new(metrics.clone(), "t", Partition(0));
    let written = Written { upserted: 2, deleted: 1, missing: Vec::new() };

    lane.committed(&written, Duration::from_millis(4), [900, 990, 1_000, 1_500], UnixMillis(1_000));

    let text = metrics.render(&board(&metrics).status());
    let buckets = lines(&text, &["event_to_commit_seconds_bucket"]);
    assert_eq!(buckets[0], r#"sink_repair_event_to_commit_seconds_bucket{topic="t",le="0.005"} 2"#);
    assert_eq!(buckets[1], r#"sink_repair_event_to_commit_seconds_bucket{topic="t",le="0.01"} 3"#);
    assert_eq!(buckets[8], r#"sink_repair_event_to_commit_seconds_bucket{topic="t",le="0.1"} 4"#);
    assert_eq!(
        lines(&text, &["rows_total", "batches_total", "batch_seconds_count"]),
        [
            "sink_repair_batch_seconds_count 1",
            r#"sink_repair_batches_total{partition="0",topic="t"} 1"#,
            r#"sink_repair_rows_total{operation="deleted",partition="0",topic="t"} 1"#,
            r#"sink_repair_rows_total{operation="upserted",partition="0",topic="t"} 2"#,
        ]
    );
}

#[test]
fn a_lane_that_went_away_leaves_no_gauges() {
    let metrics = Arc::new(Metrics::new());
    let board = board(&metrics);
    let lane = board.lane("t", Partition(3));
    lane.progress(Progress { frontier: Offset(40), last_record: None, open_windows: 0, unit_since: None });
    board.end_offset("t", Partition(3), Offset(42).into());

    let before = lines(&metrics.render(&board.status()), &["frontier", "lag_records", "lanes{state=\"starting"]);
    drop(lane);
    let after = lines(&metrics.render(&board.status()), &["frontier", "lag_records", "lanes{state=\"starting"]);

    assert_eq!(
        before,
        [
            r#"sink_repair_frontier_offset{partition="3",topic="t"} 40"#,
            r#"sink_repair_lag_records{partition="3",topic="t"} 2"#,
            r#"sink_repair_lanes{state="starting"} 1"#,
        ]
    );
    assert_eq!(after, [r#"sink_repair_lanes{state="starting"} 0"#]);
}

#[test]
fn counters_are_summed_over_their_labels() {
    let metrics = Arc::new(Metrics::new());
    LaneMetrics::new(metrics.clone(), "t", Partition(0)).read(3, 100);
    LaneMetrics::new(metrics.clone(), "t", Partition(1)).read(4, 100);

    assert_eq!(metrics.total("sink_repair_records_total"), 7);
    assert_eq!(metrics.total("sink_repair_no_such_total"), 0);
}

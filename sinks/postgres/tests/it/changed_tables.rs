//! Tables whose definition changes under a running lane: PostgreSQL itself would round, cut or cascade in silence.

use sink_api::{
    Difference, DifferenceQuery, ErrorClass, Extent, KeyBound, KeyList, KeyRange, KeySet, Sink, SinkError, SinkLane,
    Unit, Value,
};

use crate::fixture::{Bench, Db, int, lane_id, public, text, upsert, wait_until};

const OUTDATED: &str = "write public.t: the table's definition has changed";

async fn difference(bench: &mut Bench) -> Result<Difference, SinkError> {
    let table = bench.table.clone();
    let mut unit = bench.lane.begin(bench.state.as_ref()).await?;
    unit.difference(&DifferenceQuery {
        table: &table,
        extent: &Extent::Range(KeyRange { lower: KeyBound::Open, upper: KeyBound::Open }),
        selected: &KeySet::List(KeyList::new()),
        spared: &KeyList::new(),
        name_orphans: 10,
        name_missing: 10,
    })
    .await
}

fn assert_outdated(error: &SinkError) {
    assert_eq!((error.class, error.message.as_str()), (ErrorClass::Configuration, OUTDATED));
}

#[tokio::test]
async fn a_value_is_not_rounded_to_a_column_that_has_become_narrower() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v numeric(10,2), at timestamptz)").await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id, v| [(int(id), upsert([Value::Int(id), text(v), text("2026-01-01T00:00:00.123456Z")]))];
    bench.write(row(1, "1.55")).await;

    db.run("ALTER TABLE t ALTER v TYPE numeric(10,0)").await;
    assert_outdated(&bench.error(row(2, "1.55")).await);
    bench.table = bench.sink.describe(&public("t")).await.unwrap();
    assert_eq!(bench.error(row(2, "1.55")).await.class, ErrorClass::Data);

    db.run("ALTER TABLE t ALTER at TYPE timestamptz(0)").await;
    assert_outdated(&bench.error(row(2, "2")).await);
    assert_eq!(db.rows("SELECT id FROM t").await, ["1"]);
}

/// Two keys of the source would be one at the sink, and neither what the statement says.
#[tokio::test]
async fn keys_are_not_listed_from_a_column_that_has_become_narrower() {
    let mut db = Db::new("CREATE TABLE t (id timestamptz PRIMARY KEY); INSERT INTO t VALUES ('2026-01-01')").await;
    let mut bench = Bench::new(&db, "t").await;
    assert_eq!(difference(&mut bench).await.unwrap().orphan_count, 1);

    db.run("ALTER TABLE t ALTER id TYPE timestamptz(0)").await;

    assert_outdated(&difference(&mut bench).await.unwrap_err());
}

#[tokio::test]
async fn a_foreign_key_that_was_added_since_is_seen_before_a_removal() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let mut bench = Bench::new(&db, "t").await;
    difference(&mut bench).await.unwrap();

    db.run("CREATE TABLE lines (t int REFERENCES t ON DELETE CASCADE)").await;

    assert_outdated(&difference(&mut bench).await.unwrap_err());
    let now = bench.sink.describe(&public("t")).await.unwrap();
    assert!(now.removal_hazards[0].contains("lines"), "{:?}", now.removal_hazards);
}

#[tokio::test]
async fn what_does_not_change_a_table_stops_nothing() {
    let mut db =
        Db::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g FROM generate_series(1, 100) g")
            .await;
    let mut bench = Bench::new(&db, "t").await;

    for harmless in
        ["ANALYZE t", "VACUUM t", "VACUUM FULL t", "CREATE INDEX ON t (v)", "VACUUM pg_attribute", "REINDEX TABLE t"]
    {
        db.run(harmless).await;
        let found = difference(&mut bench).await.unwrap_or_else(|error| panic!("{harmless}: {error}"));
        assert_eq!(found.orphan_count, 100, "{harmless}");
    }
}

#[tokio::test]
async fn a_table_does_not_change_while_a_unit_of_work_is_under_way() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1)").await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();
    let mut unit = bench.lane.begin(bench.state.as_ref()).await.unwrap();
    let all = Extent::Range(KeyRange { lower: KeyBound::Open, upper: KeyBound::Open });
    let (selected, spared) = (KeySet::List(KeyList::new()), KeyList::new());
    let query = DifferenceQuery {
        table: &table,
        extent: &all,
        selected: &selected,
        spared: &spared,
        name_orphans: 1,
        name_missing: 1,
    };
    unit.difference(&query).await.unwrap();

    db.run(
        "SET lock_timeout = '200ms'; DO $$ BEGIN
        CREATE TABLE lines (t int REFERENCES t ON DELETE CASCADE);
        RAISE 'the foreign key was added';
        EXCEPTION WHEN lock_not_available THEN NULL; END $$",
    )
    .await;
}

/// `reset --table` while the worker runs: it goes on writing, so its claim comes back.
#[tokio::test]
async fn a_claim_that_was_reset_is_made_again_by_the_lane_that_goes_on_writing() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut bench = Bench::new(&db, "t").await;
    bench.sink.claim_table(&public("t"), &crate::fixture::source("inventory.t"), &lane_id("shop")).await.unwrap();
    let mut lane = bench.sink.claim(&lane_id("shop")).await.unwrap();
    assert!(!db.sink().await.release_table(&public("t")).await.unwrap().is_empty());
    let claims = "SELECT source FROM sink_repair.stream WHERE released_at IS NULL";
    assert_eq!(db.rows(claims).await, [""; 0]);

    let unit = {
        let mut unit = lane.lane.begin(None).await.unwrap();
        unit.write(&crate::fixture::batch(&bench.table, [(int(1), upsert([Value::Int(1)]))])).await.unwrap();
        unit
    };
    unit.commit(&crate::fixture::state(1)).await.unwrap();

    assert_eq!(db.rows(claims).await, ["inventory.t"]);
    bench.state = None;
}

/// The lanes of two topics in one process, one of them idle: what it would write is not for the other's statements.
#[tokio::test]
async fn a_reset_while_the_worker_runs_forgets_no_stream_of_it() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut bench = Bench::new(&db, "t").await;
    let idle = sink_api::LaneId { topic: "idle".into(), topic_id: sink_api::TopicId([3; 16]), ..lane_id("orders") };
    for (lane, source) in [(&lane_id("orders"), "inventory.t"), (&idle, "archive.t")] {
        bench.sink.claim_table(&public("t"), &crate::fixture::source(source), lane).await.unwrap();
    }
    assert_eq!(db.sink().await.release_table(&public("t")).await.unwrap().len(), 2);

    bench.write([(int(1), upsert([Value::Int(1)]))]).await;

    let claims = "SELECT source || ' ' || topic FROM sink_repair.stream WHERE released_at IS NULL ORDER BY 1";
    assert_eq!(db.rows(claims).await, ["archive.t idle", "inventory.t orders"]);
}

/// Between a look at a table's streams and a removal no other stream may begin: its rows would be nobody's orphans.
#[tokio::test]
async fn a_claim_waits_for_a_unit_that_looked_at_the_claims() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut bench = Bench::new(&db, "t").await;
    bench.sink.claim_table(&public("t"), &crate::fixture::source("inventory.t"), &lane_id("orders")).await.unwrap();
    let other = db.sink().await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    assert_eq!(
        unit.removal_budget(&bench.table, &crate::fixture::source("inventory.t")).await.unwrap().streams,
        [""; 0]
    );
    let claim = tokio::spawn(async move {
        other.claim_table(&public("t"), &crate::fixture::source("archive.t"), &lane_id("archive")).await
    });
    wait_until(
        &mut db,
        "the claim waits",
        "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'sink_repair.stream'::regclass",
    )
    .await;
    unit.commit(&crate::fixture::state(1)).await.unwrap();

    assert!(claim.await.unwrap().unwrap().is_some_and(|first| first.contains("inventory.t")));
    let claims = "SELECT source FROM sink_repair.stream ORDER BY source";
    assert_eq!(db.rows(claims).await, ["archive.t", "inventory.t"]);
}

use std::time::Duration;

use sink_api::{
    ErrorClass, KeyList, LaneId, Offset, ReadId, Removal, RemovalBudget, Rule, Sink, SinkLane, StatementKind,
    StatementRow, UndoSelector, Undone, Unit, Value, Verdict,
};

use crate::{
    fixture::{Bench, Db, int, keys, public, state, text, upsert},
    values::{TYPES, table_of_all_types},
};

const TABLE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 10) i";

fn read(id: &str) -> UndoSelector {
    UndoSelector::Read(ReadId(id.into()))
}

fn undone(restored: u64, occupied: u64) -> Vec<Undone> {
    vec![Undone { table: Some(public("t")), restored, occupied, failed: Vec::new() }]
}

#[tokio::test]
async fn a_removal_takes_exactly_the_given_rows_and_keeps_their_copies() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;

    let removed = bench.remove(&[int(3), int(5), int(99)], "read-1").await;

    assert_eq!(removed, 2);
    assert_eq!(db.one("SELECT string_agg(id::text, ' ' ORDER BY id) FROM t").await, "1 2 4 6 7 8 9 10");
    assert_eq!(
        db.rows("SELECT table_schema, table_name, row_text, read_id, reason, name, topic, topic_id, partition, position, removed_at > now() - interval '1 minute', restored_at FROM sink_repair.removed ORDER BY id").await,
        [
            "public|t|{\"v\": \"v3\", \"id\": \"3\"}|read-1|absent at the source|test|orders|07070707-0707-0707-0707-070707070707|0|11|t|∅",
            "public|t|{\"v\": \"v5\", \"id\": \"5\"}|read-1|absent at the source|test|orders|07070707-0707-0707-0707-070707070707|0|11|t|∅",
        ]
    );
}

#[tokio::test]
async fn a_removal_that_is_not_committed_leaves_rows_and_no_copies() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();

    let mut unit = bench.lane.begin(None).await.unwrap();
    let removal = Removal { table: &table, keys: &keys(&[int(3)]), read_id: &ReadId("r".into()), offset: Offset(1) };
    assert_eq!(unit.remove(&removal).await.unwrap(), 1);
    drop(unit);

    assert_eq!(
        db.one("SELECT (SELECT count(*) FROM t) || ' ' || (SELECT count(*) FROM sink_repair.removed)").await,
        "10 0"
    );
}

#[tokio::test]
async fn undo_brings_rows_of_every_type_back_as_they_were() {
    let (create, rows) = table_of_all_types("t");
    let mut db = Db::new(&format!("{TYPES}{create}; CREATE TABLE before AS SELECT id, t::text AS whole FROM t")).await;
    let mut bench = Bench::new(&db, "t").await;
    let all: Vec<_> = (0..rows as i64).map(int).collect();

    assert_eq!(bench.remove(&all, "read-1").await, rows as u64);
    assert_eq!(db.one("SELECT count(*) FROM t").await, "0");
    assert_eq!(bench.sink.undo(&read("read-1")).await.unwrap(), undone(rows as u64, 0));

    assert_eq!(db.one("SELECT count(*) FROM before JOIN t USING (id) WHERE whole = t::text").await, rows.to_string());
}

#[tokio::test]
async fn undo_never_goes_over_a_row_that_is_there_and_restores_each_copy_once() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    bench.remove(&[int(1), int(2), int(3)], "read-1").await;
    db.run("INSERT INTO t VALUES (2, 'newer')").await;

    assert_eq!(bench.sink.undo(&read("read-1")).await.unwrap(), undone(2, 1));
    db.run("DELETE FROM t WHERE id = 1").await;
    assert_eq!(bench.sink.undo(&read("read-1")).await.unwrap(), undone(0, 1));
    assert_eq!(bench.sink.undo(&read("another")).await.unwrap(), Vec::new());

    assert_eq!(db.rows("SELECT * FROM t WHERE id < 4 ORDER BY id").await, ["2|newer", "3|v3"]);
}

#[tokio::test]
async fn undo_by_table_and_time_brings_the_newest_copy_back() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    bench.remove(&[int(1), int(2)], "read-1").await;
    db.run("UPDATE sink_repair.removed SET removed_at = removed_at - interval '1 day'").await;
    let since: i64 = db.one("SELECT (extract(epoch FROM now()) * 1000000)::int8 - 3600000000").await.parse().unwrap();
    bench.write([(int(1), upsert([Value::Int(1), text("second life")]))]).await;
    bench.remove(&[int(1)], "read-2").await;

    let by_time = |since| UndoSelector::Table { table: public("t"), since };
    assert_eq!(bench.sink.undo(&by_time(since)).await.unwrap(), undone(1, 0));
    assert_eq!(bench.sink.undo(&by_time(i64::MIN)).await.unwrap(), undone(1, 1));

    assert_eq!(db.rows("SELECT * FROM t WHERE id < 3 ORDER BY id").await, ["1|second life", "2|v2"]);
}

#[tokio::test]
async fn undo_says_for_each_row_that_cannot_come_back_why() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text, w text, u text UNIQUE); INSERT INTO t VALUES (1, 'a', 'w', 'x'), (2, 'b', NULL, 'y'), (3, 'c', NULL, 'z')").await;
    let mut bench = Bench::new(&db, "t").await;
    bench.remove(&[int(1), int(2), int(3)], "read-1").await;
    db.run("ALTER TABLE t DROP COLUMN w; ALTER TABLE t ADD COLUMN n int DEFAULT 7; INSERT INTO t VALUES (9, 'q', 'z')")
        .await;

    let done = bench.sink.undo(&read("read-1")).await.unwrap().remove(0);

    assert_eq!((done.restored, done.occupied), (1, 0));
    assert_eq!(
        done.failed,
        [
            "removed row 3: restore a row of public.t: another row of public.t holds a value that constraint \"t_u_key\" keeps unique (23505)",
            "removed row 1: the table has no column \"w\" any more",
        ]
    );
    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["2|b|y|7", "9|q|z|7"]);
    db.run("DROP TABLE t").await;
    let gone = bench.sink.undo(&read("read-1")).await.unwrap().remove(0);
    assert_eq!(gone.failed[0], "removed row 3: describe public.t: the table is not there");
}

#[tokio::test]
async fn undo_fits_generated_and_identity_columns() {
    let mut db = Db::new(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text, twice text GENERATED ALWAYS AS (v || v) STORED);
         INSERT INTO t (v) VALUES ('a')",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench.remove(&[int(1)], "r").await;
    assert_eq!(bench.sink.undo(&read("r")).await.unwrap(), undone(1, 0));

    assert_eq!(db.rows("SELECT * FROM t").await, ["1|a|aa"]);
}

async fn budget(bench: &mut Bench) -> RemovalBudget {
    let table = bench.table.clone();
    let mut unit = bench.lane.begin(bench.state.as_ref()).await.unwrap();
    unit.removal_budget(&table, &crate::fixture::source("inventory.t")).await.unwrap()
}

#[tokio::test]
async fn the_budget_counts_removals_of_the_last_day_by_all_lanes_whatever_is_forgotten() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    assert_eq!(
        budget(&mut bench).await,
        RemovalBudget { removed_last_day: 0, rows: 10, streams: Vec::new(), fed: false }
    );

    bench.remove(&[int(1), int(2)], "r1").await;
    let other = bench.sink.claim(&crate::fixture::lane_id("other")).await.unwrap().lane;
    let mut other = Bench { sink: bench.sink.clone(), table: bench.table.clone(), lane: other, state: None };
    other.remove(&[int(3)], "r2").await;
    assert_eq!(bench.sink.expire_removed("test", Duration::ZERO).await.unwrap(), 3);
    assert_eq!(
        budget(&mut bench).await,
        RemovalBudget { removed_last_day: 3, rows: 7, streams: Vec::new(), fed: false }
    );

    let table = bench.table.clone();
    let mut unit = bench.lane.begin(bench.state.as_ref()).await.unwrap();
    let removal = Removal { table: &table, keys: &keys(&[int(4)]), read_id: &ReadId("r".into()), offset: Offset(1) };
    unit.remove(&removal).await.unwrap();
    assert_eq!(
        unit.removal_budget(&table, &crate::fixture::source("inventory.t")).await.unwrap(),
        RemovalBudget { removed_last_day: 4, rows: 6, streams: Vec::new(), fed: false }
    );
    drop(unit);

    db.run("UPDATE sink_repair.removal_count SET hour = hour - interval '26 hours'").await;
    assert_eq!(budget(&mut bench).await.removed_last_day, 0);
    bench.remove(&[int(5)], "r3").await;
    db.run("UPDATE sink_repair.removal_count SET hour = hour - interval '26 hours'").await;
    bench.remove(&[int(6)], "r4").await;
    let counts = "SELECT sum(removed), min(hour) > now() - interval '2 days' FROM sink_repair.removal_count";
    assert_eq!(db.one(counts).await, "2|t", "counts that no budget asks for any more are gone");
}

#[tokio::test]
async fn the_rows_of_large_and_of_partitioned_tables_are_estimated() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, repeat('x', 400) FROM generate_series(1, 30000) i;
         ANALYZE t;
         INSERT INTO t SELECT i, repeat('x', 400) FROM generate_series(30001, 60000) i;
         CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
         INSERT INTO p SELECT generate_series(50, 149)",
    )
    .await;

    let large = budget(&mut Bench::new(&db, "t").await).await.rows;
    assert!((59_000..=61_000).contains(&large), "{large}");
    assert_eq!(budget(&mut Bench::new(&db, "p").await).await.rows, 100);
    db.run("ANALYZE p").await;
    assert_eq!(budget(&mut Bench::new(&db, "p").await).await.rows, 100);
}

#[tokio::test]
async fn copies_are_forgotten_by_age_and_by_the_worker_that_made_them() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    bench.remove(&[int(1), int(2)], "old").await;
    let id = LaneId { name: "another".into(), ..crate::fixture::lane_id("orders") };
    let lane = bench.sink.claim(&id).await.unwrap().lane;
    let mut other = Bench { sink: bench.sink.clone(), table: bench.table.clone(), lane, state: None };
    other.remove(&[int(4)], "another's").await;
    db.run("UPDATE sink_repair.removed SET removed_at = removed_at - interval '8 days'").await;
    bench.remove(&[int(3)], "new").await;

    assert_eq!(bench.sink.expire_removed("test", Duration::from_secs(7 * 86_400)).await.unwrap(), 2);
    assert_eq!(bench.sink.expire_removed("test", Duration::from_secs(7 * 86_400)).await.unwrap(), 0);

    assert_eq!(db.rows("SELECT read_id FROM sink_repair.removed ORDER BY id").await, ["another's", "new"]);
}

#[tokio::test]
async fn a_table_is_known_by_itself_or_by_copies_of_its_rows() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    let sink = bench.sink.clone();

    assert!(sink.knows_table(&public("t")).await.unwrap());
    assert!(!sink.knows_table(&public("T")).await.unwrap());
    bench.remove(&[int(1)], "r").await;
    db.run("ALTER TABLE t RENAME TO another").await;
    assert!(sink.knows_table(&public("t")).await.unwrap());
    db.run("DELETE FROM sink_repair.removed").await;
    assert!(!sink.knows_table(&public("t")).await.unwrap());
}

/// Removes rows 1 to 3 under a delete trigger with this body.
async fn removed_under(body: &str) -> (Db, Result<u64, sink_api::SinkError>) {
    let db = Db::new(&format!(
        "{TABLE};
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
         CREATE TRIGGER keeper BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()"
    ))
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();
    let mut unit = bench.lane.begin(None).await.unwrap();
    let keys = keys(&[int(1), int(2), int(3), int(99)]);
    let removal = Removal { table: &table, keys: &keys, read_id: &ReadId("r".into()), offset: Offset(1) };
    let removed = match unit.remove(&removal).await {
        Ok(removed) => unit.commit(&state(1)).await.map(|()| removed),
        Err(error) => Err(error),
    };
    (db, removed)
}

#[tokio::test]
async fn a_removal_that_a_trigger_prevents_is_an_error_and_no_half_of_it_is_done() {
    let gone_and_kept = "SELECT (SELECT count(*) FROM t) || ' ' || (SELECT count(*) FROM sink_repair.removed)";

    for (body, kept) in [
        ("RETURN NULL;", 3),
        ("IF OLD.id = 2 THEN RETURN NULL; END IF; RETURN OLD;", 1),
        ("UPDATE t SET v = 'deleted' WHERE id = OLD.id; RETURN NULL;", 3),
    ] {
        let (mut db, removed) = removed_under(body).await;

        let error = removed.unwrap_err();
        assert_eq!(error.class, ErrorClass::Data);
        assert_eq!(
            error.message,
            format!(
                "remove orphans from public.t: the table kept {kept} of 4 rows: trigger \"keeper\" on t fires on DELETE"
            )
        );
        assert_eq!(db.one(gone_and_kept).await, "10 0");
    }

    let (mut db, removed) = removed_under("RETURN OLD;").await;
    assert_eq!(removed.unwrap(), 3);
    assert_eq!(db.one(gone_and_kept).await, "7 3");
}

fn statement(read_id: &str, verdict: Verdict) -> StatementRow {
    StatementRow {
        read_id: ReadId(read_id.into()),
        kind: StatementKind::Chunk,
        table: Some(public("t")),
        source_table: "inventory.t".into(),
        extent: "all keys".into(),
        offset: Offset(12),
        verdict,
        orphans: 2,
        removed: 0,
        missing: 1,
        spared: 3,
        confirmed: None,
        in_range: 10,
    }
}

#[tokio::test]
async fn the_first_verdict_on_a_read_stays_and_orphans_of_reported_and_held_ones_are_kept() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "t").await;
    let held = Verdict::Held { rule: Rule::Cap, reason: "2 of 10 rows".into() };
    let refused = Verdict::Refused { rule: Rule::Order, reason: "keys 3 and 4".into(), again: true };
    let orphans = keys(&[int(4), int(7)]);

    let mut unit = bench.lane.begin(None).await.unwrap();
    assert_eq!(unit.verdict(&ReadId("held".into())).await.unwrap(), None);
    unit.record(&statement("held", held), &orphans).await.unwrap();
    unit.record(&statement("held", Verdict::Applied), &KeyList::new()).await.unwrap();
    unit.record(&statement("reported", Verdict::Reported), &keys(&[int(4)])).await.unwrap();
    unit.record(&statement("applied", Verdict::Applied), &orphans).await.unwrap();
    unit.record(&statement("refused", refused), &KeyList::new()).await.unwrap();
    assert_eq!(unit.verdict(&ReadId("held".into())).await.unwrap().as_deref(), Some("held"));
    unit.commit(&state(1)).await.unwrap();

    assert_eq!(
        db.rows("SELECT read_id, encode(encoded, 'hex'), key FROM sink_repair.orphan ORDER BY 1, 2").await,
        [
            "held|8000000000000004|{\"id\": 4}",
            "held|8000000000000007|{\"id\": 7}",
            "reported|8000000000000004|{\"id\": 4}"
        ]
    );
    let overview = bench.sink.overview("test").await.unwrap();
    assert_eq!(overview.statements.len(), 4);
    let first = &overview.statements[0];
    assert_eq!((first.read_id.as_str(), first.verdict.as_str(), first.rule.as_deref()), ("held", "held", Some("cap")));
    assert_eq!((first.orphans, first.missing, first.spared, first.in_range, first.offset), (2, 1, 3, 10, 12));
    assert_eq!(overview.frontiers[0].next_offset, Some(1));
    assert_eq!(
        overview.verdicts.iter().map(|count| count.verdict.as_str()).collect::<Vec<_>>(),
        ["applied", "held", "refused", "reported"]
    );
    assert_eq!(db.one("SELECT again FROM sink_repair.statement WHERE read_id = 'refused'").await, "t");

    // Another incarnation has given no verdict yet.
    let mut reborn = crate::fixture::lane_id("orders");
    reborn.topic_id = sink_api::TopicId([9; 16]);
    let mut lane = bench.sink.claim(&reborn).await.unwrap().lane;
    let mut unit = lane.begin(None).await.unwrap();
    assert_eq!(unit.verdict(&ReadId("held".into())).await.unwrap(), None);
}

#[tokio::test]
async fn a_removal_that_a_foreign_key_forbids_is_an_error_and_removes_nothing() {
    let mut db = Db::new(&format!(
        "{TABLE}; CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t); INSERT INTO child VALUES (1, 3)"
    ))
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();

    let mut unit = bench.lane.begin(None).await.unwrap();
    let removal =
        Removal { table: &table, keys: &keys(&[int(2), int(3)]), read_id: &ReadId("r".into()), offset: Offset(1) };
    let error = unit.remove(&removal).await.unwrap_err();
    drop(unit);

    assert_eq!((error.class, error.code.as_deref()), (sink_api::ErrorClass::Data, Some("23503")));
    assert_eq!(db.one("SELECT count(*) FROM t").await, "10");
}

/// A row of a partition is one of its parent's too: who feeds the one feeds the other.
#[tokio::test]
async fn the_budget_names_the_streams_of_a_tables_parts_and_of_those_that_it_is_a_part_of() {
    let db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); \
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id); \
         CREATE TABLE t11 PARTITION OF t1 FOR VALUES FROM (0) TO (50)",
    )
    .await;
    for (fed, asked, alone) in [("t", "t", true), ("t11", "t", false), ("t", "t11", false), ("t1", "t11", false)] {
        let mut bench = Bench::new(&db, asked).await;
        let claims = [(asked, "inventory.t"), (fed, if fed == asked { "inventory.t" } else { "inventory.other" })];
        for (table, name) in claims {
            let name = crate::fixture::source(name);
            bench
                .sink
                .claim_table(&crate::fixture::public(table), &name, &crate::fixture::lane_id("test"))
                .await
                .unwrap();
        }

        let table = bench.table.clone();
        let mut unit = bench.lane.begin(None).await.unwrap();
        let budget = unit.removal_budget(&table, &crate::fixture::source("inventory.t")).await.unwrap();

        assert_eq!(budget.streams.is_empty(), alone, "{fed} {asked}: {:?}", budget.streams);
        drop(unit);
        for table in [fed, asked] {
            bench.sink.release_table(&crate::fixture::public(table)).await.unwrap();
        }
    }
}

/// The absence events of one read have names of their own; whoever undoes the read means all of them.
#[tokio::test]
async fn undo_of_a_read_brings_back_what_its_absence_events_removed() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 4)").await;
    let mut bench = Bench::new(&db, "t").await;
    for (id, read_id) in [(1, "AB-1#01"), (2, "AB-1#02"), (3, "AB-10#03"), (4, "AB-1%#04")] {
        bench.remove(&[int(id)], read_id).await;
    }

    let done = bench.sink.undo(&read("AB-1")).await.unwrap();

    assert_eq!(done, undone(2, 0));
    assert_eq!(db.rows("SELECT id::text FROM t ORDER BY id").await, ["1", "2"]);
}

/// A row that a trigger keeps out has not come back, and its key holds none.
#[tokio::test]
async fn undo_says_that_a_trigger_kept_a_row_out() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    bench.remove(&[int(1)], "r-1").await;
    db.run("CREATE TRIGGER f BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()").await;

    let done = bench.sink.undo(&read("r-1")).await.unwrap();

    assert_eq!((done[0].restored, done[0].occupied), (0, 0));
    assert!(done[0].failed[0].contains("a trigger of its own returned NULL"), "{:?}", done[0].failed);
}

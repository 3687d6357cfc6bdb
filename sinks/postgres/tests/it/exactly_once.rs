use std::time::Duration;

use sink_api::{
    ErrorClass, KeyList, KeyRange, KeySet, LaneState, MergedChange, Offset, ReadId, Removal, Sink, SinkLane, TopicId,
    Unit, Value, Xid,
};
use sink_postgres::PostgresSink;

use crate::fixture::{Bench, Db, batch, int, keys, lane_id, public, state, text, upsert, wait_until};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)";

fn one(id: i64, note: &str) -> (sink_api::Key, MergedChange) {
    (int(id), upsert([Value::Int(id), text(note)]))
}

#[tokio::test]
async fn a_unit_is_durable_as_a_whole_with_the_lanes_state() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    let committed = LaneState {
        next_offset: Offset(42),
        memory_offset: Offset(40),
        highest_xid: Some(Xid(u64::MAX)),
        unknown_past: true,
        partition_count: 6,
    };

    let mut unit = bench.lane.begin(None).await.unwrap();
    let written = unit.write(&batch(&bench.table, [one(1, "a"), one(2, "b")])).await.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM orders").await, "0");
    unit.commit(&committed).await.unwrap();

    assert_eq!((written.upserted, written.deleted, written.missing.len()), (2, 0, 0));
    assert_eq!(db.rows("SELECT * FROM orders ORDER BY id").await, ["1|a", "2|b"]);
    let claimed = bench.sink.claim(&lane_id("orders")).await.unwrap();
    assert_eq!((claimed.state, claimed.other_incarnation), (Some(committed), None));
}

#[tokio::test]
async fn a_dropped_unit_leaves_nothing_and_the_lane_goes_on() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&bench.table, [one(1, "lost")])).await.unwrap();
    drop(unit);
    bench.write([one(2, "kept")]).await;

    assert_eq!(db.rows("SELECT * FROM orders").await, ["2|kept"]);
}

#[tokio::test]
async fn a_step_that_was_cancelled_half_way_leaves_nothing() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    let mut blocker = Db { url: db.url.clone(), connection: connect(&db).await };
    blocker.run("BEGIN; INSERT INTO orders VALUES (1, 'blocks')").await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    let changes = batch(&bench.table, [one(0, "lost"), one(1, "lost")]);
    let cancelled = tokio::time::timeout(Duration::from_millis(200), unit.write(&changes)).await;
    assert!(cancelled.is_err());
    drop(unit);
    blocker.run("ROLLBACK").await;
    bench.write([one(2, "kept")]).await;

    wait_until(&mut db, "the abandoned backend's end", "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'sink-repair' AND state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()").await;
    assert_eq!(db.rows("SELECT * FROM orders").await, ["2|kept"]);
}

async fn connect(db: &Db) -> sqlx::PgConnection {
    use sqlx::Connection;
    sqlx::PgConnection::connect(&db.url).await.unwrap()
}

async fn successor(db: &Db) -> PostgresSink {
    let mut config = db.config();
    config.owner = "worker b".to_owned();
    PostgresSink::connect(&config).await.unwrap()
}

#[tokio::test]
async fn a_zombie_that_begins_late_writes_nothing_and_is_told_who_owns_the_lane() {
    let mut db = Db::new(TABLE).await;
    let mut zombie = Bench::new(&db, "orders").await;
    zombie.write([one(1, "before")]).await;
    let sink = successor(&db).await;
    let claimed = sink.claim(&lane_id("orders")).await.unwrap();
    assert_eq!(claimed.state, Some(state(1)));

    let begun = zombie.lane.begin(Some(&state(1))).await.err().unwrap();
    let asked = zombie.lane.committed().await.err().unwrap();

    assert_eq!((begun.class, asked.class), (ErrorClass::Fenced, ErrorClass::Fenced));
    assert!(begun.message.contains("it belongs to worker b now (epoch 2, this worker's is 1)"), "{}", begun.message);
    assert_eq!(db.rows("SELECT * FROM orders").await, ["1|before"]);
}

/// What SIGSTOP does in each phase: the worker stands still inside its transaction, a successor takes over at once, and
/// the worker wakes up, before or after the server has lost patience with its silence.
#[tokio::test]
async fn a_zombie_stopped_in_any_phase_of_a_unit_writes_nothing() {
    for (phase, patience) in
        [("begun", true), ("written", true), ("listed", true), ("removed", true), ("begun", false), ("removed", false)]
    {
        let mut db = Db::new(&format!("{TABLE}; INSERT INTO orders VALUES (9, 'orphan')")).await;
        let mut config = db.config();
        config.idle_in_transaction_timeout = Duration::from_millis(if patience { 60_000 } else { 300 });
        let sink = PostgresSink::connect(&config).await.unwrap();
        let table = sink.describe(&public("orders")).await.unwrap();
        let mut lane = sink.claim(&lane_id("orders")).await.unwrap().lane;
        let mut unit = lane.begin(None).await.unwrap();
        if phase != "begun" {
            unit.write(&batch(&table, [one(1, "late")])).await.unwrap();
        }
        if phase == "listed" || phase == "removed" {
            let found = unit
                .difference(&sink_api::DifferenceQuery {
                    table: &table,
                    extent: &sink_api::Extent::Range(KeyRange::ALL),
                    selected: &KeySet::List(keys(&[int(1)])),
                    spared: &KeyList::new(),
                    name_orphans: 10,
                    name_missing: 10,
                })
                .await
                .unwrap();
            assert_eq!(found.orphans, keys(&[int(9)]));
        }
        if phase == "removed" {
            let removal =
                Removal { table: &table, keys: &keys(&[int(9)]), read_id: &ReadId("r".into()), offset: Offset(0) };
            assert_eq!(unit.remove(&removal).await.unwrap(), 1);
        }

        let mut successor = successor(&db).await.claim(&lane_id("orders")).await.unwrap();
        assert_eq!(successor.state, None, "{phase}");
        if !patience {
            let gone = "SELECT count(*) = 0 FROM pg_stat_activity
                        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
            wait_until(&mut db, "the end of the server's patience", gone).await;
        }
        // The worker wakes up before the successor has committed anything, so that the epoch alone stands in its way.
        let woken = unit.commit(&state(1)).await.unwrap_err();
        let mine = successor.lane.begin(None).await.unwrap();
        mine.commit(&state(5)).await.unwrap();
        let again = lane.begin(None).await.err().unwrap();

        let expected = if patience { ErrorClass::Fenced } else { ErrorClass::Transient };
        assert_eq!((woken.class, again.class), (expected, ErrorClass::Fenced), "{phase}: {woken}");
        assert_eq!(db.rows("SELECT * FROM orders").await, ["9|orphan"], "{phase}");
        assert_eq!(db.one("SELECT count(*) FROM sink_repair.removed").await, "0", "{phase}");
        assert_eq!(successor.lane.committed().await.unwrap(), Some(state(5)), "{phase}");
    }
}

/// A frontier that someone moved by hand: what the unit builds upon is no longer what the sink says.
#[tokio::test]
async fn a_frontier_that_was_moved_under_a_unit_keeps_its_commit_out() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    bench.write([one(1, "before")]).await;

    let mut unit = bench.lane.begin(bench.state.as_ref()).await.unwrap();
    unit.write(&batch(&bench.table, [one(2, "late")])).await.unwrap();
    db.run("UPDATE sink_repair.frontier SET next_offset = 7").await;
    let error = unit.commit(&state(2)).await.unwrap_err();

    assert_eq!(error.class, ErrorClass::Fenced, "{error}");
    assert_eq!(db.rows("SELECT id FROM orders").await, ["1"]);
    assert_eq!(db.one("SELECT next_offset FROM sink_repair.frontier").await, "7");
}

/// The last phase: the frontier is updated, the commit on its way. A claim waits for it and sees its outcome.
#[tokio::test]
async fn a_claim_during_a_commit_waits_for_it_and_sees_its_outcome() {
    let mut db = Db::new(&format!(
        "{TABLE};
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()"
    ))
    .await;
    let mut old = Bench::new(&db, "orders").await;
    let sink = successor(&db).await;

    let mut unit = old.lane.begin(None).await.unwrap();
    unit.write(&batch(&old.table, [one(1, "in time")])).await.unwrap();
    let next = state(1);
    let claim = async {
        let sleeping =
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        wait_until(&mut db, "the commit's work", sleeping).await;
        sink.claim(&lane_id("orders")).await.unwrap()
    };
    let (committed, mut claimed) = tokio::join!(unit.commit(&next), claim);

    committed.unwrap();
    assert_eq!(claimed.state, Some(state(1)));
    assert_eq!(old.lane.begin(Some(&state(1))).await.err().unwrap().class, ErrorClass::Fenced);
    claimed.lane.begin(Some(&state(1))).await.unwrap();
}

/// Both workers believe in the lane and race, over and over: every offset is written by exactly one of them.
#[tokio::test]
async fn of_workers_that_race_for_a_lane_one_writes_each_offset() {
    let mut db = Db::new("CREATE TABLE log (id serial PRIMARY KEY, worker int, from_offset bigint)").await;
    let workers = (0..3_i64).map(|worker| {
        let config = db.config();
        tokio::spawn(async move {
            let sink = PostgresSink::connect(&config).await.unwrap();
            let table = sink.describe(&public("log")).await.unwrap();
            let mut commits = 0;
            for _ in 0..15 {
                let mut claimed = sink.claim(&lane_id("log")).await.unwrap();
                let mut at = claimed.state;
                for _ in 0..5 {
                    let from = at.as_ref().map_or(0, |state| state.next_offset.0);
                    // A serial key that no other attempt has: what is written twice shows.
                    let id = from * 10 + worker;
                    let row = (int(id), upsert([Value::Int(id), Value::Int(worker), Value::Int(from)]));
                    let next = state(from + 1);
                    let done = async {
                        let mut unit = claimed.lane.begin(at.as_ref()).await?;
                        unit.write(&batch(&table, [row])).await?;
                        unit.commit(&next).await
                    };
                    match done.await {
                        Ok(()) => (commits, at) = (commits + 1, Some(next)),
                        Err(error) => {
                            assert_eq!(error.class, ErrorClass::Fenced, "{error}");
                            break;
                        }
                    }
                }
            }
            commits
        })
    });
    let mut commits = 0;
    for worker in workers.collect::<Vec<_>>() {
        commits += worker.await.unwrap();
    }

    let expected = format!("{commits}|{commits}|0|{}", commits - 1);
    assert_eq!(
        db.one("SELECT count(*), count(DISTINCT from_offset), min(from_offset), max(from_offset) FROM log").await,
        expected
    );
    assert_eq!(db.one("SELECT next_offset FROM sink_repair.frontier").await, commits.to_string());
}

#[tokio::test]
async fn a_unit_on_another_offset_than_the_committed_one_is_fenced() {
    let db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    bench.write([one(1, "a")]).await;

    let stale = bench.lane.begin(None).await.err().unwrap();
    let ahead = bench.lane.begin(Some(&state(7))).await.err().unwrap();

    assert_eq!((stale.class, ahead.class), (ErrorClass::Fenced, ErrorClass::Fenced));
    assert!(ahead.message.contains("frontier is at 1, this worker expected 7"), "{}", ahead.message);
    bench.lane.begin(Some(&state(1))).await.unwrap();
}

#[tokio::test]
async fn another_incarnation_counts_as_none_and_is_kept_until_the_first_commit() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    bench.write([one(1, "a")]).await;
    let mut reborn = lane_id("orders");
    reborn.topic_id = TopicId([8; 16]);
    let stored = "SELECT topic_id, next_offset FROM sink_repair.frontier";

    let mut claimed = bench.sink.claim(&reborn).await.unwrap();
    assert_eq!((claimed.state, claimed.other_incarnation), (None, Some(TopicId([7; 16]))));
    assert_eq!(db.one(stored).await, "07070707-0707-0707-0707-070707070707|1");
    assert_eq!(claimed.lane.committed().await.unwrap(), None);

    let unit = claimed.lane.begin(None).await.unwrap();
    unit.commit(&state(0)).await.unwrap();
    assert_eq!(db.one(stored).await, "08080808-0808-0808-0808-080808080808|0");
    assert_eq!(claimed.lane.committed().await.unwrap(), Some(state(0)));
}

#[tokio::test]
async fn lanes_of_two_names_or_partitions_do_not_know_each_other() {
    let db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    bench.write([one(1, "a")]).await;
    let mut other_name = lane_id("orders");
    other_name.name = "other".into();
    let mut other_partition = lane_id("orders");
    other_partition.partition = sink_api::Partition(1);

    assert_eq!(bench.sink.claim(&other_name).await.unwrap().state, None);
    assert_eq!(bench.sink.claim(&other_partition).await.unwrap().state, None);
    bench.write([one(2, "b")]).await;
}

#[tokio::test]
async fn a_connection_that_died_before_the_commit_is_made_again() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE application_name = 'sink-repair' AND datname = current_database()";

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&bench.table, [one(1, "lost")])).await.unwrap();
    db.run(kill).await;
    let error = unit.commit(&state(1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert_eq!(bench.lane.committed().await.unwrap(), None);
    bench.write([one(2, "kept")]).await;
    db.run(kill).await;
    bench.write([one(3, "kept")]).await;
    db.run(kill).await;
    bench.sink.describe(&public("orders")).await.unwrap();

    assert_eq!(db.rows("SELECT * FROM orders ORDER BY id").await, ["2|kept", "3|kept"]);
}

/// The backend is ended while COMMIT waits for a standby that never answers: the client sees an error, the transaction
/// is in. (A deferred trigger, below, gives the reverse.)
#[tokio::test]
async fn after_a_commit_of_unknown_outcome_the_frontier_tells_that_it_is_in() {
    let mut db = Db::new(TABLE).await;
    let mut bench = Bench::new(&db, "orders").await;
    let name = db.one("SELECT current_database()").await;
    drop(bench.lane.begin(None).await.unwrap());
    assert_eq!(
        db.one("SHOW synchronous_standby_names").await,
        "nobody",
        "start the server with this and synchronous_commit=local"
    );
    // From the lane's next connection on.
    db.run(&format!("ALTER DATABASE {name} SET synchronous_commit = 'on'")).await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&bench.table, [one(1, "in")])).await.unwrap();
    let killer = async {
        wait_until(
            &mut db,
            "the commit's wait",
            &format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'SyncRep'"),
        )
        .await;
        db.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'SyncRep'"
        ))
        .await;
    };
    let next = state(1);
    let (outcome, ()) = tokio::join!(unit.commit(&next), killer);

    assert_eq!(outcome.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(bench.lane.committed().await.unwrap(), Some(state(1)));
    assert_eq!(db.rows("SELECT * FROM orders").await, ["1|in"]);
}

#[tokio::test]
async fn after_a_commit_of_unknown_outcome_the_frontier_tells_that_it_is_not_in() {
    let mut db = Db::new(&format!(
        "{TABLE};
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(10); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()"
    ))
    .await;
    let mut bench = Bench::new(&db, "orders").await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&bench.table, [one(1, "out")])).await.unwrap();
    let killer = async {
        let sleeping = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        wait_until(&mut db, "the commit's wait", &format!("SELECT count(*) = 1 {sleeping}")).await;
        db.run(&format!("SELECT pg_terminate_backend(pid) {sleeping}")).await;
    };
    let next = state(1);
    let (outcome, ()) = tokio::join!(unit.commit(&next), killer);

    assert_eq!(outcome.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(bench.lane.committed().await.unwrap(), None);
    assert_eq!(db.one("SELECT count(*) FROM orders").await, "0");
}

/// sqlx answers `Ok` to the COMMIT of a transaction that has failed; the lane must not.
#[tokio::test]
async fn a_failed_unit_cannot_be_committed() {
    let mut db = Db::new("CREATE TABLE orders (id bigint PRIMARY KEY, note text CHECK (note <> 'bad'))").await;
    let mut bench = Bench::new(&db, "orders").await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&bench.table, [one(1, "good")])).await.unwrap();
    let error = unit.write(&batch(&bench.table, [one(2, "bad")])).await.unwrap_err();
    let committed = unit.commit(&state(1)).await;

    assert_eq!(error.class, ErrorClass::Data);
    assert!(committed.is_err());
    assert_eq!(db.one("SELECT count(*) FROM orders").await, "0");
    assert_eq!(bench.lane.committed().await.unwrap(), None);
}

#[tokio::test]
async fn a_table_belongs_to_the_stream_that_claimed_it_first() {
    let db = Db::new(TABLE).await;
    let sink = db.sink().await;
    let (name, lane) = (public("orders"), lane_id("orders"));
    let mut reborn = lane_id("orders");
    reborn.topic_id = TopicId([9; 16]);

    assert_eq!(sink.claim_table(&name, &crate::fixture::source("db.inventory.orders"), &lane).await.unwrap(), None);
    assert_eq!(sink.claim_table(&name, &crate::fixture::source("db.inventory.orders"), &lane).await.unwrap(), None);
    let held = Some(
        "db.inventory.orders by topic orders (id 07070707-0707-0707-0707-070707070707) into public.orders, applied by \
             worker test"
            .to_owned(),
    );
    assert_eq!(sink.claim_table(&name, &crate::fixture::source("db2.inventory.orders"), &lane).await.unwrap(), held);
    assert_eq!(sink.claim_table(&name, &crate::fixture::source("db.inventory.orders"), &reborn).await.unwrap(), held);
    assert!(!sink.release_table(&name).await.unwrap().is_empty());
    assert_eq!(sink.claim_table(&name, &crate::fixture::source("db.inventory.orders"), &reborn).await.unwrap(), None);
}

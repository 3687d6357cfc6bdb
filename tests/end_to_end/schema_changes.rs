//! The sink's tables change, or do not while the source's do.

use anyhow::Result;
use serde_json::json;
use test_support::{kafka::New, until};

use crate::bare::Bare;
use crate::worker::{LIMIT, assert_says, counts, holds, status, texts, verdict};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";

/// A row with a column that came later.
fn later(bare: &Bare, id: i64) -> New {
    New::text(
        &json!({ "id": id }).to_string(),
        &bare.envelope("c", json!({"id": id, "v": "v", "came \"later\"": id * 10, "other": 1})).to_string(),
    )
}

const ADDED: &str = "ALTER TABLE orders ADD \"came \"\"later\"\"\" integer, ADD other integer";

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_the_sink_lacks_stops_the_lane_by_name_until_it_is_there() -> Result<()> {
    let bare = Bare::new("lacks", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v"), later(&bare, 2), bare.row(3, "v")]).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0 at offset 1", bare.topic()),
            "the sink table inventory.orders lacks the columns `came \"later\"`, `other`",
            "hint: ",
            "--ignore-unknown-columns",
        ],
    );
    assert_eq!(texts(&mut sink, "SELECT id::text FROM orders").await?, ["1"]);
    sink.run(ADDED).await?;
    bare.apply().catches_up().await?;
    holds(&mut sink, "SELECT \"came \"\"later\"\"\"::text FROM orders ORDER BY id", &["(null)", "20", "(null)"]).await
}

/// What a migration of the sink alone leaves behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_only_the_sink_has_must_be_nullable_or_have_a_default() -> Result<()> {
    let bare = Bare::new("required", TABLE).await?;
    let mut sink = bare.sink().await?;
    sink.run("ALTER TABLE orders ADD own integer NOT NULL").await?;
    bare.write(vec![bare.row(1, "v")]).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0: the sink refuses the record at offset 0 for inventory.orders", bare.topic()),
            "null value in column \"own\"",
            "(23502)",
            "hint: give the column a default or let it be null",
        ],
    );
    sink.run("ALTER TABLE orders ALTER own SET DEFAULT 7").await?;
    bare.apply().catches_up().await?;
    holds(&mut sink, "SELECT own::text FROM orders", &["7"]).await
}

/// The catalog is read again once before a lane gives up.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_added_at_the_sink_first_stops_nothing() -> Result<()> {
    let bare = Bare::new("added", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    // The row before is read for the table as it was, and stands in one batch with those behind.
    sink.run(ADDED).await?;
    bare.write(vec![bare.row(9, "nine"), later(&bare, 2), bare.row(3, "v")]).await?;

    holds(&mut sink, "SELECT v FROM orders ORDER BY id", &["v", "v", "v", "nine"]).await?;
    assert_eq!(
        texts(&mut sink, "SELECT other::text FROM orders ORDER BY id").await?,
        ["(null)", "1", "(null)", "(null)"]
    );
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_columns_are_dropped_where_that_is_asked_for() -> Result<()> {
    let bare = Bare::new("unknown", TABLE).await?;
    bare.write(vec![later(&bare, 1), bare.row(2, "v")]).await?;

    bare.apply().with(&["--ignore-unknown-columns"]).catches_up().await?;

    holds(&mut bare.sink().await?, "SELECT id || v FROM orders ORDER BY id", &["1v", "2v"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_dropped_at_the_sink_under_a_running_worker_stops_the_lane_by_name() -> Result<()> {
    let bare = Bare::new("dropped", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    sink.run("ALTER TABLE orders DROP v").await?;
    bare.write(vec![bare.row(2, "v")]).await?;

    assert_eq!(worker.wait(LIMIT).await?.code(), Some(1));
    assert_says(
        &worker.log(),
        &[
            "inventory.orders has changed: column `v` is gone",
            &format!("{}-0 at offset 1: ", bare.topic()),
            "the sink table inventory.orders lacks the column `v`",
            "hint: ",
        ],
    );
    sink.run("ALTER TABLE orders ADD v text").await?;
    bare.apply().catches_up().await?;
    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "2"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_widened_column_is_noticed_by_a_running_worker() -> Result<()> {
    let bare = Bare::new("widened", "CREATE TABLE orders (id bigint PRIMARY KEY, v varchar(2))").await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    sink.run("ALTER TABLE orders ALTER v TYPE text").await?;
    bare.write(vec![bare.row(2, "more than two")]).await?;

    holds(&mut sink, "SELECT v FROM orders ORDER BY id", &["v", "more than two"]).await?;
    worker.stop(LIMIT).await
}

/// Alters the sink's table under a running worker that has written a row; the next row comes through.
async fn goes_on_after(stem: &str, table: &str, alter: &str, next: &str) -> Result<()> {
    let bare = Bare::new(stem, table).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    sink.run(alter).await?;
    bare.write(vec![bare.row(2, next)]).await?;

    holds(&mut sink, "SELECT v::text FROM orders ORDER BY id", &["v", next]).await?;
    // Its statements are judged by the table as it is now.
    sink.run("INSERT INTO orders (id, v) VALUES (77, 'gone')").await?;
    bare.write(vec![bare.chunk_info(&everything("r", json!([1, 2])))]).await?;
    assert_eq!(verdict(&mut sink, "r").await?.named(), "applied");
    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "2"]).await?;
    worker.stop(LIMIT).await
}

fn everything(read_id: &str, selected: serde_json::Value) -> serde_json::Value {
    json!({
        "table": "inventory.orders", "read_id": read_id, "range": {"lower": {"open": true}, "upper": {"open": true}},
        "selected": selected, "changed": [],
    })
}

const NARROW: &str = "CREATE TABLE orders (id int PRIMARY KEY, v varchar(5), own int)";

/// What the documentation asks for: a type is widened at the sink first.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_goes_on_when_a_type_was_widened_at_the_sink() -> Result<()> {
    goes_on_after("varchar", NARROW, "ALTER TABLE orders ALTER v TYPE varchar(9)", "short").await?;
    goes_on_after("totext", NARROW, "ALTER TABLE orders ALTER v TYPE text", "short").await?;
    goes_on_after("uncarried", NARROW, "ALTER TABLE orders ALTER own TYPE bigint", "short").await
}

/// Its rows and statements are read anew with the new key.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_goes_on_when_the_key_s_type_was_widened_at_the_sink() -> Result<()> {
    goes_on_after("widekey", NARROW, "ALTER TABLE orders ALTER id TYPE bigint", "short").await
}

/// What the stream's values mean depends on the column: they are read anew, not put into it as they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_type_of_another_kind_is_taken_as_a_restart_would_take_it() -> Result<()> {
    let bare = Bare::new("uuid", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    let (first, second) = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002");
    bare.write(vec![bare.row(1, first)]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    sink.run("ALTER TABLE orders ALTER v TYPE uuid USING v::uuid").await?;
    bare.write(vec![bare.row(2, second)]).await?;
    holds(&mut sink, "SELECT v::text FROM orders ORDER BY id", &[first, second]).await?;
    bare.write(vec![bare.row(3, "no uuid")]).await?;

    // A value that does not fit stops the lane as it would without the change.
    assert_eq!(worker.wait(LIMIT).await?.code(), Some(1));
    let log = worker.log();
    assert_says(&log, &["lane begins again at its frontier", "column `v` has another type", "offset 2", "hint: "]);
    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "2"]).await
}

/// Text under a collation has no order of bytes, until an index gives it one.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_says_which_index_a_text_key_needs_and_uses_it_as_soon_as_it_is_there() -> Result<()> {
    let table = "CREATE TABLE orders (id text COLLATE \"en-US-x-icu\" PRIMARY KEY, v text)";
    let index = "CREATE INDEX CONCURRENTLY ON \"inventory\".\"orders\" (\"id\" COLLATE \"C\")";
    let bare = Bare::new("collation", table).await?;
    let mut sink = bare.sink().await?;
    sink.run("INSERT INTO orders VALUES ('orphan', 'v')").await?;
    let key = |id: &str| {
        let value = bare.envelope("c", json!({ "id": id, "v": "v" }));
        New::text(&json!({ "id": id }).to_string(), &value.to_string())
    };
    let statement = |read_id: &str| {
        let mut value = everything(read_id, json!(["a", "b"]));
        value["key_order"] = json!("bytes");
        bare.chunk_info(&value)
    };
    let mut worker = bare.apply().start()?;
    bare.write(vec![key("a"), key("b")]).await?;
    let line = worker.logged("statements of ranges of this table are refused", LIMIT).await?;
    assert_says(&line, &[" WARN ", "table=inventory.orders", "CREATE INDEX CONCURRENTLY ON"]);

    bare.write(vec![statement("before")]).await?;
    let refused = verdict(&mut sink, "before").await?;
    assert_eq!(refused.named(), "refused order");
    assert_says(&refused.reason, &["whose order is not that of bytes; what helps: ", index]);
    assert_says(&worker.logged("statement refused", LIMIT).await?, &["CREATE INDEX CONCURRENTLY ON"]);
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 2, "{}", shown.log);
    assert_says(&shown.log, &[index]);

    // No row comes and nobody restarts the worker.
    sink.run(index).await?;
    bare.write(vec![statement("behind")]).await?;
    assert_eq!(verdict(&mut sink, "behind").await?.named(), "applied");
    holds(&mut sink, "SELECT id FROM orders ORDER BY id", &["a", "b"]).await?;
    until("nothing needs a person", LIMIT, async || Ok((status(&mut worker).await?.code == 0).then_some(()))).await?;
    worker.stop(LIMIT).await
}

/// An orphan holds a value that a live row now has: the stream stands before the statement that would remove it.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_in_the_way_of_a_unique_constraint_is_named_with_the_way_out() -> Result<()> {
    let bare =
        Bare::new("unique", "CREATE TABLE orders (id bigint PRIMARY KEY, v text, CONSTRAINT one_v UNIQUE (v))").await?;
    let mut sink = bare.sink().await?;
    sink.run("INSERT INTO orders VALUES (77, 'taken')").await?;
    let statement = bare.chunk_info(&json!({
        "table": "inventory.orders", "read_id": "r", "range": {"lower": {"open": true}, "upper": {"open": true}},
        "selected": [1, 2], "changed": [],
    }));
    bare.write(vec![bare.row(1, "free"), bare.row(2, "taken"), statement]).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0: the sink refuses the record at offset 1 for inventory.orders", bare.topic()),
            "another row of inventory.orders holds a value that constraint \"one_v\" keeps unique (23505)",
            "hint: ",
            "DEFERRABLE",
        ],
    );
    assert_eq!(texts(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id").await?, ["1", "77"]);

    // The way out: the constraint is dropped, or put off, until the orphan is gone.
    sink.run("ALTER TABLE orders DROP CONSTRAINT one_v").await?;
    bare.apply().catches_up().await?;
    assert_eq!(verdict(&mut sink, "r").await?.removed, 1);
    sink.run("ALTER TABLE orders ADD CONSTRAINT one_v UNIQUE (v)").await?;
    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "2"]).await
}

/// Two rows change places: as one statement at the source, as two records in the stream. Together they are written; the
/// first alone is in the way of the second's old row.
#[tokio::test(flavor = "multi_thread")]
async fn swapped_unique_values_are_written_when_they_come_together() -> Result<()> {
    let bare =
        Bare::new("swap", "CREATE TABLE orders (id bigint PRIMARY KEY, v text, CONSTRAINT one_v UNIQUE (v))").await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "a"), bare.row(2, "b")]).await?;
    bare.apply().catches_up().await?;
    bare.write(vec![bare.row(1, "b")]).await?;

    let log = bare.apply().stops().await?;

    assert_says(&log, &["offset 2", "constraint \"one_v\" keeps unique (23505)", "DEFERRABLE"]);
    holds(&mut sink, "SELECT v FROM orders ORDER BY id", &["a", "b"]).await?;
    bare.write(vec![bare.row(2, "a")]).await?;
    bare.apply().catches_up().await?;
    holds(&mut sink, "SELECT v FROM orders ORDER BY id", &["b", "a"]).await
}

/// A migration is several statements, each of which changes the table under the units that are being written.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_in_many_steps_stops_no_lane() -> Result<()> {
    let bare = Bare::new("migration", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().with(&["--batch-delay", "1ms"]).start()?;
    bare.write(vec![bare.row(0, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;
    let writes = async {
        for id in 1..50 {
            bare.write(vec![bare.row(id, "v")]).await?;
        }
        anyhow::Ok(())
    };
    let mut migrating = bare.sink().await?;
    let migration = async {
        for step in 0..12 {
            migrating.run(format!("ALTER TABLE orders ADD COLUMN c{step} int")).await?;
            migrating.run(format!("ALTER TABLE orders ALTER COLUMN v TYPE varchar({})", 100 + step)).await?;
            migrating.run(format!("ALTER TABLE orders DROP COLUMN c{step}")).await?;
            migrating.run("REINDEX TABLE CONCURRENTLY orders").await?;
        }
        anyhow::Ok(())
    };

    let (written, migrated) = tokio::join!(writes, migration);

    written?;
    migrated?;
    counts(&mut sink, "SELECT count(*) FROM orders", 50).await?;
    worker.stop(LIMIT).await
}

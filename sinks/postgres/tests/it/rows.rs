use sink_api::{
    Batch, ErrorClass, Key, KeyType, KeyValue, MergedChange, ReadId, Sink, TableBatch, UndoSelector, Value,
};

use crate::fixture::{Bench, Db, batch, int, public, text, upsert};

fn replace(row: impl IntoIterator<Item = Value>) -> MergedChange {
    MergedChange::Replace(row.into_iter().collect())
}

#[tokio::test]
async fn absent_columns_keep_their_value_and_take_the_default_in_new_rows() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text, extra text DEFAULT 'new'); INSERT INTO t VALUES (1, 'a', 'old')",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench
        .write([
            (int(1), upsert([Value::Int(1), text("b"), Value::Absent])),
            (int(2), upsert([Value::Int(2), text("c"), Value::Absent])),
            (int(3), upsert([Value::Int(3), text("d"), text("given")])),
            (int(4), upsert([Value::Int(4), Value::Null, Value::Null])),
        ])
        .await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|b|old", "2|c|new", "3|d|given", "4|∅|∅"]);
}

#[tokio::test]
async fn an_unchanged_column_keeps_its_value_and_makes_no_row() {
    let mut db =
        Db::new("CREATE TABLE t (id int PRIMARY KEY, v text, big text); INSERT INTO t VALUES (1, 'a', 'big')").await;
    let mut bench = Bench::new(&db, "t").await;

    let written = bench
        .write([
            (int(1), upsert([Value::Int(1), text("b"), Value::Unchanged])),
            (int(2), upsert([Value::Int(2), text("c"), Value::Unchanged])),
            (int(3), upsert([Value::Int(3), Value::Unchanged, Value::Unchanged])),
            (int(4), upsert([Value::Int(4), text("d"), text("new")])),
        ])
        .await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|b|big", "4|d|new"]);
    assert_eq!((written.upserted, written.deleted), (2, 0));
    let missing: Vec<Key> = written.missing.into_iter().map(|(_, key)| key).collect();
    assert_eq!(missing, [int(2), int(3)]);
}

#[tokio::test]
async fn nothing_of_an_older_row_survives_a_replacement() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text, extra text DEFAULT 'new', made timestamptz DEFAULT 'epoch');
         INSERT INTO t VALUES (1, 'a', 'old', now()), (2, 'a', 'old', now())",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    let written = bench
        .write([
            (int(1), replace([Value::Int(1), text("b"), Value::Absent, Value::Absent])),
            (int(2), replace([Value::Int(2), text("b"), Value::Unchanged, Value::Absent])),
            (int(3), replace([Value::Int(3), text("b"), Value::Null, Value::TimestampTz(0)])),
        ])
        .await;

    assert_eq!(
        db.rows("SET timezone = 'UTC'; SELECT * FROM t ORDER BY id").await,
        ["1|b|new|1970-01-01 00:00:00+00", "3|b|∅|1970-01-01 00:00:00+00"]
    );
    assert_eq!(written.missing.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(), [int(2)]);
}

#[tokio::test]
async fn deletes_count_the_rows_that_were_there() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    let mut bench = Bench::new(&db, "t").await;

    let written = bench.write([(int(1), MergedChange::Delete), (int(5), MergedChange::Delete)]).await;

    assert_eq!((written.upserted, written.deleted), (0, 1));
    assert_eq!(db.rows("SELECT * FROM t").await, ["2|b"]);
}

#[tokio::test]
async fn composite_keys_in_another_order_than_the_columns_find_their_rows() {
    let mut db = Db::new(
        "CREATE TABLE t (v text, region text, id int, PRIMARY KEY (id, region));
         INSERT INTO t VALUES ('a', 'eu', 1), ('b', 'us', 1), ('c', 'eu', 2)",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let key = |id: i64, region: &str| {
        Key::encode(&[KeyType::Int, KeyType::Text], &[KeyValue::Int(id), KeyValue::Text(region.into())]).unwrap()
    };

    let written = bench
        .write([
            (key(1, "eu"), MergedChange::Delete),
            (key(1, "us"), upsert([text("B"), text("us"), Value::Int(1)])),
            (key(2, "eu"), upsert([Value::Unchanged, text("eu"), Value::Int(2)])),
            (key(3, "ap"), upsert([text("new"), Value::Absent, Value::Absent])),
            (key(4, "ap"), upsert([Value::Unchanged, text("ap"), Value::Int(4)])),
        ])
        .await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["B|us|1", "c|eu|2", "new|ap|3"]);
    assert_eq!((written.upserted, written.deleted), (3, 1));
    assert_eq!(written.missing.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(), [key(4, "ap")]);
}

#[tokio::test]
async fn tables_of_nothing_but_their_key_work() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let mut bench = Bench::new(&db, "t").await;

    let written = bench.write([(int(1), upsert([Value::Int(1)])), (int(2), upsert([Value::Int(2)]))]).await;

    assert_eq!(written.upserted, 2);
    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1", "2"]);
}

#[tokio::test]
async fn a_decimal_key_takes_over_the_newer_spelling() {
    let mut db = Db::new("CREATE TABLE t (id numeric PRIMARY KEY, v text); INSERT INTO t VALUES (1.0, 'a')").await;
    let mut bench = Bench::new(&db, "t").await;
    let key = Key::encode(&[KeyType::Decimal], &[KeyValue::Decimal("1".parse().unwrap())]).unwrap();

    bench.write([(key, upsert([Value::Decimal("1.00".parse().unwrap()), text("b")]))]).await;

    assert_eq!(db.rows("SELECT * FROM t").await, ["1.00|b"]);
}

#[tokio::test]
async fn batches_larger_than_a_statement_are_written_whole() {
    let mut db = Db::new("CREATE TABLE t (a int, b int, v text, PRIMARY KEY (a, b))").await;
    let mut bench = Bench::new(&db, "t").await;
    let key =
        |id: i64| Key::encode(&[KeyType::Int, KeyType::Int], &[KeyValue::Int(id % 7), KeyValue::Int(id)]).unwrap();
    let row = |id: i64, value: Value| (key(id), upsert([Value::Int(id % 7), Value::Int(id), value]));

    bench.write((0..12_000).map(|id| row(id, text("a")))).await;
    let written = bench
        .write((0..12_000).map(|id| match id % 3 {
            0 => (key(id), MergedChange::Delete),
            1 => row(id, Value::Unchanged),
            _ => row(id + 12_000, Value::Unchanged),
        }))
        .await;

    assert_eq!((written.deleted, written.upserted, written.missing.len()), (4_000, 4_000, 4_000));
    assert_eq!(db.one("SELECT count(*) FROM t").await, "8000");
}

const UNIQUE: &str = "
CREATE TABLE t (id int PRIMARY KEY, slot text NOT NULL, note text DEFAULT 'none', big text, UNIQUE (slot));
INSERT INTO t VALUES (1, 'x', 'n1', 'b1'), (2, 'y', 'n2', 'b2'), (3, 'z', 'n3', 'b3')";

#[tokio::test]
async fn unique_values_that_rows_of_a_batch_exchange_work_and_nothing_else_is_lost() {
    let mut db = Db::new(UNIQUE).await;
    let mut bench = Bench::new(&db, "t").await;

    let written = bench
        .write([
            (int(1), upsert([Value::Int(1), text("y"), Value::Absent, text("B1")])),
            (int(2), upsert([Value::Int(2), text("z"), Value::Absent, Value::Unchanged])),
            (int(3), upsert([Value::Int(3), text("x"), text("N3"), Value::Unchanged])),
            (int(4), upsert([Value::Int(4), text("w"), Value::Absent, Value::Unchanged])),
        ])
        .await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|y|n1|B1", "2|z|n2|b2", "3|x|N3|b3"]);
    assert_eq!(written.upserted, 3);
    assert_eq!(written.missing.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(), [int(4)]);
}

#[tokio::test]
async fn a_unique_value_that_a_deleted_row_of_the_batch_had_is_free() {
    let mut db = Db::new(UNIQUE).await;
    let mut bench = Bench::new(&db, "t").await;

    bench
        .write([(int(3), MergedChange::Delete), (int(0), upsert([Value::Int(0), text("z"), Value::Null, Value::Null]))])
        .await;

    assert_eq!(db.rows("SELECT id, slot FROM t ORDER BY id").await, ["0|z", "1|x", "2|y"]);
}

#[tokio::test]
async fn a_unique_value_that_a_row_outside_the_batch_has_is_a_data_error_with_the_way_out() {
    let mut db = Db::new(UNIQUE).await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id: i64, slot: &str| (int(id), upsert([Value::Int(id), text(slot), Value::Null, Value::Null]));

    let single = bench.error([row(8, "z")]).await;
    let several = bench.error([row(1, "y"), row(2, "x"), row(9, "z")]).await;

    for error in [single, several] {
        assert_eq!(error.class, ErrorClass::Data);
        assert_eq!(error.code.as_deref(), Some("23505"));
        assert_eq!(
            error.message,
            "write public.t: another row of public.t holds a value that constraint \"t_slot_key\" keeps unique"
        );
        assert!(error.hint.unwrap().contains("orphan"));
    }
    assert_eq!(db.rows("SELECT id, slot FROM t ORDER BY id").await, ["1|x", "2|y", "3|z"]);
}

#[tokio::test]
async fn rows_whose_delete_would_cascade_are_not_taken_out_to_exchange_unique_values() {
    let mut db = Db::new(&format!(
        "{UNIQUE}; CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE); INSERT INTO child VALUES (1, 1)"
    ))
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let swap = || {
        [
            (int(1), upsert([Value::Int(1), text("y"), Value::Absent, Value::Absent])),
            (int(2), upsert([Value::Int(2), text("x"), Value::Absent, Value::Absent])),
        ]
    };

    let error = bench.error(swap()).await;
    assert_eq!(error.class, ErrorClass::Data);
    assert!(error.hint.unwrap().contains("DEFERRABLE INITIALLY IMMEDIATE"));
    assert_eq!(db.one("SELECT count(*) FROM child").await, "1");

    db.run("ALTER TABLE t DROP CONSTRAINT t_slot_key, ADD UNIQUE (slot) DEFERRABLE INITIALLY IMMEDIATE").await;
    bench.table = bench.sink.describe(&public("t")).await.unwrap();
    bench.write(swap()).await;
    assert_eq!(db.rows("SELECT id, slot FROM t ORDER BY id").await, ["1|y", "2|x", "3|z"]);
    assert_eq!(db.one("SELECT count(*) FROM child").await, "1");
}

#[tokio::test]
async fn exclusion_constraints_are_treated_as_unique_ones() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, during int4range, EXCLUDE USING gist (during WITH &&));
         INSERT INTO t VALUES (1, '[1,5)'), (2, '[5,9)')",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench
        .write([(int(1), upsert([Value::Int(1), text("[5,9)")])), (int(2), upsert([Value::Int(2), text("[1,5)")]))])
        .await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|[5,9)", "2|[1,5)"]);
}

#[tokio::test]
async fn deferred_foreign_keys_let_a_unit_write_its_tables_in_any_order_and_fail_before_the_commit() {
    let mut db = Db::new(
        "CREATE TABLE parent (id int PRIMARY KEY);
         CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    let mut bench = Bench::new(&db, "child").await;
    let parent = bench.sink.describe(&public("parent")).await.unwrap();
    let child = TableBatch {
        table: bench.table.clone(),
        changes: vec![(int(1), sink_api::Offset(0), upsert([Value::Int(1), Value::Int(7)]))],
    };
    let both = Batch {
        tables: vec![
            child.clone(),
            TableBatch { table: parent, changes: vec![(int(7), sink_api::Offset(1), upsert([Value::Int(7)]))] },
        ],
    };

    let alone = bench.try_write(&Batch { tables: vec![child] }).await.unwrap_err();
    assert_eq!((alone.class, alone.code.as_deref()), (ErrorClass::Data, Some("23503")));
    bench.try_write(&both).await.unwrap();

    assert_eq!(db.rows("SELECT * FROM child").await, ["1|7"]);
}

#[tokio::test]
async fn row_triggers_of_the_sink_act_as_on_any_other_write() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text, seen int DEFAULT 0);
         CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.seen := coalesce(NEW.seen, 0) + 1; RETURN NEW; END $$;
         CREATE TRIGGER mark BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION mark();
         INSERT INTO t VALUES (1, 'a', 5)",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench.write([(int(1), upsert([Value::Int(1), text("b"), Value::Absent]))]).await;

    assert_eq!(db.rows("SELECT * FROM t").await, ["1|b|6"]);
}

#[tokio::test]
async fn generated_and_identity_columns_are_written_as_they_must_be() {
    let mut db = Db::new(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int GENERATED BY DEFAULT AS IDENTITY,
                         v text, twice text GENERATED ALWAYS AS (v || v) STORED)",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench.write([(int(5), upsert([Value::Int(5), Value::Int(50), text("a"), text("ignored")]))]).await;
    bench.write([(int(5), upsert([Value::Int(5), Value::Int(51), text("b"), Value::Absent]))]).await;
    bench.write([(int(6), replace([Value::Int(6), Value::Absent, text("c"), Value::Absent]))]).await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["5|51|b|bb", "6|1|c|cc"]);
}

#[tokio::test]
async fn partitioned_tables_take_rows_in_all_partitions() {
    let mut db = Db::new(
        "CREATE TABLE t (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
         CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (10);
         CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (10) TO (20)",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id: i64, value: &str| (int(id), upsert([Value::Int(id), text(value)]));

    bench.write([row(1, "a"), row(11, "b")]).await;
    bench.write([row(1, "A"), (int(11), MergedChange::Delete), row(12, "c")]).await;
    let outside = bench.error([row(99, "d")]).await;

    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|A", "12|c"]);
    assert_eq!(outside.class, ErrorClass::Configuration);
    assert_eq!(outside.hint.as_deref(), Some("create the missing partition, or a DEFAULT partition"));
}

#[tokio::test]
async fn names_of_any_kind_work() {
    let mut db = Db::new(
        r#"CREATE SCHEMA "My.Schema";
           CREATE TABLE "My.Schema"."Order ""Lines""" ("Id" int PRIMARY KEY, "it's a.column" text, "SELECT" text[], "ü" jsonb)"#,
    )
    .await;
    let mut bench = Bench::new_in(&db, "My.Schema", "Order \"Lines\"").await;

    bench.write([(int(1), upsert([Value::Int(1), text("a"), Value::Array([text("x")].into()), text("{}")]))]).await;
    let removed = bench.remove(&[int(1)], "read").await;
    let undone = bench.sink.undo(&sink_api::UndoSelector::Read(sink_api::ReadId("read".into()))).await.unwrap();

    assert_eq!((removed, undone[0].restored), (1, 1));
    assert_eq!(db.rows(r#"SELECT * FROM "My.Schema"."Order ""Lines""""#).await, ["1|a|{x}|{}"]);
}

#[tokio::test]
async fn truncate_removes_all_rows_within_the_unit() {
    use sink_api::{SinkLane, Unit};
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    let mut bench = Bench::new(&db, "t").await;

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.truncate(&bench.table).await.unwrap();
    unit.write(&batch(&bench.table, [(int(3), upsert([Value::Int(3), text("c")]))])).await.unwrap();
    unit.commit(&crate::fixture::state(1)).await.unwrap();

    assert_eq!(db.rows("SELECT * FROM t").await, ["3|c"]);
}

#[tokio::test]
async fn two_lanes_that_write_the_same_keys_do_not_block_each_other_for_ever() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let bench = Bench::new(&db, "t").await;
    let writers = (0..2).map(|writer| {
        let (sink, table) = (bench.sink.clone(), bench.table.clone());
        tokio::spawn(async move {
            let lane = sink.claim(&crate::fixture::lane_id(&format!("topic {writer}"))).await.unwrap().lane;
            let mut bench = Bench { sink, table, lane, state: None };
            for round in 0..20_i64 {
                bench
                    .write((0..500).map(|id| (int(id), upsert([Value::Int(id), text(&format!("{writer} {round}"))]))))
                    .await;
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(db.one("SELECT count(*) FROM t").await, "500");
}

/// What the table did not take as it came is no row that was written: a statement would take it for an orphan, or it is lost.
#[tokio::test]
async fn a_row_that_a_trigger_keeps_out_or_moves_to_another_key_is_an_error() {
    let function = |body: &str| {
        format!("CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    };
    let mut db = Db::new(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, v text); {}; CREATE TRIGGER f BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        function("RETURN coalesce(NEW, OLD);")
    ))
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id: i64, v: &str| (int(id), upsert([Value::Int(id), Value::Text(v.into())]));
    bench.write([row(1, "a")]).await;

    for (body, change, says) in [
        (
            "IF TG_OP <> 'DELETE' AND NEW.id = 2 THEN RETURN NULL; END IF; RETURN coalesce(NEW, OLD);",
            row(2, "b"),
            "did not take 1 of 2 rows",
        ),
        (
            "IF TG_OP = 'UPDATE' THEN RETURN NULL; END IF; RETURN coalesce(NEW, OLD);",
            row(1, "b"),
            "did not take 1 of 2 rows",
        ),
        (
            "IF TG_OP = 'INSERT' AND NEW.id = 2 THEN NEW.id := 102; END IF; RETURN coalesce(NEW, OLD);",
            row(2, "b"),
            "did not take 1 of 2 rows",
        ),
        (
            "IF TG_OP = 'DELETE' THEN RETURN NULL; END IF; RETURN NEW;",
            (int(1), MergedChange::Delete),
            "kept 1 rows that were deleted",
        ),
    ] {
        db.run(&function(body)).await;
        let error = bench.error([change, row(3, "c")]).await;

        assert_eq!(error.class, ErrorClass::Data, "{error}");
        assert!(error.message.contains(says) && error.hint.is_some(), "{error}");
        assert_eq!(db.rows("SELECT id || v FROM t").await, ["1a"], "nothing of the unit is there");
    }
}

/// A key column that the server computes otherwise than the source does: the row stands under another key.
#[tokio::test]
async fn a_generated_key_column_with_another_value_than_the_streams_is_an_error() {
    let mut db =
        Db::new("CREATE TABLE t (a int, id int GENERATED ALWAYS AS (a + 100) STORED PRIMARY KEY, v text)").await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id: i64| (int(id), upsert([Value::Int(1), Value::Int(id), Value::Text("v".into())]));

    let error = bench.error([row(1)]).await;

    assert!(error.class == ErrorClass::Data && error.message.contains("generated key column"), "{error}");
    bench.write([row(101)]).await;
    assert_eq!(db.rows("SELECT id::text FROM t").await, ["101"]);
}

/// A setting of the database by which NULL in an array's text form is a text.
#[tokio::test]
async fn a_null_in_an_array_stays_one_whatever_the_database_is_set_to() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text[])").await;
    db.run("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET array_nulls = off', current_database()); END $$").await;
    let mut bench = Bench::new(&db, "t").await;
    let array = [Value::Text("x".into()), Value::Null, Value::Text("NULL".into())];

    bench.write([(int(1), upsert([Value::Int(1), Value::Array(array.into())]))]).await;
    assert_eq!(db.rows("SELECT (v[2] IS NULL)::text || ' ' || v[3] FROM t").await, ["true NULL"]);
    bench.remove(&[int(1)], "r-1").await;
    bench.sink.undo(&UndoSelector::Read(ReadId("r-1".into()))).await.unwrap();

    assert_eq!(db.rows("SELECT (v[2] IS NULL)::text || ' ' || v[3] FROM t").await, ["true NULL"]);
}

/// PostgreSQL's own trigger leaves out updates that change nothing; the rows are there.
#[tokio::test]
async fn a_trigger_that_leaves_out_updates_that_change_nothing_is_no_error() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         CREATE TRIGGER z BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |id: i64, v: &str| (int(id), upsert([Value::Int(id), Value::Text(v.into())]));
    bench.write([row(1, "a"), row(2, "a")]).await;

    bench.write([row(1, "a"), row(2, "b")]).await;

    assert_eq!(db.rows("SELECT id || v FROM t ORDER BY id").await, ["1a", "2b"]);
}

/// An update that leaves a large value out finds a row that is there, and a trigger keeps it as it was.
#[tokio::test]
async fn a_row_that_a_trigger_keeps_from_a_partial_update_is_not_missing() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w text); INSERT INTO t VALUES (1, 'large', 'a');
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER f BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    let error = bench.error([(int(1), upsert([Value::Int(1), Value::Unchanged, Value::Text("b".into())]))]).await;

    assert!(error.class == ErrorClass::Data && error.message.contains("did not take 1 of 1 rows"), "{error}");
    assert_eq!(db.rows("SELECT v || w FROM t").await, ["largea"]);
}

/// The row that stands under the key is the old one.
#[tokio::test]
async fn a_new_row_that_a_trigger_moves_away_from_an_old_one_is_an_error() {
    for (when, body) in [
        ("BEFORE INSERT", "NEW.id := NEW.id + 100; RETURN NEW;"),
        ("AFTER INSERT OR UPDATE", "UPDATE t SET id = id + 100 WHERE id = NEW.id AND id < 100; RETURN NULL;"),
    ] {
        let mut db = Db::new(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');
             CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
             CREATE TRIGGER f {when} ON t FOR EACH ROW EXECUTE FUNCTION f()"
        ))
        .await;
        let mut bench = Bench::new(&db, "t").await;

        let error = bench.error([(int(1), upsert([Value::Int(1), Value::Text("b".into())]))]).await;

        assert!(
            error.class == ErrorClass::Data && error.message.contains("did not take 1 of 1 rows"),
            "{when}: {error}"
        );
        assert_eq!(db.rows("SELECT id || v FROM t").await, ["1a"]);
    }
}

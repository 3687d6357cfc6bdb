use std::time::Duration;

use sink_api::{ErrorClass, Sink, SinkLane, Value};
use sink_postgres::{PostgresConfig, PostgresSink, schema_sql};

use crate::fixture::{Bench, Db, int, lane_id, public, text, upsert};

#[tokio::test]
async fn a_role_that_may_not_create_the_schema_is_told_what_to_run_and_that_suffices() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY)").await;
    let role = format!("poor_{}", std::process::id());
    db.run(&format!(
        "DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
         GRANT SELECT, INSERT, UPDATE, DELETE ON t TO {role}"
    ))
    .await;
    let config = PostgresConfig::new(db.url_as(&role));

    let error = PostgresSink::connect(&config).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Configuration);
    assert_eq!(error.message, format!("create schema sink_repair: role \"{role}\" may not"));
    let hint = error.hint.unwrap();
    assert_eq!(hint, format!("let a role that may create schemas run:\n{}", schema_sql(&role)));

    db.run(hint.split_once('\n').unwrap().1).await;
    let sink = PostgresSink::connect(&config).await.unwrap();
    let table = sink.describe(&public("t")).await.unwrap();
    let lane = sink.claim(&lane_id("orders")).await.unwrap().lane;
    let mut bench = Bench { sink, table, lane, state: None };
    bench.write([(int(1), upsert([Value::Int(1)]))]).await;
    assert_eq!(bench.remove(&[int(1)], "r").await, 1);
    bench.sink.overview("test").await.unwrap();

    db.run(&format!("REVOKE UPDATE ON sink_repair.frontier FROM {role}")).await;
    assert!(
        PostgresSink::connect(&config)
            .await
            .unwrap_err()
            .hint
            .unwrap()
            .contains("GRANT SELECT, INSERT, UPDATE, DELETE")
    );
}

#[tokio::test]
async fn the_schema_is_made_once_whoever_comes_first_and_a_later_version_is_refused() {
    let mut db = Db::new("").await;
    let connects = (0..6).map(|_| {
        let config = db.config();
        tokio::spawn(async move { PostgresSink::connect(&config).await.map(drop) })
    });
    for connect in connects.collect::<Vec<_>>() {
        connect.await.unwrap().unwrap();
    }
    assert_eq!(db.rows("SELECT version FROM sink_repair.version").await, ["3"]);

    db.run("UPDATE sink_repair.version SET version = 4").await;
    let error = PostgresSink::connect(&db.config()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Configuration);
    assert_eq!(error.message, "prepare schema sink_repair: the schema has version 4, this program needs 3");
}

#[tokio::test]
async fn a_server_that_is_away_is_transient_and_a_wrong_address_is_configuration() {
    let db = Db::new("").await;
    let connect = |url: String| async move { PostgresSink::connect(&PostgresConfig::new(url)).await.unwrap_err() };

    let away = connect("postgres://postgres:hunter2@127.0.0.1:1/x".into()).await;
    let no_database = connect(format!("{}_not", db.url)).await;
    let no_role = connect(db.url_as("nobody_of_this_name")).await;
    let no_url = connect("postgres://:not a port/hunter2".into()).await;

    assert_eq!(away.class, ErrorClass::Transient);
    assert_eq!((no_database.class, no_database.code.as_deref()), (ErrorClass::Configuration, Some("3D000")));
    assert_eq!((no_role.class, no_role.code.as_deref()), (ErrorClass::Configuration, Some("28000")));
    assert_eq!(no_url.class, ErrorClass::Configuration);
    for error in [away, no_database, no_role, no_url] {
        assert!(!format!("{error} {:?}", error.hint).contains("hunter2"), "{error}");
    }
    assert!(!format!("{:?} {:?}", db.config(), db.sink().await).contains("postgres://"));
}

/// Each statement fails at the server; the class, and that nothing of the row is told.
#[tokio::test]
async fn errors_of_the_server_are_sorted_and_tell_nothing_of_the_row() {
    let mut db = Db::new(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'secret %', NEW.v; END $$;
         CREATE TABLE p (id int PRIMARY KEY);
         CREATE TABLE t (id int PRIMARY KEY, v text CHECK (v <> 'secret check'), n int NOT NULL DEFAULT 0, p int REFERENCES p, u text UNIQUE);
         CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.v = 'secret raise') EXECUTE FUNCTION no();
         INSERT INTO t VALUES (5, 'a', 0, NULL, 'secret u')",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let row = |v: &str, n: Value, p: Value, u: &str| [(int(1), upsert([Value::Int(1), text(v), n, p, text(u)]))];

    let check = bench.error(row("secret check", Value::Int(1), Value::Null, "u")).await;
    let null = bench.error(row("secret", Value::Null, Value::Null, "u")).await;
    let foreign = bench.error(row("secret", Value::Int(1), Value::Int(4711), "u")).await;
    let unique = bench.error(row("secret", Value::Int(1), Value::Null, "secret u")).await;
    let raised = bench.error(row("secret raise", Value::Int(1), Value::Null, "u")).await;
    db.run("ALTER TABLE t RENAME COLUMN v TO w").await;
    let renamed = bench.error(row("secret", Value::Int(1), Value::Null, "u")).await;
    db.run("DROP TABLE t").await;
    let dropped = bench.error(row("secret", Value::Int(1), Value::Null, "u")).await;

    let told = |error: &sink_api::SinkError| (error.class, error.code.clone().unwrap(), error.message.clone());
    use ErrorClass::{Configuration, Data};
    let expected = |class, code: &str, message: &str| (class, code.to_owned(), format!("write public.t: {message}"));
    assert_eq!(
        told(&check),
        expected(Data, "23514", "new row for relation \"t\" violates check constraint \"t_v_check\"")
    );
    assert_eq!(
        told(&null),
        expected(Data, "23502", "null value in column \"n\" of relation \"t\" violates not-null constraint")
    );
    assert_eq!(
        told(&foreign),
        expected(Data, "23503", "insert or update on table \"t\" violates foreign key constraint \"t_p_fkey\"")
    );
    assert_eq!(
        told(&unique),
        expected(Data, "23505", "another row of public.t holds a value that constraint \"t_u_key\" keeps unique")
    );
    assert_eq!(
        told(&raised),
        expected(Data, "P0001", "a trigger or function raised an exception (PL/pgSQL function no() line 1 at RAISE)")
    );
    assert_eq!(
        (renamed.class, renamed.message.as_str()),
        (Configuration, "write public.t: the table's definition has changed")
    );
    assert_eq!((dropped.class, dropped.code.as_deref()), (Configuration, Some("42P01")));
    for error in [check, null, foreign, unique, raised, renamed, dropped] {
        let shown = format!("{error} {:?}", error.hint);
        assert!(!shown.contains("secret") && !shown.contains("4711"), "{shown}");
    }
}

#[tokio::test]
async fn locks_and_slow_statements_end_by_the_servers_limits_and_are_transient() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')").await;
    let mut config = db.config();
    config.lock_timeout = Duration::from_millis(200);
    config.statement_timeout = Duration::from_millis(600);
    let sink = PostgresSink::connect(&config).await.unwrap();
    let table = sink.describe(&public("t")).await.unwrap();
    let lane = sink.claim(&lane_id("orders")).await.unwrap().lane;
    let mut bench = Bench { sink, table, lane, state: None };
    let row = || [(int(1), upsert([Value::Int(1), text("b")]))];

    db.run("BEGIN; UPDATE t SET v = 'c'").await;
    let locked = bench.error(row()).await;
    db.run("ROLLBACK").await;
    db.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(5); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    .await;
    bench.table = bench.sink.describe(&public("t")).await.unwrap();
    let slow = bench.error(row()).await;
    db.run("DROP TRIGGER slow ON t").await;
    bench.write(row()).await;

    assert_eq!((locked.class, locked.code.as_deref()), (ErrorClass::Transient, Some("55P03")));
    assert_eq!((slow.class, slow.code.as_deref()), (ErrorClass::Transient, Some("57014")));
    assert_eq!(db.rows("SELECT * FROM t").await, ["1|b"]);
}

#[tokio::test]
async fn a_server_that_became_read_only_is_transient() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let mut bench = Bench::new(&db, "t").await;
    let name = db.one("SELECT current_database()").await;

    // BEGIN READ WRITE overrides the default: only a true standby refuses it.
    db.run(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    drop(bench.lane.begin(None).await.unwrap());
    bench.write([(int(1), upsert([Value::Int(1), text("a")]))]).await;

    assert_eq!(sink_postgres::class_of("25006"), ErrorClass::Transient);
    assert_eq!(db.rows("SELECT * FROM t").await, ["1|a"]);
}

#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_no_statement_is_kept_and_no_setting_leaks() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let mut config = db.config();
    config.transaction_pooler = true;
    let sink = PostgresSink::connect(&config).await.unwrap();
    let table = sink.describe(&public("t")).await.unwrap();
    let lane = sink.claim(&lane_id("orders")).await.unwrap().lane;
    let mut bench = Bench { sink, table, lane, state: None };
    bench.write([(int(1), upsert([Value::Int(1), text("a")]))]).await;
    db.run(
        "CREATE TABLE seen (prepared bigint, jit text);
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO seen SELECT (SELECT count(*) FROM pg_prepared_statements WHERE name <> ''), current_setting('jit'); RETURN NEW; END $$;
         CREATE TRIGGER look BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION look()",
    )
    .await;

    bench.table = bench.sink.describe(&public("t")).await.unwrap();
    bench.write([(int(2), upsert([Value::Int(2), text("b")]))]).await;

    assert_eq!(db.rows("SELECT * FROM seen").await, ["0|off"]);
}

#[tokio::test]
async fn the_loss_of_the_programs_own_schema_is_told_as_such() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let mut bench = Bench::new(&db, "t").await;
    bench.write([(int(1), upsert([Value::Int(1), text("a")]))]).await;

    db.run("DROP SCHEMA sink_repair CASCADE").await;
    let own = bench.error([(int(2), upsert([Value::Int(2), text("b")]))]).await;
    let expired = bench.sink.expire_removed("test", std::time::Duration::ZERO).await.unwrap_err();

    for error in [own, expired] {
        assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Configuration, Some("42P01")));
        let hint = error.hint.unwrap();
        assert!(hint.starts_with("the worker's own tables are gone"), "{hint}");
    }
}

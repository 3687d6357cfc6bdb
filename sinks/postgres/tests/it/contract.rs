use std::time::Duration;

use sink_api::{
    ReadId, Row, TableName, Value,
    testing::{Fixture, ITEMS, Recorded, assert_contract},
};
use sink_postgres::PostgresSink;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row as _, postgres::PgRow};

use crate::fixture::Db;

const TABLES: &str = r#"
CREATE SCHEMA contract;
CREATE TABLE contract.items (id bigint PRIMARY KEY, name text, state text NOT NULL DEFAULT 'new', body text);
CREATE TABLE contract.lines (quantity bigint, line bigint, code text COLLATE "C", PRIMARY KEY (code, line));
"#;

struct Postgres {
    url: String,
    sink: PostgresSink,
}

impl Postgres {
    async fn new() -> Postgres {
        let db = Db::new(TABLES).await;
        Postgres { sink: db.sink().await, url: db.url }
    }

    async fn rows_of(&self, sql: String) -> Vec<PgRow> {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        connection.fetch_all(sqlx::query(AssertSqlSafe(sql))).await.unwrap()
    }
}

impl Fixture for Postgres {
    type Sink = PostgresSink;

    fn sink(&self) -> &PostgresSink {
        &self.sink
    }

    async fn rows(&self, table: &TableName) -> Vec<Row> {
        let integer = |row: &PgRow, at: usize| row.get::<Option<i64>, _>(at).map_or(Value::Null, Value::Int);
        let text = |row: &PgRow, at: usize| {
            row.get::<Option<String>, _>(at).map_or(Value::Null, |text| Value::Text(text.into()))
        };
        if table.name == ITEMS {
            let rows = self.rows_of("SELECT * FROM contract.items ORDER BY id".to_owned()).await;
            return rows.iter().map(|row| [integer(row, 0), text(row, 1), text(row, 2), text(row, 3)].into()).collect();
        }
        let rows = self.rows_of("SELECT * FROM contract.lines ORDER BY code, line".to_owned()).await;
        rows.iter().map(|row| [integer(row, 0), integer(row, 1), text(row, 2)].into()).collect()
    }

    async fn recorded(&self, read_id: &ReadId) -> Vec<Recorded> {
        let sql = format!(
            "SELECT verdict, rule, orphans, removed, missing, spared, in_range,
                 (SELECT count(*) FROM sink_repair.orphan o
                  WHERE (o.name, o.topic_id, o.partition, o.read_id) = (s.name, s.topic_id, s.partition, s.read_id))
             FROM sink_repair.statement s WHERE read_id = '{read_id}' ORDER BY partition, topic_id"
        );
        let rows = self.rows_of(sql).await;
        rows.iter()
            .map(|row| {
                let count = |at: usize| u64::try_from(row.get::<i64, _>(at)).unwrap();
                Recorded {
                    verdict: row.get(0),
                    rule: row.get(1),
                    orphans: count(2),
                    removed: count(3),
                    missing: count(4),
                    spared: count(5),
                    in_range: count(6),
                    named_orphans: count(7),
                }
            })
            .collect()
    }

    async fn age(&self, by: Duration) {
        let by = format!("interval '{} seconds'", by.as_secs());
        self.rows_of(format!("UPDATE sink_repair.removed SET removed_at = removed_at - {by}")).await;
        self.rows_of(format!("UPDATE sink_repair.removal_count SET hour = hour - {by}")).await;
    }
}

#[tokio::test]
async fn the_sink_keeps_every_promise_of_the_contract() {
    assert_contract(Postgres::new).await;
}

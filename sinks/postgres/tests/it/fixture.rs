//! A PostgreSQL for the tests: one cluster for the whole binary, one database for each test.
//!
//! The cluster's watcher holds a pipe to this process; when the process ends, however it ends, the watcher stops the
//! server and removes its files. `SINK_REPAIR_TEST_POSTGRES` names another server, whose role may create databases.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sink_api::{
    Batch, Key, KeyList, KeyType, KeyValue, LaneId, LaneState, MergedChange, Offset, Partition, ReadId, Removal, Sink,
    SinkLane, TableBatch, TableName, TableShape, TopicId, Unit, Value, Written,
};
use sink_postgres::{PostgresConfig, PostgresLane, PostgresSink};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, ValueRef, postgres::PgConnectOptions};

const START_LIMIT: Duration = Duration::from_secs(60);

struct Server {
    /// The URL without a database.
    base: String,
    /// The watcher; its standard input is what keeps the server up.
    _watcher: Option<Child>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var("SINK_REPAIR_TEST_POSTGRES") {
        Ok(url) => {
            let base = url.rsplit_once('/').expect("SINK_REPAIR_TEST_POSTGRES is postgres://USER@HOST:PORT/DATABASE").0;
            Server { base: base.to_owned(), _watcher: None }
        }
        Err(_) => start(),
    })
}

fn binaries() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    found.retain(|path| path.join("initdb").exists());
    found.sort();
    found.pop().expect("no PostgreSQL server found; run: apt-get install postgresql, or set SINK_REPAIR_TEST_POSTGRES")
}

fn start() -> Server {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = r#"
        set -e
        dir=$(mktemp -d)
        trap 'rm -rf "$dir"' EXIT
        "$1/initdb" -D "$dir" -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >"$dir.log" 2>&1 || { cat "$dir.log" >&2; exit 1; }
        rm -f "$dir.log"
        "$1/postgres" -D "$dir" -p "$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
            -c full_page_writes=off -c max_connections=200 -c log_min_messages=fatal \
            -c synchronous_standby_names=nobody -c synchronous_commit=local >/dev/null 2>&1 &
        server=$!
        cat >/dev/null
        kill -INT $server
        wait $server || true
    "#;
    let mut command = if is_root() { Command::new("runuser") } else { Command::new("sh") };
    if is_root() {
        command.args(["-u", "postgres", "--", "sh"]);
    }
    let watcher = command
        .args(["-c", script, "sh", binaries().to_str().unwrap(), &port.to_string()])
        .current_dir("/")
        .stdin(Stdio::piped())
        .spawn()
        .expect("the watcher of the PostgreSQL server starts");
    let deadline = Instant::now() + START_LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the PostgreSQL server did not start within {START_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Server { base: format!("postgres://postgres@127.0.0.1:{port}"), _watcher: Some(watcher) }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.starts_with(b"0\n")
}

/// A database of one test.
pub struct Db {
    pub url: String,
    pub connection: PgConnection,
}

impl Db {
    /// Makes a database with what `sql` creates.
    pub async fn new(sql: &str) -> Db {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let base = tokio::task::spawn_blocking(|| server().base.clone()).await.unwrap();
        let name = format!("sink_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let deadline = Instant::now() + START_LIMIT;
        let mut admin = loop {
            // The port is open a moment before the server takes logins.
            match PgConnection::connect(&format!("{base}/postgres")).await {
                Ok(admin) => break admin,
                Err(error) => assert!(Instant::now() < deadline, "connect to the test server: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"))).await.unwrap();
        let url = format!("{base}/{name}");
        let mut db = Db { connection: PgConnection::connect(&url).await.unwrap(), url };
        db.run(sql).await;
        db
    }

    /// Runs statements.
    pub async fn run(&mut self, sql: &str) {
        let done = self.connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        done.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    /// Runs a query; each row is its columns' text forms, joined by `|`, null as `∅`.
    pub async fn rows(&mut self, sql: &str) -> Vec<String> {
        let rows = self.connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        let rows = rows.unwrap_or_else(|error| panic!("{error}\n{sql}"));
        rows.iter()
            .map(|row| {
                let texts = (0..row.len()).map(|at| {
                    let value = row.try_get_raw(at).unwrap();
                    if value.is_null() { "∅".to_owned() } else { value.as_str().unwrap().to_owned() }
                });
                texts.collect::<Vec<_>>().join("|")
            })
            .collect()
    }

    /// Runs a query of one value.
    pub async fn one(&mut self, sql: &str) -> String {
        self.rows(sql).await.into_iter().next().unwrap()
    }

    pub fn config(&self) -> PostgresConfig {
        PostgresConfig { owner: "worker a".to_owned(), ..PostgresConfig::new(&self.url) }
    }

    pub async fn sink(&self) -> PostgresSink {
        PostgresSink::connect(&self.config()).await.unwrap()
    }

    /// Returns the URL for another role.
    pub fn url_as(&self, role: &str) -> String {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        let (host, port) = (options.get_host(), options.get_port());
        format!("postgres://{role}@{host}:{port}/{}", options.get_database().unwrap())
    }
}

/// A source table by its name.
pub fn source(table: &str) -> sink_api::SourceName {
    sink_api::SourceName::of_table(table)
}

pub fn lane_id(topic: &str) -> LaneId {
    LaneId { name: "test".into(), topic: topic.into(), topic_id: TopicId([7; 16]), partition: Partition(0) }
}

pub fn state(next_offset: i64) -> LaneState {
    LaneState {
        next_offset: Offset(next_offset),
        memory_offset: Offset(next_offset),
        highest_xid: None,
        unknown_past: false,
        partition_count: 1,
    }
}

pub fn int(value: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(value)]).unwrap()
}

pub fn text(value: &str) -> Value {
    Value::Text(value.into())
}

pub fn public(name: &str) -> TableName {
    TableName::new("public", name)
}

pub fn keys(keys: &[Key]) -> KeyList {
    keys.iter().collect()
}

/// Makes a batch of one table; the changes are sorted by key.
pub fn batch(table: &Arc<TableShape>, changes: impl IntoIterator<Item = (Key, MergedChange)>) -> Batch {
    let mut changes: Vec<_> = changes.into_iter().map(|(key, change)| (key, Offset(0), change)).collect();
    changes.sort_by(|left, right| left.0.cmp(&right.0));
    Batch { tables: vec![TableBatch { table: Arc::clone(table), changes }] }
}

pub fn upsert(row: impl IntoIterator<Item = Value>) -> MergedChange {
    MergedChange::Upsert(row.into_iter().collect())
}

/// A sink, one of its tables and a lane.
pub struct Bench {
    pub sink: PostgresSink,
    pub table: Arc<TableShape>,
    pub lane: PostgresLane,
    pub state: Option<LaneState>,
}

impl Bench {
    pub async fn new(db: &Db, table: &str) -> Bench {
        Bench::new_in(db, "public", table).await
    }

    pub async fn new_in(db: &Db, schema: &str, table: &str) -> Bench {
        let sink = db.sink().await;
        let table = sink.describe(&TableName::new(schema, table)).await.unwrap();
        let lane = sink.claim(&lane_id("orders")).await.unwrap().lane;
        Bench { sink, table, lane, state: None }
    }

    /// Writes one batch as a unit of work.
    pub async fn try_write(&mut self, batch: &Batch) -> Result<Written, sink_api::SinkError> {
        let next = state(self.state.as_ref().map_or(1, |state| state.next_offset.0 + 1));
        let mut unit = self.lane.begin(self.state.as_ref()).await?;
        let written = unit.write(batch).await?;
        unit.commit(&next).await?;
        self.state = Some(next);
        Ok(written)
    }

    /// Removes rows by a statement, as a unit of work.
    pub async fn remove(&mut self, orphans: &[Key], read_id: &str) -> u64 {
        let next = state(self.state.as_ref().map_or(1, |state| state.next_offset.0 + 1));
        let (orphans, read_id) = (keys(orphans).sorted(), ReadId(read_id.into()));
        let removal = Removal { table: &self.table, keys: &orphans, read_id: &read_id, offset: Offset(11) };
        let mut unit = self.lane.begin(self.state.as_ref()).await.unwrap();
        let removed = unit.remove(&removal).await.unwrap();
        unit.commit(&next).await.unwrap();
        self.state = Some(next);
        removed
    }

    pub async fn write(&mut self, changes: impl IntoIterator<Item = (Key, MergedChange)>) -> Written {
        let batch = batch(&self.table, changes);
        self.try_write(&batch).await.unwrap()
    }

    pub async fn error(&mut self, changes: impl IntoIterator<Item = (Key, MergedChange)>) -> sink_api::SinkError {
        let batch = batch(&self.table, changes);
        self.try_write(&batch).await.unwrap_err()
    }
}

/// Waits until a query answers `true`.
pub async fn wait_until(db: &mut Db, what: &str, sql: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while db.one(sql).await != "t" {
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Says what a measurement showed; shown by `cargo test -- --nocapture`.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

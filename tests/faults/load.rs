//! Writers at the source: natural keys that are deleted and come back, change their names, in transactions of several
//! rows, some of which stay open for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use test_support::{Database, Pipeline};
use tokio::task::JoinSet;

/// The source's table of the tests with statements; the sink's is the same.
pub const ORDERS: &str = "shop int, code text COLLATE \"C\", v bigint NOT NULL, note text, PRIMARY KEY (shop, code)";

/// Keys are of this many shops, numbered from 1.
pub const SHOPS: i32 = 6;

/// And of this many codes in each.
const CODES: u32 = 500;

/// Codes that sort differently under most locales than by their bytes.
const STEMS: [&str; 5] = ["a", "B", "é", "'q", "z "];

/// Rows of the snapshot.
pub const SEED: &str = "
CREATE SEQUENCE version;
INSERT INTO orders
SELECT shop, (ARRAY['a', 'B', 'é', '''q', 'z '])[n % 5 + 1] || n, nextval('version'), 'from the snapshot'
FROM generate_series(1, 6) AS shop, generate_series(0, 499) AS n
WHERE (shop * 7 + n) % 3 > 0";

/// A key of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub shop: i32,
    pub code: String,
}

impl Key {
    /// Draws a key that writers use.
    pub fn random(rng: &mut StdRng) -> Key {
        let n = rng.random_range(0..CODES);
        Key { shop: rng.random_range(1..=SHOPS), code: format!("{}{n}", STEMS[n as usize % STEMS.len()]) }
    }

    /// Returns `(1, 'a17')`.
    pub fn sql(&self) -> String {
        format!("({}, {})", self.shop, self.quoted_code())
    }

    fn quoted_code(&self) -> String {
        format!("'{}'", self.code.replace('\'', "''"))
    }
}

/// Writers at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    writers: JoinSet<Result<Written>>,
}

/// What writers did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub transactions: u64,
    pub statements: u64,
    /// Lost to another writer: a deadlock, a key that another one had just made.
    pub lost: u64,
}

impl Load {
    /// Starts `writers` of them; each waits up to `pause` between its transactions.
    pub async fn start(pipeline: &Pipeline, writers: u64, pause: Duration, seed: u64) -> Result<Load> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for n in 0..writers {
            let source = pipeline.source().await?;
            let rng = StdRng::seed_from_u64(seed ^ (n + 1));
            tasks.spawn(write(source, rng, pause, Arc::clone(&stop)));
        }
        Ok(Load { stop, writers: tasks })
    }

    /// Stops them, and says what they did.
    pub async fn stop(mut self) -> Result<Written> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Written::default();
        while let Some(one) = self.writers.join_next().await {
            let one = one.context("a writer panicked")?.context("a writer failed")?;
            all.transactions += one.transactions;
            all.statements += one.statements;
            all.lost += one.lost;
        }
        Ok(all)
    }
}

async fn write(mut source: Database, mut rng: StdRng, pause: Duration, stop: Arc<AtomicBool>) -> Result<Written> {
    let mut written = Written::default();
    while !stop.load(Ordering::SeqCst) {
        let count = rng.random_range(1..=6);
        let mut keys: Vec<Key> = (0..count).map(|_| Key::random(&mut rng)).collect();
        // In one order for all, so that few deadlock.
        keys.sort();
        let statements: Vec<String> = keys.iter().map(|key| statement(key, &mut rng)).collect();
        let slowly = rng.random_ratio(1, 5);
        match transaction(&mut source, &statements, slowly, &mut rng).await {
            Ok(()) => {
                written.transactions += 1;
                written.statements += statements.len() as u64;
            }
            Err(error) if is_lost_race(&error) => {
                written.lost += 1;
                source.run("ROLLBACK").await?;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause.mul_f64(rng.random())).await;
    }
    Ok(written)
}

fn statement(key: &Key, rng: &mut StdRng) -> String {
    match rng.random_range(0..10) {
        0..5 => format!(
            "INSERT INTO orders VALUES ({}, {}, nextval('version'), 'written') \
             ON CONFLICT (shop, code) DO UPDATE SET v = excluded.v, note = excluded.note",
            key.shop,
            key.quoted_code()
        ),
        5..8 => format!("DELETE FROM orders WHERE (shop, code) = {}", key.sql()),
        _ => {
            let other = Key::random(rng);
            format!(
                "UPDATE orders SET (shop, code) = {}, v = nextval('version'), note = 'renamed' \
                 WHERE (shop, code) = {} AND NOT EXISTS (SELECT FROM orders WHERE (shop, code) = {})",
                other.sql(),
                key.sql(),
                other.sql()
            )
        }
    }
}

async fn transaction(source: &mut Database, statements: &[String], slowly: bool, rng: &mut StdRng) -> Result<()> {
    if !slowly {
        return source.run(format!("BEGIN; {}; COMMIT", statements.join("; "))).await;
    }
    source.run("BEGIN").await?;
    for statement in statements {
        source.run(statement).await?;
        let moment = *[1, 3, 10, 30].choose(rng).unwrap();
        tokio::time::sleep(Duration::from_millis(moment)).await;
    }
    source.run("COMMIT").await
}

fn is_lost_race(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<sqlx::Error>().and_then(|error| error.as_database_error()?.code());
    matches!(code.as_deref(), Some("23505" | "40P01"))
}

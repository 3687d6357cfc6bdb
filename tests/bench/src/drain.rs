//! From the first row to the last: time, CPU, memory, and whether the sink holds what it should.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::TryStreamExt;
use sqlx::Row;
use test_support::{Database, Stack};

use crate::process;
use crate::record::COLUMNS;
use crate::stream::{Digester, Expected, SENTINEL};

/// What a run took.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the first visible row to the sentinel row.
    pub seconds: f64,
    /// CPU seconds of who drained, in that span.
    pub cpu: f64,
    /// CPU seconds of the sink's server, in that span.
    pub server_cpu: f64,
    /// The most memory that who drained held, in MB.
    pub peak_mb: u64,
    /// Whether count and digest of the rows are as expected.
    pub equal: bool,
}

/// No peer takes longer for half a million events, by far.
const LIMIT: Duration = Duration::from_secs(900);

/// Makes the sink table anew, `public.items`, and forgets what a worker left in the sink.
pub async fn prepare(stack: &Stack) -> Result<Database> {
    let mut sink = stack.sink().await?;
    sink.run("DROP SCHEMA IF EXISTS sink_repair CASCADE").await?;
    sink.run(format!("DROP TABLE IF EXISTS items; CREATE TABLE items ({COLUMNS})")).await?;
    // The run before must not be paid for in this one.
    sink.run("CHECKPOINT").await?;
    Ok(sink)
}

/// Waits for the rows that process `pid` writes and measures it. `check` is asked now and then whether it still works.
pub async fn drain(
    sink: &mut Database,
    pid: u32,
    expected: &Expected,
    mut check: impl AsyncFnMut() -> Result<()>,
) -> Result<Run> {
    let backend = u32::try_from(sink.number("SELECT pg_backend_pid()::bigint").await?)?;
    let postmaster = process::parent(backend)?;
    until_row(sink, "SELECT count(*) FROM (SELECT FROM items LIMIT 1) first", Duration::from_millis(10), &mut check)
        .await?;
    let first = Instant::now();
    let (cpu, server_cpu) = (process::cpu(pid)?, process::cpu_with_children(postmaster)?);
    let sentinel = format!("SELECT count(*) FROM items WHERE id = {SENTINEL}");
    // Whoever ends by itself at the end is read before it does, so at most one tick early.
    let mut last = (cpu, 0);
    until_row(sink, &sentinel, Duration::from_millis(50), &mut async || {
        last = (process::cpu(pid).unwrap_or(last.0), process::peak_mb(pid).unwrap_or(last.1));
        check().await
    })
    .await?;
    let seconds = first.elapsed().as_secs_f64();
    last = (process::cpu(pid).unwrap_or(last.0), process::peak_mb(pid).unwrap_or(last.1));
    Ok(Run {
        seconds,
        cpu: last.0 - cpu,
        server_cpu: process::cpu_with_children(postmaster)? - server_cpu,
        peak_mb: last.1,
        equal: held(sink).await? == *expected,
    })
}

async fn until_row(
    sink: &mut Database,
    query: &str,
    pause: Duration,
    check: &mut impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    while sink.number(query).await? == 0 {
        check().await?;
        if start.elapsed() > LIMIT {
            bail!("not done within {LIMIT:?}");
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn held(sink: &mut Database) -> Result<Expected> {
    let mut rows =
        sqlx::query("SELECT id, name, (price * 100)::bigint FROM items ORDER BY id").fetch(&mut sink.connection);
    let mut digester = Digester::default();
    while let Some(row) = rows.try_next().await? {
        digester.row(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    }
    Ok(digester.finish())
}

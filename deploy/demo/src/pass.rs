//! Passes of bracketed reads, made with plain SQL, and what became of their statements.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use test_support::{Database, Pipeline, markers::Bracket, unique, until};

/// One bracketed read.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its id.
    pub read_id: String,
    /// The key above which it begins.
    pub above: Option<Vec<String>>,
}

/// How long the source may take until the log's transactions are visible.
const SETTLE: Duration = Duration::from_secs(10);

/// Reads the whole table in chunks of `rows` keys, with a pause between two.
pub async fn whole(pipeline: &Pipeline, rows: usize, pause: Duration) -> Result<Vec<Made>> {
    let mut bracket = pipeline.bracket("orders").await?;
    let pass = unique("pass");
    let mut made = Vec::new();
    let mut above = None;
    loop {
        let read_id = format!("{pass}-{:02}", made.len() + 1);
        let last = chunk(&mut bracket, &read_id, above.as_ref(), rows, None).await?;
        made.push(Made { read_id, above });
        match last {
            Some(last) => above = Some(last),
            None => return Ok(made),
        }
        tokio::time::sleep(pause).await;
    }
}

/// Reads the range of `read` afresh, as an operator's confirmation asks for.
pub async fn again(pipeline: &Pipeline, read: &Made, rows: usize, ceiling: u64) -> Result<Made> {
    let mut bracket = pipeline.bracket("orders").await?;
    let read_id = unique("confirmed");
    chunk(&mut bracket, &read_id, read.above.as_ref(), rows, Some(ceiling)).await?;
    Ok(Made { read_id, above: read.above.clone() })
}

/// Steps 1 to 3 of a bracketed read. Returns the last key when the page was full.
async fn chunk(
    bracket: &mut Bracket,
    read_id: &str,
    above: Option<&Vec<String>>,
    rows: usize,
    confirmed: Option<u64>,
) -> Result<Option<Vec<String>>> {
    bracket.low(read_id).await?;
    ensure!(bracket.settle(SETTLE).await?, "the source did not settle");
    let mut read = bracket.read(read_id, above.map(Vec::as_slice), rows).await?;
    if let Some(ceiling) = confirmed {
        read.marker = read.marker.confirmed(ceiling);
    }
    bracket.close(&read).await?;
    Ok(read.last)
}

/// Waits until every read has its verdict.
pub async fn judged(sink: &mut Database, reads: &[Made]) -> Result<()> {
    let ids = list(reads);
    until("every statement has its verdict", Duration::from_secs(60), async || {
        let judged =
            sink.number(format!("SELECT count(*) FROM sink_repair.statement WHERE read_id IN ({ids})")).await?;
        Ok((judged as usize == reads.len()).then_some(()))
    })
    .await
}

/// Returns the reads that were held.
pub async fn held(sink: &mut Database, reads: &[Made]) -> Result<Vec<Made>> {
    let ids = list(reads);
    let held = sink
        .column(format!("SELECT read_id FROM sink_repair.statement WHERE verdict = 'held' AND read_id IN ({ids})"))
        .await?;
    Ok(reads.iter().filter(|read| held.iter().flatten().any(|id| *id == read.read_id)).cloned().collect())
}

/// Returns the verdict on a read.
pub async fn verdict(sink: &mut Database, read_id: &str) -> Result<String> {
    let verdict = sink.value(format!("SELECT verdict FROM sink_repair.statement WHERE read_id = '{read_id}'")).await?;
    verdict.context("the read has no verdict")
}

/// Returns an applied read that removed some rows, and not the most.
pub async fn most_removed(sink: &mut Database) -> Result<String> {
    let sql = "SELECT read_id FROM sink_repair.statement WHERE removed BETWEEN 1 AND 500 ORDER BY removed DESC LIMIT 1";
    sink.value(sql).await?.context("no statement has removed a row")
}

/// Returns how many statements got which verdict.
pub async fn verdicts(sink: &mut Database) -> Result<String> {
    let sql = "SELECT string_agg(n || ' ' || verdict, ', ' ORDER BY verdict) FROM (SELECT verdict, count(*) n FROM sink_repair.statement GROUP BY 1) v";
    Ok(sink.value(sql).await?.unwrap_or_default())
}

fn list(reads: &[Made]) -> String {
    reads.iter().map(|read| format!("'{}'", read.read_id)).collect::<Vec<_>>().join(", ")
}

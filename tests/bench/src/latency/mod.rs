//! The part `latency`: from a record's timestamp to the committed row, at a steady pace.
//!
//! Each record carries the moment at which it is handed to the producer. Each row is written by one record only, so the
//! transaction that wrote it tells when the record took effect: by the commit time that PostgreSQL keeps of it. That time
//! is taken just before the commit is flushed; beside it stands when another session, which asks every few
//! milliseconds, first saw the row, and what the worker says of itself. The limits are Kafka alone, from a record's
//! timestamp to a consumer that does nothing, and PostgreSQL alone, a transaction of one row.

mod limits;
mod load;
mod measure;
mod table;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use test_support::{Database, Stack, Worker, until};

use crate::jdbc::{self, Jdbc};
use crate::{apply, commits, process, tables};
use load::{Load, Sent};
use measure::{Quantiles, Watcher};

/// What the part can be asked.
#[derive(Args, Clone, Debug)]
pub struct LatencyArgs {
    /// Events a second.
    #[arg(long, default_value_t = 1_000)]
    pub rate: u64,
    /// How long they are measured, in seconds.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// How long the same load runs before, in seconds: a broker that was just started compiles for half a minute.
    #[arg(long, default_value_t = 30)]
    pub warm_up: u64,
    /// Any of apply, jdbc, kafka, postgres.
    #[arg(long, value_delimiter = ',', default_value = "apply,jdbc,kafka,postgres")]
    pub only: Vec<String>,
}

impl LatencyArgs {
    /// The same for another time.
    pub fn scaled(mut self, scale: f64) -> LatencyArgs {
        for seconds in [&mut self.seconds, &mut self.warm_up] {
            *seconds = ((*seconds as f64 * scale) as u64).max(2);
        }
        self
    }
}

/// What was seen of one of them.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who.
    pub who: String,
    /// To the commit time.
    pub committed: Quantiles,
    /// To the first answer in which another session saw the row.
    pub visible: Option<Quantiles>,
    /// What the worker itself says: the median and the 99th percentile, in milliseconds.
    pub own: Option<(f64, f64)>,
    /// CPU seconds of who applied, and of the sink's server, while it was measured; the most memory in MB.
    pub used: Option<(f64, f64, u64)>,
    /// By how many milliseconds the last sender was late.
    pub late_ms: f64,
}

/// No peer needs as long for a backlog of a few seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Who applies the stream.
enum Applier {
    Apply(Worker),
    Jdbc(Jdbc),
}

impl Applier {
    fn pid(&self) -> u32 {
        match self {
            Applier::Apply(worker) => worker.id(),
            Applier::Jdbc(jdbc) => jdbc.pid,
        }
    }

    async fn check(&mut self) -> Result<()> {
        match self {
            Applier::Apply(worker) => apply::check(worker),
            Applier::Jdbc(jdbc) => jdbc.check().await,
        }
    }

    async fn buckets(&mut self) -> Result<Option<Vec<(f64, u64)>>> {
        match self {
            Applier::Apply(worker) => Ok(Some(measure::buckets(&worker.get("/metrics").await?.1))),
            Applier::Jdbc(_) => Ok(None),
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Applier::Apply(mut worker) => worker.stop(Duration::from_secs(20)).await,
            Applier::Jdbc(jdbc) => jdbc.stop().await,
        }
    }
}

/// Measures and returns the table.
pub async fn run(stack: &Stack, args: &LatencyArgs) -> Result<String> {
    commits::keep_times(stack).await?;
    // What was written before is not to be written while this is measured.
    ensure!(Command::new("sync").status().context("run sync")?.success(), "sync failed");
    let mut all = Vec::new();
    for who in &args.only {
        let seen = match who.as_str() {
            "apply" | "jdbc" => one(stack, args, who).await?,
            "kafka" => limits::kafka(stack, args).await?,
            "postgres" => limits::postgres(stack).await?,
            other => bail!("nobody is called {other}"),
        };
        eprintln!("{seen:?}");
        all.push(seen);
    }
    Ok(table::render(args, &all))
}

async fn one(stack: &Stack, args: &LatencyArgs, who: &str) -> Result<Seen> {
    let load = Load { rate: args.rate, warm_up: args.rate * args.warm_up, events: args.rate * args.seconds };
    let topic = load.topic(stack, "latency").await?;
    let mut sink = stack.sink().await?;
    sink.run("DROP SCHEMA IF EXISTS sink_repair CASCADE").await?;
    tables::make(&mut sink, "items", &tables::rows(&load.rows_before())).await?;
    let mut applier = match who {
        "apply" => Applier::Apply(apply::start(stack, &topic, &[])?),
        _ => Applier::Jdbc(Jdbc::start(stack, &topic, jdbc::DEFAULT).await?),
    };
    let sender = load.sender(stack, &topic)?;
    let (sender, warm) = sender.send(load.warming()).await?;
    arrived(&mut sink, &mut applier, &warm).await?;
    let postmaster = process::parent(u32::try_from(sink.number("SELECT pg_backend_pid()::bigint").await?)?)?;
    let (cpu, server_cpu) = (process::cpu(applier.pid())?, process::cpu_with_children(postmaster)?);
    let before = applier.buckets().await?;
    let watcher = Watcher::start(stack).await?;
    let (sender, sent) = sender.send(load.measured()).await?;
    arrived(&mut sink, &mut applier, &sent).await?;
    let answers = watcher.stop().await?;
    let after = applier.buckets().await?;
    let used = (
        process::cpu(applier.pid())? - cpu,
        process::cpu_with_children(postmaster)? - server_cpu,
        process::peak_mb(applier.pid())?,
    );
    sender.finish().await?;
    applier.stop().await?;
    let committed = measure::committed(&mut sink, &sent).await?;
    Ok(Seen {
        who: who.to_owned(),
        committed,
        visible: Some(measure::visible(&sent, &answers)?),
        own: before.zip(after).map(|(before, after)| measure::own(&before, &after)),
        used: Some(used),
        late_ms: load.late_ms(&sent),
    })
}

/// Waits until the last of them has arrived; lanes are in order.
async fn arrived(sink: &mut Database, applier: &mut Applier, sent: &[Sent]) -> Result<()> {
    let Some(last) = sent.last() else { return Ok(()) };
    let query = format!("SELECT count(*) FROM items WHERE id = {} AND name = '{}'", last.id, last.name());
    until("the last row is there", LIMIT, async || {
        applier.check().await?;
        Ok((sink.number(query.clone()).await? > 0).then_some(()))
    })
    .await
}

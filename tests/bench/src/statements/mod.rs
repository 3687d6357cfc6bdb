//! The part `statements`: what ready statements cost.
//!
//! A topic holds changes and, between them, statements that cover the whole key space. `apply` drains it with
//! `--orphans remove`, and again with `--orphans ignore`; the difference is what evaluating the statements costs. Both
//! ends of the clock are commit times that the sink's PostgreSQL keeps: of the first unit, which holds changes only, and
//! of the last change. Two tools that find the same orphans, and remove nothing, are measured on the same tables.

mod layout;
mod peers;
mod table;
mod topic;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use test_support::{Database, Stack};

use crate::{apply, commits, fill, process, tables};
use layout::Layout;

/// What the part can be asked.
#[derive(Args, Clone, Debug)]
pub struct StatementsArgs {
    /// How many rows the sink has.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u64,
    /// How many of them the source lacks.
    #[arg(long, default_value_t = 100)]
    pub orphans: u64,
    /// How many statements cover the table.
    #[arg(long, default_value_t = 101)]
    pub statements: usize,
    /// How many changes stand ahead of each statement, of keys all over the table.
    #[arg(long, default_value_t = 50)]
    pub changes: u64,
    /// How often each drain is run, the two by turns; the table shows the median.
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// How the statements are written.
    #[arg(long, value_delimiter = ',', default_value = "chunk-info,markers")]
    pub forms: Vec<Form>,
    /// Whether tools that only find orphans are measured as well.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub peers: bool,
}

impl Default for StatementsArgs {
    fn default() -> StatementsArgs {
        StatementsArgs {
            rows: 1_000_000,
            orphans: 100,
            statements: 101,
            changes: 50,
            runs: 3,
            forms: vec![Form::ChunkInfo, Form::Markers],
            peers: true,
        }
    }
}

impl StatementsArgs {
    /// The same at another size: fewer statements of as many keys.
    pub fn scaled(mut self, scale: f64) -> StatementsArgs {
        self.rows = (self.rows as f64 * scale) as u64;
        self.statements = (self.statements as f64 * scale).ceil() as usize;
        self
    }
}

/// A form of statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A chunk info record each.
    ChunkInfo,
    /// A low and a chunk marker each, as logical messages in Debezium's envelope.
    Markers,
}

impl Form {
    fn label(self) -> &'static str {
        match self {
            Form::ChunkInfo => "chunk info records",
            Form::Markers => "low and chunk markers",
        }
    }
}

/// What a drain took.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// From the commit of the first unit to that of the last change.
    pub seconds: f64,
    /// CPU seconds of the worker, from its start to its end.
    pub cpu: f64,
    /// CPU seconds of the sink's server in that time.
    pub server_cpu: f64,
    /// The most memory that the worker held, in MB.
    pub peak_mb: u64,
}

/// Both drains of one form.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// How the statements were written.
    pub form: Form,
    /// With the statements ignored.
    pub ignored: Drained,
    /// With the orphans removed.
    pub removed: Drained,
}

/// Drains, measures the peers, and returns the table.
pub async fn run(stack: &Stack, args: &StatementsArgs) -> Result<String> {
    let layout = Layout::new(args);
    commits::keep_times(stack).await?;
    eprintln!("making {} rows at the source and at the sink", layout.rows);
    let expected = make_tables(stack, &layout).await?;
    let peers = match args.peers {
        true => peers::run(stack, &layout).await?,
        false => Vec::new(),
    };
    let mut pairs = Vec::new();
    for &form in &args.forms {
        let name = fill::make_topic(stack, "statements", &[]).await?;
        let filled = {
            let (stack, name, layout) = (stack.clone(), name.clone(), layout.clone());
            tokio::task::spawn_blocking(move || topic::fill(&stack, &name, &layout, form)).await??
        };
        eprintln!("{name}: {filled} records, statements as {}", form.label());
        let (mut ignored, mut removed) = (Vec::new(), Vec::new());
        for _ in 0..args.runs {
            ignored.push(drain(stack, &layout, &name, "ignore", &expected).await?);
            removed.push(drain(stack, &layout, &name, "remove", &expected).await?);
        }
        pairs.push(Pair { form, ignored: median(ignored), removed: median(removed) });
    }
    Ok(table::render(args, &layout, &pairs, &peers))
}

/// The source as it is after all changes, the sink as it is before them, and a copy of the sink to start again from.
/// Returns the digest of the source's rows.
async fn make_tables(stack: &Stack, layout: &Layout) -> Result<String> {
    let list = |numbers: Vec<u64>| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let orphans = format!(
        "DROP TABLE IF EXISTS orphans; CREATE TABLE orphans AS SELECT unnest('{{{}}}'::bigint[]) AS id",
        list(layout.orphans.clone())
    );
    let mut source = stack.source().await?;
    source.run(orphans.clone()).await?;
    let changed = list((1..=layout.change_count()).map(|n| layout.changed(n)).collect());
    source
        .run(format!(
            "DROP TABLE IF EXISTS changed; CREATE TABLE changed AS SELECT * FROM unnest('{{{changed}}}'::bigint[]) \
             WITH ORDINALITY AS c(id, n)"
        ))
        .await?;
    let at_source = format!(
        "SELECT g, coalesce(c.n, 0) FROM generate_series(1, {}::bigint) g LEFT JOIN changed c ON c.id = g \
         WHERE g NOT IN (SELECT id FROM orphans)",
        layout.rows
    );
    tables::make(&mut source, "items", &tables::rows(&at_source)).await?;
    let mut sink = stack.sink().await?;
    sink.run(orphans).await?;
    let at_sink = format!("SELECT g, 0 FROM generate_series(1, {}::bigint) g", layout.rows);
    tables::make(&mut sink, "items_before", &tables::rows(&at_sink)).await?;
    tables::make(&mut sink, "items", "SELECT * FROM items_before ORDER BY id").await?;
    tables::digest(&mut source, "true").await
}

/// Drains the topic into a sink that was made anew, and checks every row of it.
async fn drain(stack: &Stack, layout: &Layout, topic: &str, orphans: &str, expected: &str) -> Result<Drained> {
    let mut sink = stack.sink().await?;
    sink.run("DROP SCHEMA IF EXISTS sink_repair CASCADE").await?;
    tables::make(&mut sink, "items", "SELECT * FROM items_before ORDER BY id").await?;
    let postmaster = process::parent(u32::try_from(sink.number("SELECT pg_backend_pid()::bigint").await?)?)?;
    let server_before = process::cpu_with_children(postmaster)?;
    let mut worker = apply::start(stack, topic, &["--until-caught-up", "--orphans", orphans])?;
    let pid = worker.id();
    let mut peak_mb = 0;
    while !process::has_ended(pid)? {
        peak_mb = process::peak_mb(pid).unwrap_or(peak_mb);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cpu = process::cpu(pid)?;
    let server_cpu = process::cpu_with_children(postmaster)? - server_before;
    let status = worker.wait(Duration::from_secs(1)).await?;
    ensure!(status.success(), "the worker ended with {status}:\n{}", worker.log());
    check(&mut sink, layout, orphans, expected).await?;
    let committed = async |sink: &mut Database, n: u64| {
        sink.number(format!("SELECT {} FROM items i WHERE id = {}", commits::COMMITTED_US, layout.changed(n))).await
    };
    let first = committed(&mut sink, 1).await?;
    let last = committed(&mut sink, layout.change_count()).await?;
    let drained = Drained { seconds: (last - first) as f64 / 1e6, cpu, server_cpu, peak_mb };
    eprintln!("--orphans {orphans}: {drained:?}");
    Ok(drained)
}

/// Every change is there, and of the orphans all or none; every statement has the verdict that was asked for.
async fn check(sink: &mut Database, layout: &Layout, orphans: &str, expected: &str) -> Result<()> {
    let others = tables::digest(sink, "id NOT IN (SELECT id FROM orphans)").await?;
    ensure!(others == expected, "{orphans}: the sink holds {others}, the source {expected}");
    let left = sink.number("SELECT count(*) FROM items JOIN orphans USING (id)").await?;
    let kept = sink.number("SELECT count(*) FROM sink_repair.removed").await?;
    let verdicts = sink
        .column(
            "SELECT count(*) || ' ' || verdict || ', ' || sum(removed) || ' removed, ' || sum(missing) || ' missing' \
             FROM sink_repair.statement GROUP BY verdict ORDER BY verdict",
        )
        .await?;
    let verdicts = verdicts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let (all, count) = (layout.orphans.len() as i64, layout.statements);
    let (verdict, gone) = if orphans == "remove" { ("applied", all) } else { ("ignored", 0) };
    ensure!(
        (left, kept) == (all - gone, gone),
        "--orphans {orphans}: of {all} orphans {left} are left and {kept} are kept for undo"
    );
    let wanted = format!("{count} {verdict}, {gone} removed, 0 missing");
    ensure!(verdicts == wanted, "--orphans {orphans}: the statements are: {verdicts}; wanted: {wanted}");
    Ok(())
}

/// The run in the middle by time.
fn median(mut runs: Vec<Drained>) -> Drained {
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    runs[runs.len() / 2]
}

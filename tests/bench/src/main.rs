//! Measures `sink-repair` beside its peers, on the servers of `tests/stack/stack.sh`, and prints markdown tables.
//!
//! `make bench` runs it with the stack around it. Every row of a table comes from the same topic on the same machine on
//! the same day; what counts is the ratio between rows.
//!
//! ```text
//! stream   the changes, in order, and what the sink must hold at the end
//! record   a change as Debezium publishes it       fill     a topic filled with them
//! drain    wait for the end, measure, compare      process  CPU and memory of a process
//! jdbc     the stock JDBC sink                     apply    the worker
//! bare     the same batches from memory            report   the table
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod apply;
mod bare;
mod drain;
mod fill;
mod jdbc;
mod process;
mod record;
mod report;
mod stream;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use test_support::Stack;

use crate::{drain::Run, fill::Filled, report::Row, stream::Mix};

#[derive(Parser)]
#[command(about = "Measures sink-repair beside its peers")]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Fill a topic, and say what a sink must hold when it has applied it.
    Fill(StreamArgs),
    /// Drain the same topic with each of them.
    Stream(StreamArgs),
}

#[derive(Args, Clone)]
struct StreamArgs {
    /// How many change events, not counting tombstones.
    #[arg(long, default_value_t = 500_000)]
    events: u64,
    /// How many rows there are to update.
    #[arg(long, default_value_t = 200_000)]
    keys: i64,
    /// Updates, inserts and deletes, in percent.
    #[arg(long, default_value = "70,20,10")]
    mix: Mix,
    /// Makes the same stream again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whether records carry their schema: on, off or both.
    #[arg(long, default_value = "both", value_parser = ["on", "off", "both"])]
    schemas: String,
    /// Who drains: any of jdbc, jdbc-best, apply, bare.
    #[arg(long, value_delimiter = ',', default_value = "jdbc,jdbc-best,apply,bare")]
    only: Vec<String>,
    /// How often each drains; the table shows the median by rate.
    #[arg(long, default_value_t = 1)]
    runs: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let command = Command::parse();
    let stack = Stack::from_env()?;
    match command.what {
        What::Fill(args) => {
            for schemas in schema_settings(&args.schemas) {
                let filled = fill::fill(&stack, &args, schemas).await?;
                println!("{filled}");
            }
            Ok(())
        }
        What::Stream(args) => stream_table(&stack, &args).await,
    }
}

fn schema_settings(setting: &str) -> Vec<bool> {
    match setting {
        "on" => vec![true],
        "off" => vec![false],
        _ => vec![true, false],
    }
}

async fn stream_table(stack: &Stack, args: &StreamArgs) -> Result<()> {
    let mut rows = Vec::new();
    for schemas in schema_settings(&args.schemas) {
        let filled = fill::fill(stack, args, schemas).await?;
        eprintln!("{filled}");
        for who in &args.only {
            let mut runs = Vec::new();
            for _ in 0..args.runs {
                if let Some(run) = one_run(stack, args, &filled, who).await? {
                    eprintln!("{who}: {run:?}");
                    runs.push(run);
                }
            }
            runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            if !runs.is_empty() {
                rows.push(Row {
                    who: who.clone(),
                    schemas,
                    events: args.events,
                    run: runs.swap_remove(runs.len() / 2),
                });
            }
        }
    }
    println!("{}", report::stream(&rows));
    anyhow::ensure!(rows.iter().all(|row| row.run.equal), "a sink does not hold what it should");
    Ok(())
}

/// Returns nothing for who cannot drain such a topic.
async fn one_run(stack: &Stack, args: &StreamArgs, filled: &Filled, who: &str) -> Result<Option<Run>> {
    match who {
        // Without schemas it knows no column types.
        "jdbc" | "jdbc-best" if !filled.schemas => Ok(None),
        "jdbc" => jdbc::run(stack, filled, "jdbc-sink").await.map(Some),
        "jdbc-best" => jdbc::run(stack, filled, "jdbc-sink,jdbc-sink-best").await.map(Some),
        "apply" => apply::run(stack, filled).await.map(Some),
        // It has no JSON, with or without schemas.
        "bare" if filled.schemas && args.schemas == "both" => Ok(None),
        "bare" => bare::run(stack, args, filled).await.map(Some),
        other => anyhow::bail!("nobody is called {other}"),
    }
}

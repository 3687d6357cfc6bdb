//! Measures `sink-repair` beside its peers, on the servers of `tests/stack/stack.sh`, and prints one report in markdown.
//!
//! `make bench` brings the servers up, runs all parts and takes the servers down; the report is on standard output, what
//! happens meanwhile on standard error. `make bench BENCH=statements` runs one part; `BENCH="stream --help"` tells what a
//! part can be asked, `BENCH="all --scale 0.1"` runs all of them smaller. Every row of a table comes from the same
//! servers on the same machine in the same run: what counts is the ratio between rows. Every drain is checked row by
//! row; a wrong sink fails the benchmark.
//!
//! ```text
//! throughput   the part `stream`: half a million changes, drained by each
//!   drain        wait for the end, measure, compare     bare     the same batches from memory
//!   apply        the worker                             jdbc     the stock JDBC sink
//! statements   the part `statements`: what ready statements cost, and tools that only find
//! latency      the part `latency`: from a record's timestamp to the committed row
//!
//! stream       the changes, in order, and what the sink must hold at the end
//! record       a change as Debezium publishes it        tables   its row, made by PostgreSQL
//! feeder       a producer                               fill     a topic filled with the stream
//! process      CPU and memory of a process              commits  when a row was committed
//! machine      where the figures come from              report   the stream's table
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod apply;
mod bare;
mod commits;
mod drain;
mod feeder;
mod fill;
mod jdbc;
mod latency;
mod machine;
mod process;
mod record;
mod report;
mod statements;
mod stream;
mod tables;
mod throughput;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use test_support::Stack;

use latency::LatencyArgs;
use statements::StatementsArgs;
use throughput::StreamArgs;

#[derive(Parser)]
#[command(about = "Measures sink-repair beside its peers")]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone)]
enum What {
    /// Fill a topic, and say what a sink must hold when it has applied it.
    Fill(StreamArgs),
    /// Drain the same topic with each of them.
    Stream(StreamArgs),
    /// Drain a topic with ready statements, and without.
    Statements(StatementsArgs),
    /// Apply a steady stream and measure how late its rows are.
    Latency(LatencyArgs),
    /// All three, one after the other.
    All {
        /// All sizes and times multiplied by this.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Command { what } = Command::parse();
    let stack = Stack::from_env()?;
    let parts = match what {
        What::Fill(args) => {
            for schemas in args.schema_settings() {
                println!("{}", fill::fill(&stack, &args, schemas).await?);
            }
            return Ok(ExitCode::SUCCESS);
        }
        What::All { scale } => ["stream", "statements", "latency"]
            .map(|part| match Command::parse_from(["bench", part]).what {
                What::Stream(args) => What::Stream(args.scaled(scale)),
                What::Statements(args) => What::Statements(args.scaled(scale)),
                What::Latency(args) => What::Latency(args.scaled(scale)),
                what => what,
            })
            .to_vec(),
        what => vec![what],
    };
    let mut report = format!("Measured on {}.\n", machine::describe(&stack).await);
    let mut failed = 0;
    for part in parts {
        let before = machine::load();
        let result = match &part {
            What::Stream(args) => throughput::run(&stack, args).await,
            What::Statements(args) => statements::run(&stack, args).await,
            What::Latency(args) => latency::run(&stack, args).await,
            What::Fill(_) | What::All { .. } => continue,
        };
        let text = result.unwrap_or_else(|error| {
            failed += 1;
            eprintln!("failed: {error:#}");
            format!("### A part failed\n\n{error:#}\n")
        });
        report += &format!("\n{text}\nLoad average before this part {before}, behind it {}.\n", machine::load());
    }
    println!("{report}");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

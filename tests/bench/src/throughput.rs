//! The part `stream`: the same topic, drained by each of them.

use anyhow::{Result, bail, ensure};
use clap::Args;
use test_support::Stack;

use crate::drain::Run;
use crate::fill::{self, Filled};
use crate::report::{self, Row};
use crate::stream::Mix;
use crate::{apply, bare, jdbc};

/// What the part can be asked.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// How many change events, not counting tombstones.
    #[arg(long, default_value_t = 500_000)]
    pub events: u64,
    /// How many rows there are to update.
    #[arg(long, default_value_t = 200_000)]
    pub keys: i64,
    /// Updates, inserts and deletes, in percent.
    #[arg(long, default_value = "70,20,10")]
    pub mix: Mix,
    /// Makes the same stream again.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Whether records carry their schema: on, off or both.
    #[arg(long, default_value = "both", value_parser = ["on", "off", "both"])]
    pub schemas: String,
    /// Who drains: any of jdbc, jdbc-best, apply, bare.
    #[arg(long, value_delimiter = ',', default_value = "jdbc,jdbc-best,apply,bare")]
    pub only: Vec<String>,
    /// How often each drains; the table shows the median by rate.
    #[arg(long, default_value_t = 1)]
    pub runs: usize,
}

impl StreamArgs {
    /// The same at another size.
    pub fn scaled(mut self, scale: f64) -> StreamArgs {
        self.events = (self.events as f64 * scale) as u64;
        self.keys = (self.keys as f64 * scale) as i64;
        self
    }

    /// With schemas, without, or first the one and then the other.
    pub fn schema_settings(&self) -> Vec<bool> {
        match self.schemas.as_str() {
            "on" => vec![true],
            "off" => vec![false],
            _ => vec![true, false],
        }
    }
}

/// Drains and returns the table.
pub async fn run(stack: &Stack, args: &StreamArgs) -> Result<String> {
    let mut rows = Vec::new();
    for schemas in args.schema_settings() {
        let filled = fill::fill(stack, args, schemas).await?;
        eprintln!("{filled}");
        for who in &args.only {
            let mut runs = Vec::new();
            for _ in 0..args.runs {
                if let Some(run) = one_run(stack, args, &filled, who).await? {
                    eprintln!("{who}: {run:?}");
                    ensure!(run.equal, "{who}: the sink does not hold what it should");
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
    Ok(format!(
        "### Stream\n\n{} change events (updates, inserts, deletes in percent: {}) and a tombstone behind each delete, in \
         one partition. The clock runs from the first row that is visible at the sink to the last; each sink was compared \
         with what the stream leaves, by count and digest.\n\n{}",
        args.events,
        args.mix,
        report::stream(&rows)
    ))
}

/// Returns nothing for who cannot drain such a topic.
async fn one_run(stack: &Stack, args: &StreamArgs, filled: &Filled, who: &str) -> Result<Option<Run>> {
    match who {
        // Without schemas it knows no column types.
        "jdbc" | "jdbc-best" if !filled.schemas => Ok(None),
        "jdbc" => jdbc::run(stack, filled, jdbc::DEFAULT).await.map(Some),
        "jdbc-best" => jdbc::run(stack, filled, jdbc::BEST).await.map(Some),
        "apply" => apply::run(stack, filled).await.map(Some),
        // It has no JSON, with or without schemas.
        "bare" if filled.schemas && args.schemas == "both" => Ok(None),
        "bare" => bare::run(stack, args, filled).await.map(Some),
        other => bail!("nobody is called {other}"),
    }
}

//! The table of the part `latency`.

use std::fmt::Write;

use super::measure::Quantiles;
use super::{LatencyArgs, Seen};
use crate::report;

/// Renders all of it.
pub fn render(args: &LatencyArgs, all: &[Seen]) -> String {
    let late = all.iter().map(|seen| seen.late_ms).fold(0.0, f64::max);
    let mut text = format!(
        "### Latency\n\n{} events/s for {} s into one partition (JSON with schemas, 70 % updates, 30 % inserts), after {} s \
         of the same load; every event's row was checked. The broker flushes the topic once a second: left to the \
         operating system it writes 120 MB at once every half minute, to the disk that PostgreSQL's log is on. \
         Milliseconds, p50 / p99 / max. *Commit*: from the record's \
         timestamp to the time that PostgreSQL keeps of the commit, taken before its flush. *Seen*: to the first answer \
         in which another session, asking every 5 ms, saw the row. *Own*: what the worker's metric says, p50 / p99. The \
         sender was late by {late:.1} ms at most.\n\n\
         | | commit | seen | own | CPU s | PostgreSQL CPU s | peak MB |\n|---|---:|---:|---:|---:|---:|---:|\n",
        args.rate, args.seconds, args.warm_up,
    );
    for seen in all {
        let label = match seen.who.as_str() {
            "apply" => "`sink-repair apply`, default settings",
            "jdbc" => "Debezium JDBC sink, default",
            "kafka" => "limit: Kafka alone, to a consumer that does nothing",
            "postgres" => "limit: PostgreSQL alone, one row in a transaction, until the answer",
            other => other,
        };
        let own = seen.own.map_or("-".to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0}"));
        let (cpu, server_cpu, peak) = match seen.used {
            Some((cpu, server_cpu, peak)) => (format!("{cpu:.1}"), format!("{server_cpu:.1}"), peak.to_string()),
            None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| {label} | {} | {} | {own} | {cpu} | {server_cpu} | {peak} |",
            cell(&seen.committed),
            seen.visible.as_ref().map_or("-".to_owned(), cell),
        );
    }
    let asked = all.iter().filter(|seen| seen.who == "apply").map(|seen| {
        let p99 = seen.committed.p99;
        (format!("a 99th percentile below 150 ms: {p99:.1}"), p99 < 150.0)
    });
    text + &report::asked(&asked.collect::<Vec<_>>())
}

fn cell(quantiles: &Quantiles) -> String {
    let Quantiles { p50, p99, max, .. } = quantiles;
    format!("{p50:.1} / {p99:.1} / {max:.1}")
}

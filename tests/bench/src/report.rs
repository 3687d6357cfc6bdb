//! The table.

use std::fmt::Write;

use crate::drain::Run;

/// One line.
#[derive(Clone, Debug)]
pub struct Row {
    /// Who drained.
    pub who: String,
    /// Whether the records carried their schema.
    pub schemas: bool,
    /// How many events there were.
    pub events: u64,
    /// What it took.
    pub run: Run,
}

impl Row {
    fn rate(&self) -> f64 {
        self.events as f64 / self.run.seconds
    }

    fn label(&self) -> String {
        match (self.who.as_str(), self.schemas) {
            ("jdbc", _) => "Debezium JDBC sink, default".to_owned(),
            ("jdbc-best", _) => "Debezium JDBC sink, best settings".to_owned(),
            ("apply", true) => "`sink-repair apply`, JSON with schemas".to_owned(),
            ("apply", false) => "`sink-repair apply`, JSON without schemas".to_owned(),
            ("bare", _) => "bare loop: the same batches from memory".to_owned(),
            (other, _) => other.to_owned(),
        }
    }
}

/// Renders rows with their rates beside those of the peers and of the limit.
pub fn stream(rows: &[Row]) -> String {
    let rate_of = |who: &str| rows.iter().find(|row| row.who == who).map(Row::rate);
    let ratio = |row: &Row, who: &str| rate_of(who).map_or("-".to_owned(), |rate| format!("{:.2}", row.rate() / rate));
    let mut table = String::from(
        "| | events/s | to JDBC default | to JDBC best | to bare loop | CPU s | PostgreSQL CPU s | peak MB | equal |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows {
        let Run { cpu, server_cpu, peak_mb, equal, .. } = row.run;
        let peak = if peak_mb == 0 { "-".to_owned() } else { peak_mb.to_string() };
        // Writing to a String does not fail.
        let _ = writeln!(
            table,
            "| {} | {:.0} | {} | {} | {} | {cpu:.1} | {server_cpu:.1} | {peak} | {} |",
            row.label(),
            row.rate(),
            ratio(row, "jdbc"),
            ratio(row, "jdbc-best"),
            ratio(row, "bare"),
            if equal { "yes" } else { "NO" },
        );
    }
    table + &stream_asked(rows)
}

/// The ratios and the memory that were asked for, where both sides were measured.
fn stream_asked(rows: &[Row]) -> String {
    let find = |who: &str, schemas: bool| rows.iter().find(|row| row.who == who && row.schemas == schemas);
    let bare = rows.iter().find(|row| row.who == "bare");
    let mut asked = Vec::new();
    for (peer, least, label) in [(find("jdbc", true), 12.0, "default"), (find("jdbc-best", true), 4.0, "best settings")]
    {
        if let (Some(apply), Some(peer)) = (find("apply", true), peer) {
            let ratio = apply.rate() / peer.rate();
            asked.push((format!("{least} times the JDBC sink's {label}, with schemas: {ratio:.1}"), ratio >= least));
        }
    }
    if let (Some(apply), Some(bare)) = (find("apply", false), bare) {
        let ratio = apply.rate() / bare.rate();
        asked.push((format!("0.6 of the bare loop, without schemas: {ratio:.2}"), ratio >= 0.6));
    }
    if let Some(peak) = rows.iter().filter(|row| row.who == "apply").map(|row| row.run.peak_mb).max() {
        asked.push((format!("less than 64 MB: {peak}"), peak < 64));
    }
    self::asked(&asked)
}

/// What was asked for, what there is, and whether that is enough.
pub fn asked(asked: &[(String, bool)]) -> String {
    let one = |(what, met): &(String, bool)| format!("{what} ({})", if *met { "yes" } else { "NO" });
    match asked {
        [] => String::new(),
        asked => format!("\nAsked for: {}.\n", asked.iter().map(one).collect::<Vec<_>>().join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(who: &str, schemas: bool, seconds: f64, peak_mb: u64, equal: bool) -> Row {
        let run = Run { seconds, cpu: 2.0, server_cpu: 3.0, peak_mb, equal };
        Row { who: who.to_owned(), schemas, events: 1_000, run }
    }

    #[test]
    fn every_rate_stands_beside_its_peers_and_a_wrong_sink_is_plain_to_see() {
        let rows =
            [row("jdbc", true, 10.0, 400, true), row("apply", true, 0.5, 40, false), row("bare", false, 0.25, 0, true)];

        let lines: Vec<String> = stream(&rows).lines().skip(2).map(str::to_owned).collect();

        assert_eq!(
            lines,
            [
                "| Debezium JDBC sink, default | 100 | 1.00 | - | 0.03 | 2.0 | 3.0 | 400 | yes |",
                "| `sink-repair apply`, JSON with schemas | 2000 | 20.00 | - | 0.50 | 2.0 | 3.0 | 40 | NO |",
                "| bare loop: the same batches from memory | 4000 | 40.00 | - | 1.00 | 2.0 | 3.0 | - | yes |",
                "",
                "Asked for: 12 times the JDBC sink's default, with schemas: 20.0 (yes); less than 64 MB: 40 (yes).",
            ]
        );
    }
}

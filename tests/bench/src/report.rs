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
    table
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
            ]
        );
    }
}

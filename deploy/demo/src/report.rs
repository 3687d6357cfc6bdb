//! What the demo shows.

use std::{
    io::{self, Write},
    time::Instant,
};

/// The figures, each with what it has to be.
#[derive(Debug)]
pub struct Report {
    begun: Instant,
    failed: Vec<String>,
    pub orphans_before: u64,
    pub orphans_after: u64,
    pub missing_before: u64,
    pub missing_found: u64,
    pub lost_after: u64,
    pub held: u64,
    pub kept: u64,
    pub undo: String,
    pub undone: u64,
    pub changes: u64,
    pub equal: u64,
    pub statements: String,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            begun: Instant::now(),
            failed: Vec::new(),
            orphans_before: 0,
            orphans_after: 0,
            missing_before: 0,
            missing_found: 0,
            lost_after: 0,
            held: 0,
            kept: 0,
            undo: String::new(),
            undone: 0,
            changes: 0,
            equal: 0,
            statements: String::new(),
        }
    }
}

/// Writes a line to standard output; a reader that has gone away is no error.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

impl Report {
    /// Says what is being done.
    pub fn step(&self, what: &str) {
        say(&format!("{:5.1} s  {what}", self.begun.elapsed().as_secs_f64()));
    }

    /// Notes a promise that was not kept.
    pub fn check(&mut self, promise: &str, kept: bool) {
        if !kept {
            self.failed.push(promise.to_owned());
        }
    }

    fn rows(&self) -> [(&'static str, String, bool); 10] {
        [
            ("changes at the source meanwhile", self.changes.to_string(), self.changes > 0),
            ("orphans before", self.orphans_before.to_string(), self.orphans_before > 0),
            ("orphans after", self.orphans_after.to_string(), self.orphans_after == 0),
            ("live rows lost", self.lost_after.to_string(), self.lost_after == 0),
            (
                "rows that the sink had lost",
                format!(
                    "{}: {} found by statements and asked for, {} came with changes meanwhile, {} still missing",
                    self.missing_before,
                    self.missing_found,
                    self.missing_before.saturating_sub(self.missing_found),
                    self.lost_after
                ),
                self.missing_found > 0 && self.missing_found <= self.missing_before && self.lost_after == 0,
            ),
            ("statements held, then confirmed", self.held.to_string(), self.held == 1),
            ("rows kept for undo", self.kept.to_string(), self.kept >= self.orphans_before),
            ("undo", self.undo.clone(), self.undone > 0),
            ("statements", self.statements.clone(), true),
            ("rows equal at the end, compared in full", self.equal.to_string(), self.equal > 0),
        ]
    }

    /// Whether everything is as it should be.
    pub fn all_right(&self) -> bool {
        self.failed.is_empty() && self.rows().iter().all(|(_, _, right)| *right)
    }

    /// Prints the table.
    pub fn print(&self) {
        self.step("done");
        say("");
        let rows = self.rows();
        let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        for (name, value, right) in rows {
            say(&format!("{name:width$}  {value}{}", if right { "" } else { "   <-- WRONG" }));
        }
        for promise in &self.failed {
            say(&format!("WRONG: {promise}"));
        }
    }
}

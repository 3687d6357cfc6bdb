//! What a run has seen: a run in which nothing was at stake proves nothing.

use std::{collections::BTreeMap, fmt};

use sink_api::{Rule, Verdict};

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub cases: u64,
    pub applied: u64,
    pub removed: u64,
    pub held: BTreeMap<Rule, u64>,
    pub refused: BTreeMap<Rule, u64>,
    /// Keys that would have been lost without the window rule: the visibility rule no longer knew them.
    pub window_alone: u64,
    /// Keys that would have been lost without the visibility rule.
    pub visibility_alone: u64,
    /// Keys that would have been lost without both.
    pub both: u64,
}

impl Report {
    pub fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Applied => self.applied += 1,
            Verdict::Held { rule, .. } => *self.held.entry(*rule).or_default() += 1,
            Verdict::Refused { rule, .. } => *self.refused.entry(*rule).or_default() += 1,
            Verdict::Reported | Verdict::Ignored => {}
        }
    }

    pub fn add(&mut self, other: &Report) {
        self.cases += other.cases;
        self.applied += other.applied;
        self.removed += other.removed;
        other.held.iter().for_each(|(rule, count)| *self.held.entry(*rule).or_default() += count);
        other.refused.iter().for_each(|(rule, count)| *self.refused.entry(*rule).or_default() += count);
        self.window_alone += other.window_alone;
        self.visibility_alone += other.visibility_alone;
        self.both += other.both;
    }

    /// Returns what a run must have met and has not.
    pub fn lacks(&self) -> Option<&'static str> {
        match () {
            () if self.applied == 0 => Some("no statement was applied"),
            () if self.removed == 0 => Some("no orphan was removed"),
            () if self.held.is_empty() => Some("no statement was held"),
            () if self.refused.is_empty() => Some("no statement was refused"),
            () if self.window_alone == 0 => Some("no key was at risk for the window rule"),
            () if self.visibility_alone == 0 => Some("no key was at risk for the visibility rule"),
            () => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_rule = |counts: &BTreeMap<Rule, u64>| {
            let total: u64 = counts.values().sum();
            let rules: Vec<String> = counts.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
            format!("{total} ({})", rules.join(", "))
        };
        writeln!(f, "{} cases", self.cases)?;
        writeln!(f, "  statements applied {}, with {} orphans removed", self.applied, self.removed)?;
        writeln!(f, "  statements refused {}", by_rule(&self.refused))?;
        writeln!(f, "  statements held {}", by_rule(&self.held))?;
        write!(
            f,
            "  keys that would have been lost: without the window rule {}, without the visibility rule {}, without both {}",
            self.window_alone, self.visibility_alone, self.both
        )
    }
}

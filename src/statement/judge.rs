//! The verdict on a statement, with the sink's difference at hand.

use sink_api::{Difference, Extent, RemovalBudget, Rule, Verdict};

use super::Statement;

/// What statements may do to the sink (`--orphans`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// Say what would go.
    Report,
    /// Remove.
    Remove,
    /// Drop statements.
    Ignore,
}

/// The caps on removals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// The most rows of one statement (`--max-removals`).
    pub rows: u64,
    /// The most rows of one statement, in percent of the sink's rows in its range (`--max-removals-percent`).
    pub percent: f64,
    /// The most rows of a table within 24 hours (`--max-removals-day`); `None`: see [`Caps::rows_a_day`].
    pub rows_a_day: Option<u64>,
    /// Whether a statement may set off cascades and delete triggers (`--allow-cascade`).
    pub allow_cascade: bool,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { rows: 1_000, percent: 5.0, rows_a_day: None, allow_cascade: false }
    }
}

/// The percentage binds only above this many rows: in a short range a few orphans are a large share.
const PERCENT_FROM_ROWS: u64 = 20;

/// The day's cap never falls below this, so that a small table can be repaired at all.
const DAY_FROM_ROWS: u64 = 100;

/// Below this many on either side, orphans and missing rows of like number are chance.
const MISMATCH_FROM_ROWS: u64 = 20;

impl Caps {
    /// Returns the most rows of a table of `rows` rows that may go within 24 hours: by default 1 % of them, at least 100.
    pub fn day(&self, rows: u64) -> u64 {
        self.rows_a_day.unwrap_or_else(|| DAY_FROM_ROWS.max(rows / 100))
    }

    /// Returns the most rows of a range of `in_range` rows that one statement may remove.
    pub fn statement(&self, in_range: u64) -> u64 {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let share = (in_range as f64 * self.percent / 100.0) as u64;
        PERCENT_FROM_ROWS.max(share).min(self.rows)
    }

    /// Returns how many orphans a statement has to name so that it can be carried out when the caps allow it.
    pub fn most(&self, confirmed: Option<u64>) -> u64 {
        confirmed.unwrap_or(self.rows)
    }
}

/// Returns the verdict on a statement. `Applied` means: remove the orphans.
pub fn judge(
    statement: &Statement,
    difference: &Difference,
    budget: &RemovalBudget,
    caps: &Caps,
    policy: OrphanPolicy,
) -> Verdict {
    match policy {
        OrphanPolicy::Ignore => return Verdict::Ignored,
        OrphanPolicy::Report => return Verdict::Reported,
        OrphanPolicy::Remove => {}
    }
    if difference.orphan_count == 0 {
        return Verdict::Applied;
    }
    if !caps.allow_cascade && !statement.table.removal_hazards.is_empty() {
        return Verdict::Refused {
            rule: Rule::Cascade,
            reason: format!(
                "a removal from {} would set off more than itself: {}; start with --allow-cascade if that is meant",
                statement.table.name,
                statement.table.removal_hazards.join(", ")
            ),
            again: false,
        };
    }
    match statement.confirmed {
        Some(ceiling) => confirmed(difference, ceiling),
        None => unconfirmed(statement, difference, budget, caps),
    }
}

/// An operator has seen a held statement: the fresh read may remove up to what was confirmed.
fn confirmed(difference: &Difference, ceiling: u64) -> Verdict {
    if difference.orphan_count <= ceiling {
        return Verdict::Applied;
    }
    Verdict::Held {
        rule: Rule::FreshRead,
        reason: format!("the fresh read found {} orphans, above the {ceiling} confirmed", difference.orphan_count),
    }
}

fn unconfirmed(statement: &Statement, difference: &Difference, budget: &RemovalBudget, caps: &Caps) -> Verdict {
    let (orphans, missing) = (difference.orphan_count, difference.missing_count);
    let held = |rule, reason| Verdict::Held { rule, reason };
    if statement.is_of_empty_table() {
        return held(Rule::Empty, format!("the source table is empty and the sink holds {orphans} rows"));
    }
    if orphans > MISMATCH_FROM_ROWS
        && missing > MISMATCH_FROM_ROWS
        && orphans.abs_diff(missing) <= orphans.max(missing) / 10
    {
        return held(
            Rule::Mismatch,
            format!("{orphans} orphans and {missing} missing rows look like two spellings of the same keys"),
        );
    }
    let in_range = match &statement.extent {
        Extent::Range(_) => difference.in_range,
        // Suspects are mostly orphans: how many of them the sink holds says nothing, so the table is their range.
        Extent::Keys(_) => budget.rows,
    };
    let most = caps.statement(in_range);
    if orphans > most {
        return held(
            Rule::Cap,
            format!("{orphans} orphans of {in_range} rows in range, above the cap of {most} a statement"),
        );
    }
    let day = caps.day(budget.rows);
    if budget.removed_last_day.saturating_add(orphans) > day {
        return held(
            Rule::Cap,
            format!(
                "{orphans} orphans after {} removals within 24 hours, above the table's cap of {day} a day",
                budget.removed_last_day
            ),
        );
    }
    Verdict::Applied
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sink_api::{Extent, KeyList, KeyRange, KeySet, Offset, ReadId, StatementKind, TableName, TableShape};

    use super::*;

    fn statement() -> Statement {
        Statement {
            read_id: ReadId("read".into()),
            kind: StatementKind::Chunk,
            source: sink_api::SourceName::of_table("inventory.orders"),
            table: Arc::new(TableShape::new(TableName::new("inventory", "orders"), vec![], vec![], vec![])),
            extent: Extent::Range(KeyRange::ALL),
            selected: KeySet::Intervals(vec![(1, 3)]),
            spared: KeyList::new(),
            spared_by_window: 0,
            spared_by_visibility: 0,
            confirmed: None,
            offset: Offset(7),
        }
    }

    fn difference(orphan_count: u64, missing_count: u64, in_range: u64) -> Difference {
        Difference { orphan_count, missing_count, in_range, ..Difference::default() }
    }

    fn verdict(statement: &Statement, difference: &Difference) -> Verdict {
        let budget = RemovalBudget { rows: 1_000_000, ..RemovalBudget::default() };
        judge(statement, difference, &budget, &Caps::default(), OrphanPolicy::Remove)
    }

    fn rule(verdict: &Verdict) -> Option<(&str, Rule)> {
        verdict.reason().map(|(rule, _)| (verdict.as_str(), rule))
    }

    #[test]
    fn a_few_orphans_go() {
        assert_eq!(verdict(&statement(), &difference(20, 0, 30)), Verdict::Applied);
    }

    #[test]
    fn more_than_the_percentage_is_held() {
        assert_eq!(verdict(&statement(), &difference(50, 0, 1_000)), Verdict::Applied);
        assert_eq!(rule(&verdict(&statement(), &difference(51, 0, 1_000))), Some(("held", Rule::Cap)));
    }

    #[test]
    fn suspects_that_are_orphans_are_a_share_of_the_table() {
        let suspects = Statement { extent: Extent::Keys(KeyList::new()), ..statement() };
        let judge = |orphans, rows| {
            let budget = RemovalBudget { rows, ..RemovalBudget::default() };
            judge(&suspects, &difference(orphans, 0, orphans), &budget, &Caps::default(), OrphanPolicy::Remove)
        };

        assert_eq!(judge(50, 1_000), Verdict::Applied);
        assert_eq!(rule(&judge(51, 1_000)), Some(("held", Rule::Cap)));
    }

    #[test]
    fn more_than_the_most_is_held() {
        assert_eq!(verdict(&statement(), &difference(1_000, 0, 1_000_000)), Verdict::Applied);
        assert_eq!(rule(&verdict(&statement(), &difference(1_001, 0, 1_000_000))), Some(("held", Rule::Cap)));
    }

    #[test]
    fn the_day_has_a_cap_of_its_own() {
        let budget = RemovalBudget { removed_last_day: 90, rows: 500, streams: Vec::new(), fed: true };
        let judge = |orphans| {
            judge(&statement(), &difference(orphans, 0, 500), &budget, &Caps::default(), OrphanPolicy::Remove)
        };

        assert_eq!(judge(10), Verdict::Applied);
        assert_eq!(rule(&judge(11)), Some(("held", Rule::Cap)));
    }

    #[test]
    fn an_empty_source_table_is_held() {
        let empty = Statement { selected: KeySet::List(KeyList::new()), ..statement() };

        assert_eq!(rule(&verdict(&empty, &difference(1, 0, 1))), Some(("held", Rule::Empty)));
    }

    #[test]
    fn two_spellings_of_the_same_keys_are_held() {
        assert_eq!(rule(&verdict(&statement(), &difference(30, 31, 10_000))), Some(("held", Rule::Mismatch)));
        assert_eq!(verdict(&statement(), &difference(30, 60, 10_000)), Verdict::Applied);
    }

    #[test]
    fn a_confirmation_is_a_ceiling() {
        let confirmed = Statement { confirmed: Some(5_000), selected: KeySet::List(KeyList::new()), ..statement() };

        assert_eq!(verdict(&confirmed, &difference(5_000, 0, 5_000)), Verdict::Applied);
        assert_eq!(rule(&verdict(&confirmed, &difference(5_001, 0, 5_001))), Some(("held", Rule::FreshRead)));
    }

    #[test]
    fn a_cascade_is_refused_by_name() {
        let table =
            TableShape::new(TableName::new("a", "b"), vec![], vec![], vec!["foreign key \"x\" (CASCADE)".into()]);
        let cascading = Statement { table: Arc::new(table), confirmed: Some(10), ..statement() };

        assert_eq!(rule(&verdict(&cascading, &difference(1, 0, 10))), Some(("refused", Rule::Cascade)));
        assert_eq!(verdict(&cascading, &difference(0, 0, 10)), Verdict::Applied);
    }

    #[test]
    fn removal_is_opt_in() {
        let budget = RemovalBudget::default();
        let judge = |policy| judge(&statement(), &difference(1, 0, 1), &budget, &Caps::default(), policy);

        assert_eq!(judge(OrphanPolicy::Report), Verdict::Reported);
        assert_eq!(judge(OrphanPolicy::Ignore), Verdict::Ignored);
    }
}

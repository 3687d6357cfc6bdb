//! A statement at its barrier: earlier changes are written, later ones wait.

use sink_api::{Difference, DifferenceQuery, KeyList, Removal, Rule, SinkError, StatementRow, Unit, Verdict};

use crate::statement::{Caps, OrphanPolicy, Statement, judge};

/// How many orphans are named, and removed, at a time: bounds the memory of a statement.
const PAGE: u64 = 10_000;

/// How many missing keys are named: ten requests' worth. The others are counted, and found again by the next pass.
const NAMED_MISSING: usize = 10_000;

/// What statements may do in this worker.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The caps.
    pub caps: Caps,
    /// What to do with orphans.
    pub policy: OrphanPolicy,
}

/// What a barrier did.
#[derive(Clone, Debug, PartialEq)]
pub enum Barrier {
    /// The read had its verdict already; nothing changed.
    Repeated,
    /// The statement has its verdict now.
    Judged {
        /// What was written down.
        row: Box<StatementRow>,
        /// The first of the missing keys.
        missing: KeyList,
    },
}

/// Evaluates a statement inside a unit of work.
///
/// # Errors
/// Those of the sink; the unit is dead then.
pub async fn evaluate<U: Unit>(unit: &mut U, statement: &Statement, rules: &Rules) -> Result<Barrier, SinkError> {
    if unit.verdict(&statement.read_id).await?.is_some() {
        return Ok(Barrier::Repeated);
    }
    let (difference, verdict) = if rules.policy == OrphanPolicy::Ignore {
        (Difference::default(), Verdict::Ignored)
    } else {
        let difference = difference(unit, statement, &rules.caps).await?;
        let verdict = verdict(unit, statement, &difference, rules).await?;
        (difference, verdict)
    };
    let removed = match verdict {
        Verdict::Applied => remove(unit, statement, &difference, &rules.caps).await?,
        _ => 0,
    };
    let row = row(statement, &difference, verdict, removed);
    let named = if row.removed == row.orphans { KeyList::new() } else { difference.orphans };
    unit.record(&row, &named).await?;
    Ok(Barrier::Judged { row: Box::new(row), missing: difference.missing })
}

async fn difference<U: Unit>(unit: &mut U, statement: &Statement, caps: &Caps) -> Result<Difference, SinkError> {
    #[allow(clippy::cast_possible_truncation)]
    let name_orphans = caps.most(statement.confirmed).clamp(1, PAGE) as usize;
    unit.difference(&DifferenceQuery {
        table: &statement.table,
        extent: &statement.extent,
        selected: &statement.selected,
        spared: &statement.spared,
        name_orphans,
        name_missing: NAMED_MISSING,
    })
    .await
}

async fn verdict<U: Unit>(
    unit: &mut U,
    statement: &Statement,
    difference: &Difference,
    rules: &Rules,
) -> Result<Verdict, SinkError> {
    if difference.orphan_count == 0 {
        return Ok(judge(statement, difference, &sink_api::RemovalBudget::default(), &rules.caps, rules.policy));
    }
    let budget = unit.removal_budget(&statement.table, &statement.source).await?;
    if !budget.streams.is_empty() {
        let (table, streams) = (&statement.table.name, budget.streams.join("; "));
        let reason = match budget.streams.len() {
            1 => format!(
                "{table} is fed by another stream than that of {}, which this statement is of: {streams}",
                statement.source
            ),
            _ => format!("{table} is fed by several streams: {streams}"),
        };
        return Ok(Verdict::Refused { rule: Rule::OneStream, reason, again: false });
    }
    if !budget.fed {
        let reason = format!(
            "no change of {} has come by this topic yet, so nothing shows that what happens to {} passes through this lane \
             (one change of any row is enough)",
            statement.source, statement.table.name
        );
        return Ok(Verdict::Refused { rule: Rule::OneStream, reason, again: false });
    }
    if rules.policy == OrphanPolicy::Report {
        // Who looks before he lets rows be removed wants to know it now.
        match judge(statement, difference, &budget, &rules.caps, OrphanPolicy::Remove) {
            Verdict::Held { rule, reason } | Verdict::Refused { rule, reason, .. } => tracing::warn!(
                table = %statement.table.name, read_id = %statement.read_id, %rule, reason,
                "with --orphans remove this statement would remove nothing"
            ),
            _ => {}
        }
    }
    Ok(judge(statement, difference, &budget, &rules.caps, rules.policy))
}

/// Removes the orphans, page by page; never more than were judged.
async fn remove<U: Unit>(
    unit: &mut U,
    statement: &Statement,
    difference: &Difference,
    caps: &Caps,
) -> Result<u64, SinkError> {
    let mut page = difference.orphans.clone();
    let (mut named, mut removed) = (0, 0);
    while !page.is_empty() {
        named += page.len() as u64;
        removed += unit
            .remove(&Removal {
                table: &statement.table,
                keys: &page,
                read_id: &statement.read_id,
                offset: statement.offset,
            })
            .await?;
        if named >= difference.orphan_count {
            break;
        }
        page = self::difference(unit, statement, caps).await?.orphans;
    }
    Ok(removed)
}

/// Returns what is written down of a statement.
pub(super) fn row(statement: &Statement, difference: &Difference, verdict: Verdict, removed: u64) -> StatementRow {
    StatementRow {
        read_id: statement.read_id.clone(),
        kind: statement.kind,
        table: Some(statement.table.name.clone()),
        source_table: statement.source.table.clone(),
        extent: statement.extent_text(),
        offset: statement.offset,
        verdict,
        orphans: difference.orphan_count,
        removed,
        missing: difference.missing_count,
        spared: statement.spared.len() as u64,
        in_range: difference.in_range,
        confirmed: statement.confirmed,
    }
}

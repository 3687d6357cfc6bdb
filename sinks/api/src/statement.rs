//! Statements of absence and what became of them.

use std::fmt;

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer, value::StrDeserializer},
};

use crate::{Offset, TableName};

/// The unique name of a bracketed read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadId(pub String);

impl fmt::Display for ReadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a value from the name under which it is serialised.
fn by_name<'n, T: Deserialize<'n>>(name: &'n str) -> Option<T> {
    let name: StrDeserializer<'n, serde::de::value::Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

/// The form in which a statement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatementKind {
    /// A chunk info record of a connector.
    ChunkInfo,
    /// The `chunk` marker of a bracketed read.
    Chunk,
    /// The `keys` marker of a bracketed read.
    Keys,
    /// An absence event.
    Absence,
}

impl StatementKind {
    /// Returns the name as metrics, logs and the sink's own tables write it.
    pub fn as_str(self) -> &'static str {
        match self {
            StatementKind::ChunkInfo => "chunk-info",
            StatementKind::Chunk => "chunk",
            StatementKind::Keys => "keys",
            StatementKind::Absence => "absence",
        }
    }

    /// Returns the form of that name.
    pub fn of(name: &str) -> Option<StatementKind> {
        by_name(name)
    }
}

/// The safety rules, by the names that the documentation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Earlier records first, later ones after.
    Barrier,
    /// Keys changed between low and close are spared.
    Window,
    /// A window runs from the first delivery of its low marker.
    FirstLow,
    /// Keys of transactions that the read did not see are spared.
    Visibility,
    /// The first verdict on a read is final.
    FirstVerdict,
    /// Source and sink agree about the order of keys.
    Order,
    /// Source and sink hold the same value for the same key.
    SameValue,
    /// One source and one topic feed a sink table.
    OneStream,
    /// A statement speaks of the keys of its partition.
    Scope,
    /// A statement narrowed by more than its range is none.
    Unfiltered,
    /// All parts are there and agree.
    Whole,
    /// The marker's signature is right.
    Authentic,
    /// Not more rows than the caps allow.
    Cap,
    /// Orphans and missing rows are not two spellings of one set of keys.
    Mismatch,
    /// An empty source table needs a confirmation.
    Empty,
    /// A confirmation is a ceiling on a fresh read.
    FreshRead,
    /// A table-level change voids open windows.
    TableChange,
    /// Positions of an earlier incarnation count as none.
    Incarnation,
    /// What a removal would set off is not for a statement to decide.
    Cascade,
    /// Removal is asked for.
    OptIn,
}

impl Rule {
    /// Returns the rule of that name.
    pub fn of(name: &str) -> Option<Rule> {
        by_name(name)
    }

    /// Returns the rule's name as the documentation writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Barrier => "barrier",
            Rule::Window => "window",
            Rule::FirstLow => "first-low",
            Rule::Visibility => "visibility",
            Rule::FirstVerdict => "first-verdict",
            Rule::Order => "order",
            Rule::SameValue => "same-value",
            Rule::OneStream => "one-stream",
            Rule::Scope => "scope",
            Rule::Unfiltered => "unfiltered",
            Rule::Whole => "whole",
            Rule::Authentic => "authentic",
            Rule::Cap => "cap",
            Rule::Mismatch => "mismatch",
            Rule::Empty => "empty",
            Rule::FreshRead => "fresh-read",
            Rule::TableChange => "table-change",
            Rule::Incarnation => "incarnation",
            Rule::Cascade => "cascade",
            Rule::OptIn => "opt-in",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of a statement; final for its read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Orphans were removed (maybe none were found).
    Applied,
    /// Orphans were only reported.
    Reported,
    /// Statements are switched off for this worker.
    Ignored,
    /// A cap stopped it; an operator decides.
    Held {
        /// The rule that held it.
        rule: Rule,
        /// Why, with the numbers.
        reason: String,
    },
    /// It proves nothing.
    Refused {
        /// The rule that it breaks.
        rule: Rule,
        /// Why.
        reason: String,
        /// Whether a fresh read may do better, so that one is asked for.
        again: bool,
    },
}

impl Verdict {
    /// Returns the verdict's name as metrics, logs and the sink's own tables write it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Applied => "applied",
            Verdict::Reported => "reported",
            Verdict::Ignored => "ignored",
            Verdict::Held { .. } => "held",
            Verdict::Refused { .. } => "refused",
        }
    }

    /// Returns the rule and the reason of a verdict that has one.
    pub fn reason(&self) -> Option<(Rule, &str)> {
        match self {
            Verdict::Held { rule, reason } | Verdict::Refused { rule, reason, .. } => Some((*rule, reason)),
            _ => None,
        }
    }
}

/// What the sink writes down of one statement, in the transaction of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementRow {
    /// The read; unique in the lane.
    pub read_id: ReadId,
    /// The form in which it came.
    pub kind: StatementKind,
    /// The sink table; `None` when the statement did not say one that is known.
    pub table: Option<TableName>,
    /// The source's name for the table, as the statement has it.
    pub source_table: String,
    /// Its range or the number of its keys, as text.
    pub extent: String,
    /// Where it stands in the lane's partition.
    pub offset: Offset,
    /// What became of it.
    pub verdict: Verdict,
    /// Keys that the sink holds and the source does not.
    pub orphans: u64,
    /// Of these, removed.
    pub removed: u64,
    /// Keys that the source holds and the sink does not.
    pub missing: u64,
    /// Keys about which it says nothing, since they changed or could not be proven.
    pub spared: u64,
    /// Rows of the sink in the range.
    pub in_range: u64,
    /// How many removals an operator had confirmed.
    pub confirmed: Option<u64>,
}

impl StatementRow {
    /// Whether nobody needs to look at `earlier` any more, a held or refused statement of the same lane: this one read the
    /// same range, or an operator had confirmed it where a statement has no range; and it did what the other was held
    /// from doing, or was judged where the other was refused.
    pub fn settles(&self, earlier: &StatementRow) -> bool {
        let same = self.table == earlier.table && self.kind == earlier.kind && self.extent == earlier.extent;
        let ranged = matches!(earlier.kind, StatementKind::Chunk | StatementKind::ChunkInfo);
        let done = match earlier.verdict {
            Verdict::Refused { .. } => !matches!(self.verdict, Verdict::Refused { .. }),
            _ => self.verdict == Verdict::Applied,
        };
        done && same && (ranged || self.confirmed.is_some())
    }
}

/// A held statement that waits for an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldStatement {
    /// What was written down.
    pub statement: StatementRow,
    /// When, in microseconds since 1970-01-01 UTC.
    pub recorded_at: i64,
}

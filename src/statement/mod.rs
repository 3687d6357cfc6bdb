//! Pure: every rule that decides whether a row may go.
//!
//! A statement of absence comes as one or more `parts`, is completed by what the lane knows of the stream
//! (`visibility`, the windows of [`crate::stream`]) into a [`Statement`], and at its barrier, with the sink's
//! difference at hand, [judged](judge). Each step can only make a statement say less: spare a key, hold, refuse.

mod judge;
mod parts;
mod recent;
mod visibility;

use std::sync::Arc;

use sink_api::{
    Extent, Key, KeyBound, KeyList, KeyRange, KeySet, Offset, ReadId, SourceName, StatementKind, TableShape,
};

pub use judge::{Caps, OrphanPolicy, judge};
pub(crate) use parts::is_same_table;
pub use parts::{Added, Parts};
pub use recent::RecentKeys;
pub(crate) use recent::WITHOUT_ID;
pub(crate) use visibility::{Past, Undecided};
pub use visibility::{sees, widen};

/// How the reason begins of a statement whose removal the sink's own rules do not let pass.
pub(crate) const REFUSED_BY_SINK: &str = "the sink refuses the removal";

/// How the reason begins of a statement that takes the sink longer than it lets anything take.
pub(crate) const NOT_IN_TIME: &str = "the sink did not finish the statement in time";

/// A statement of absence, complete, as it stands at its barrier.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The read that proved it.
    pub read_id: ReadId,
    /// The form in which it came.
    pub kind: StatementKind,
    /// The source's table.
    pub source: SourceName,
    /// The sink table.
    pub table: Arc<TableShape>,
    /// The keys that it is about.
    pub extent: Extent,
    /// The keys of the extent that the source holds.
    pub selected: KeySet,
    /// The keys about which it says nothing, strictly ascending.
    pub spared: KeyList,
    /// How many of them changed in the read's window.
    pub spared_by_window: u64,
    /// How many of them only the visibility rule spares.
    pub spared_by_visibility: u64,
    /// An operator's ceiling on removals, for a read made afresh after a hold.
    pub confirmed: Option<u64>,
    /// Its place in the partition: that of its last part.
    pub offset: Offset,
}

impl Statement {
    /// Whether it says that the source table has no row at all.
    pub fn is_of_empty_table(&self) -> bool {
        self.extent == Extent::Range(KeyRange::ALL) && self.selected.is_empty()
    }

    /// Returns the extent as text for an operator: bounds as hexadecimal of the canonical encoding.
    pub fn extent_text(&self) -> String {
        extent_text(&self.extent)
    }
}

/// Writes an extent as text: `(open, 0a1b]` or `12 keys`.
pub fn extent_text(extent: &Extent) -> String {
    let range = match extent {
        Extent::Keys(keys) => return format!("{} keys", keys.len()),
        Extent::Range(range) => range,
    };
    let lower = match &range.lower {
        KeyBound::Open => "(open".to_owned(),
        KeyBound::Inclusive(key) => format!("[{}", hex::encode(key.as_bytes())),
        KeyBound::Exclusive(key) => format!("({}", hex::encode(key.as_bytes())),
    };
    let upper = match &range.upper {
        KeyBound::Open => "open)".to_owned(),
        KeyBound::Inclusive(key) => format!("{}]", hex::encode(key.as_bytes())),
        KeyBound::Exclusive(key) => format!("{})", hex::encode(key.as_bytes())),
    };
    format!("{lower}, {upper}")
}

/// Reads a range back from the text that [`extent_text`] writes; `None` for anything else.
pub fn parse_range(text: &str) -> Option<KeyRange> {
    let (lower, upper) = text.split_once(", ")?;
    let key = |hex: &str| hex::decode(hex).ok().map(Key::from_encoded);
    let lower = match lower.split_at_checked(1)? {
        ("(", "open") => KeyBound::Open,
        ("(", bound) => KeyBound::Exclusive(key(bound)?),
        ("[", bound) => KeyBound::Inclusive(key(bound)?),
        _ => return None,
    };
    let upper = match upper.split_at_checked(upper.len().checked_sub(1)?)? {
        ("open", ")") => KeyBound::Open,
        (bound, ")") => KeyBound::Exclusive(key(bound)?),
        (bound, "]") => KeyBound::Inclusive(key(bound)?),
        _ => return None,
    };
    Some(KeyRange { lower, upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_back_from_its_text() {
        let key = |byte: u8| Key::from_encoded([byte, 0]);
        for range in [
            KeyRange::ALL,
            KeyRange { lower: KeyBound::Open, upper: KeyBound::Inclusive(key(1)) },
            KeyRange { lower: KeyBound::Exclusive(key(1)), upper: KeyBound::Exclusive(key(2)) },
            KeyRange { lower: KeyBound::Inclusive(key(3)), upper: KeyBound::Open },
        ] {
            let text = extent_text(&Extent::Range(range.clone()));
            assert_eq!(parse_range(&text), Some(range), "{text}");
        }
        assert_eq!(parse_range("12 keys"), None);
        assert_eq!(parse_range(""), None);
    }
}

//! Key ranges.

use crate::Key;

/// One end of a key range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyBound {
    /// No bound on this side.
    Open,
    /// The key itself is inside.
    Inclusive(Key),
    /// The key itself is outside.
    Exclusive(Key),
}

/// A range of keys under the encoding's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where it begins.
    pub lower: KeyBound,
    /// Where it ends.
    pub upper: KeyBound,
}

impl KeyRange {
    /// The range of all keys.
    pub const ALL: KeyRange = KeyRange { lower: KeyBound::Open, upper: KeyBound::Open };

    /// Whether `key` (encoded) lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            KeyBound::Open => true,
            KeyBound::Inclusive(bound) => key >= bound.as_bytes(),
            KeyBound::Exclusive(bound) => key > bound.as_bytes(),
        };
        above
            && match &self.upper {
                KeyBound::Open => true,
                KeyBound::Inclusive(bound) => key <= bound.as_bytes(),
                KeyBound::Exclusive(bound) => key < bound.as_bytes(),
            }
    }

    /// Whether the bounds are in order: a lower bound above the upper one is a mistake of its writer.
    pub fn is_ordered(&self) -> bool {
        match (&self.lower, &self.upper) {
            (KeyBound::Open, _) | (_, KeyBound::Open) => true,
            (
                KeyBound::Inclusive(lower) | KeyBound::Exclusive(lower),
                KeyBound::Inclusive(upper) | KeyBound::Exclusive(upper),
            ) => lower <= upper,
        }
    }
}

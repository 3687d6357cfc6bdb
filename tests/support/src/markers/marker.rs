//! The payload of a marker.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A marker. `None` and empty are left out of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Marker {
    /// The version of the format.
    pub v: u32,
    /// `low`, `chunk` or `keys`.
    pub kind: String,
    /// The read.
    pub read_id: String,
    /// The table, `schema.table`.
    pub table: String,
    /// The topic that it is meant for.
    pub topic: String,
    /// This part's number, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// How many parts there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// The range that a chunk was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The keys that a chunk's read returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected: Option<Vec<Box<RawValue>>>,
    /// The keys that a `keys` read was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Vec<Box<RawValue>>>,
    /// Those of them that were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<Vec<Box<RawValue>>>,
    /// The key columns' types, with modifiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_types: Option<Vec<String>>,
    /// How text was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_order: Option<String>,
    /// The read's snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Whether all that the log holds before the low marker was visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
    /// More fields: `confirmed`, `mac`, or what no marker has.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// A key range.
#[derive(Clone, Debug, Serialize)]
pub struct Range {
    /// Its lower bound.
    pub lower: Bound,
    /// Its upper bound.
    pub upper: Bound,
}

/// One end of a range.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Bound {
    /// No bound.
    Open {
        /// Always true.
        open: bool,
    },
    /// A key.
    Key {
        /// The key, as JSON.
        key: Box<RawValue>,
        /// Whether the range holds it.
        inclusive: bool,
    },
}

impl Bound {
    /// No bound.
    pub const OPEN: Bound = Bound::Open { open: true };
}

impl Marker {
    /// Returns a low marker.
    pub fn low(read_id: &str, table: &str, topic: &str) -> Marker {
        Marker {
            v: 1,
            kind: "low".to_owned(),
            read_id: read_id.to_owned(),
            table: table.to_owned(),
            topic: topic.to_owned(),
            part: None,
            parts: None,
            range: None,
            selected: None,
            asked: None,
            present: None,
            key_types: None,
            key_order: None,
            snapshot: None,
            settled: None,
            extra: BTreeMap::new(),
        }
    }

    /// Adds an operator's ceiling.
    pub fn confirmed(mut self, max_removals: u64) -> Marker {
        self.extra.insert("confirmed".to_owned(), serde_json::json!({ "max_removals": max_removals }));
        self
    }

    /// Returns the payload.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Splits the lists into slices of at most `keys` keys, each in a part that repeats all else.
    pub fn split(&self, keys: usize) -> Result<Vec<Marker>> {
        ensure!(keys > 0, "parts of no keys");
        let slices = |list: &Option<Vec<Box<RawValue>>>| -> Vec<Vec<Box<RawValue>>> {
            list.iter().flat_map(|list| list.chunks(keys).map(<[_]>::to_vec)).collect()
        };
        let (selected, asked, present) = (slices(&self.selected), slices(&self.asked), slices(&self.present));
        let parts = selected.len().max(asked.len()).max(present.len()).max(1);
        let nth = |list: &Option<Vec<_>>, slices: &[Vec<Box<RawValue>>], n: usize| {
            list.as_ref().map(|_| slices.get(n).cloned().unwrap_or_default())
        };
        (0..parts)
            .map(|n| {
                Ok(Marker {
                    part: Some(u32::try_from(n + 1)?),
                    parts: Some(u32::try_from(parts)?),
                    selected: nth(&self.selected, &selected, n),
                    asked: nth(&self.asked, &asked, n),
                    present: nth(&self.present, &present, n),
                    ..self.clone()
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn parts_repeat_all_scalars_and_slice_the_lists() {
        let keys = (1..=5).map(|n| RawValue::from_string(n.to_string()).unwrap()).collect();
        let whole = Marker { selected: Some(keys), settled: Some(true), ..Marker::low("r", "a.b", "t") };

        let parts: Vec<_> = whole.split(2).unwrap().iter().map(|part| part.json().unwrap()).collect();

        let part = |n: u32, keys: &str| {
            format!(
                r#"{{"v":1,"kind":"low","read_id":"r","table":"a.b","topic":"t","part":{n},"parts":3,"selected":{keys},"settled":true}}"#
            )
        };
        assert_eq!(parts, [part(1, "[1,2]"), part(2, "[3,4]"), part(3, "[5]")]);
    }
}

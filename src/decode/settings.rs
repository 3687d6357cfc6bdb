//! What decoding has to be told.

use super::{Modes, TableMapping, placeholder::Placeholder};

/// The prefix of markers in logical decoding messages.
pub const MARKER_PREFIX: &str = "sink-repair";

/// What decoding has to be told; the same for all lanes.
#[derive(Clone, Debug)]
pub struct DecodeSettings {
    /// Where source tables go.
    pub mapping: TableMapping,
    /// How the source connector writes values, where schemas are off.
    pub modes: Modes,
    /// Whether columns that the sink lacks are skipped; else they are an error that names them.
    pub ignore_unknown_columns: bool,
    /// The key of the markers' signatures (the content of `--marker-key-file`). With it, unsigned markers are refused.
    pub marker_key: Option<Vec<u8>>,
    /// The prefixes of markers: a message is a marker when its prefix is one of these, or one of these and a dot and more.
    pub marker_prefixes: Vec<String>,
    /// Debezium's signal table (`signal.data.collection`), as `schema.table`. Without it the table is recognised by the
    /// rows that Debezium itself writes into it.
    pub signal_table: Option<String>,
    /// Debezium's `unavailable.value.placeholder`.
    pub unavailable: Placeholder,
}

impl Default for DecodeSettings {
    fn default() -> DecodeSettings {
        DecodeSettings {
            mapping: TableMapping::default(),
            modes: Modes::default(),
            ignore_unknown_columns: false,
            marker_key: None,
            marker_prefixes: vec![MARKER_PREFIX.to_owned()],
            signal_table: None,
            unavailable: Placeholder::default(),
        }
    }
}

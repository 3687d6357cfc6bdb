//! How the source connector was told to write values.
//!
//! With schemas on, each value's schema says how it is to be read, and nothing here is used (but for `binary`, since
//! Debezium's text forms of bytes carry a plain `string` schema). With schemas off the type of the sink's column and
//! these modes together take the schema's place: they are Debezium's properties of the same names, with its defaults.

use std::{fmt, str::FromStr};

/// A mode's name is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property} is one of {names}, not `{found}`")]
pub struct UnknownMode {
    /// Debezium's property.
    pub property: &'static str,
    /// The names that it takes.
    pub names: String,
    /// What was given.
    pub found: String,
}

macro_rules! mode {
    ($(#[$doc:meta])* $mode:ident, $property:literal, $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $mode {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $mode {
            /// All modes, the default first.
            pub const ALL: &[$mode] = &[$($mode::$variant),+];

            /// Returns the mode's name in Debezium's configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($mode::$variant => $name,)+
                }
            }
        }

        impl fmt::Display for $mode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $mode {
            type Err = UnknownMode;

            fn from_str(text: &str) -> Result<$mode, UnknownMode> {
                $mode::ALL.iter().copied().find(|mode| mode.as_str() == text).ok_or_else(|| UnknownMode {
                    property: $property,
                    names: $mode::ALL.iter().map(|mode| mode.as_str()).collect::<Vec<_>>().join(", "),
                    found: text.to_owned(),
                })
            }
        }
    };
}

mode!(
    /// `decimal.handling.mode`: how `numeric` and `money` are written.
    DecimalMode,
    "decimal.handling.mode",
    /// Unscaled bytes; of a `numeric` without precision, a struct with its scale.
    #[default]
    Precise = "precise",
    /// Decimal text.
    String = "string",
    /// Binary floating point: what does not fit 53 bits is lost at the source.
    Double = "double",
);

mode!(
    /// `time.precision.mode`: how dates, times and timestamps without zone are written.
    TimeMode,
    "time.precision.mode",
    /// Milliseconds for up to three digits of a second, else microseconds.
    #[default]
    Adaptive = "adaptive",
    /// As `adaptive`, with times of day always in microseconds.
    AdaptiveTimeMicroseconds = "adaptive_time_microseconds",
    /// Connect's own types, in milliseconds: microseconds are lost at the source.
    Connect = "connect",
    /// Microseconds.
    Microseconds = "microseconds",
    /// Nanoseconds.
    Nanoseconds = "nanoseconds",
    /// ISO 8601 text.
    IsoString = "isostring",
);

mode!(
    /// `binary.handling.mode`: how bytes are written.
    BinaryMode,
    "binary.handling.mode",
    /// Bytes, which JSON carries in base64.
    #[default]
    Bytes = "bytes",
    /// Text in base64.
    Base64 = "base64",
    /// Text in the URL-safe alphabet of base64.
    Base64UrlSafe = "base64-url-safe",
    /// Text in hexadecimal.
    Hex = "hex",
);

mode!(
    /// `interval.handling.mode`: how intervals are written.
    IntervalMode,
    "interval.handling.mode",
    /// Microseconds, a month being 30.4375 days: months and days are lost at the source.
    #[default]
    Numeric = "numeric",
    /// ISO 8601 text.
    String = "string",
);

mode!(
    /// `hstore.handling.mode`: how `hstore` is written.
    HstoreMode,
    "hstore.handling.mode",
    /// Text that holds a JSON object.
    #[default]
    Json = "json",
    /// A map.
    Map = "map",
);

/// The modes of the source connector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// `decimal.handling.mode`
    pub decimal: DecimalMode,
    /// `time.precision.mode`
    pub time: TimeMode,
    /// `binary.handling.mode`
    pub binary: BinaryMode,
    /// `interval.handling.mode`
    pub interval: IntervalMode,
    /// `hstore.handling.mode`
    pub hstore: HstoreMode,
}

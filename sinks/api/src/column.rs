//! Columns and their types, as far as values on their way need them.

/// The type of a column's values, without regard to the sink that holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// true or false.
    Bool,
    /// Signed integer of 16 bits.
    Int16,
    /// Signed integer of 32 bits.
    Int32,
    /// Signed integer of 64 bits.
    Int64,
    /// Binary floating point, 32 bits.
    Float32,
    /// Binary floating point, 64 bits.
    Float64,
    /// Decimal number. `None`: any precision and scale.
    Decimal(Option<(u16, i16)>),
    /// Money with the given number of fractional digits.
    Money(i16),
    /// Text, with the most characters it takes.
    Text(Option<u32>),
    /// Text padded with blanks to the given number of characters.
    Char(u32),
    /// Bytes.
    Bytes,
    /// UUID.
    Uuid,
    /// Day of the proleptic Gregorian calendar.
    Date,
    /// Time of day without zone; digits kept of a second.
    Time(u8),
    /// Time of day with zone.
    TimeTz(u8),
    /// Date and time without zone.
    Timestamp(u8),
    /// Instant.
    TimestampTz(u8),
    /// Interval of months, days and microseconds.
    Interval,
    /// JSON kept as text (`false`) or in a normal form (`true`).
    Json(bool),
    /// Bit string of exactly the given length.
    Bit(u32),
    /// Bit string of at most the given length.
    VarBit(Option<u32>),
    /// String-to-string map (`hstore`).
    Map,
    /// Two-dimensional point.
    Point,
    /// Array of elements of one type.
    Array(Box<ColumnType>),
    /// Any other type, by the sink's name for it; values travel in the sink's own text form.
    Other(String),
}

impl ColumnType {
    /// Whether it is PostgreSQL's `oid`: an unsigned integer of 32 bits that travels as text.
    pub fn is_oid(&self) -> bool {
        matches!(self, ColumnType::Other(name) if name == "oid")
    }
}

/// A column of a sink table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub column_type: ColumnType,
    /// The sink's own name for the type, with modifiers: `numeric(10,2)`.
    pub type_name: String,
    /// Whether it may hold null.
    pub nullable: bool,
    /// Whether the sink computes it, so that it is never written.
    pub generated: bool,
    /// Whether the sink fills it when a row does not name it (a default, an identity).
    pub has_default: bool,
}

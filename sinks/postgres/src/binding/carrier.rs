//! The types in which columns travel.

/// The type of a parameter, one of PostgreSQL's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Carrier {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    TimestampTz,
}

impl Carrier {
    /// Returns the type's OID, the OID of its array and its name (`pg_type.dat`; OIDs of built-in types never change).
    fn facts(self) -> (u32, u32, &'static str) {
        match self {
            Carrier::Bool => (16, 1000, "bool"),
            Carrier::Int2 => (21, 1005, "int2"),
            Carrier::Int4 => (23, 1007, "int4"),
            Carrier::Int8 => (20, 1016, "int8"),
            Carrier::Float4 => (700, 1021, "float4"),
            Carrier::Float8 => (701, 1022, "float8"),
            Carrier::Numeric => (1700, 1231, "numeric"),
            Carrier::Text => (25, 1009, "text"),
            Carrier::Bytea => (17, 1001, "bytea"),
            Carrier::Uuid => (2950, 2951, "uuid"),
            Carrier::Date => (1082, 1182, "date"),
            Carrier::Time => (1083, 1183, "time"),
            Carrier::Timestamp => (1114, 1115, "timestamp"),
            Carrier::TimestampTz => (1184, 1185, "timestamptz"),
        }
    }

    pub(crate) fn oid(self) -> u32 {
        self.facts().0
    }

    pub(crate) fn array_oid(self) -> u32 {
        self.facts().1
    }

    /// Returns the type's name, to be used as SQL text: `pg_catalog.int8`.
    pub(crate) fn sql(self) -> String {
        format!("pg_catalog.{}", self.facts().2)
    }
}

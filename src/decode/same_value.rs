//! The rule `same-value`: a key is the same value at the source, in the stream and in the sink.
//!
//! A statement's keys are read from the source; the sink's keys came through Debezium's types and the sink's. Where one
//! of these cannot hold every value of the source's type, two keys may look like one, or one like another, and a
//! statement would remove the wrong row. So a marker names its key columns' types, with modifiers, as PostgreSQL's
//! `format_type` writes them, and each has to be held exactly:
//!
//! | source | sink column | in the stream |
//! |---|---|---|
//! | `smallint`, `integer`, `bigint` | an integer of the same or more bits; a decimal of enough digits | anything exact |
//! | `oid` | `oid`, `bigint`; a decimal of enough digits | anything exact |
//! | `numeric(p,s)` | a decimal of enough digits on both sides of the point | not `double` |
//! | `numeric` | a decimal without limits | not `double` |
//! | `text`, `varchar` | text without a limit | text |
//! | `varchar(n)`, `name` (63) | text of as many characters | text |
//! | `bytea`, `uuid`, `boolean`, `date` | the same | anything exact |
//! | `time(p)`, `timestamp(p)`, with time zone or not | the same, of as many digits | of as many digits: `connect` keeps 3 |
//!
//! Refused whatever the sink has: floating point, `char(n)`, `citext`, `time with time zone`, enums and every type that is
//! not in this table.

use sink_api::{Column, ColumnType};

use super::wire::{Unit, Wire};

/// A source type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Bool,
    /// Integers: decimal digits, bits.
    Int(u16, u8),
    Oid,
    Decimal(Option<(u16, i16)>),
    Text(Option<u32>),
    Bytes,
    Uuid,
    Date,
    Time(u8),
    Timestamp(u8),
    TimestampTz(u8),
}

/// Returns why a key column's values may differ between source and sink, if they may.
pub(super) fn differs(source_type: &str, wire: &Wire, column: &Column) -> Option<String> {
    let name = &column.name;
    let source = match parse(source_type) {
        Ok(source) => source,
        Err(reason) => return Some(format!("key column `{name}`: {reason}")),
    };
    if !holds(&column.column_type, source) {
        return Some(format!(
            "key column `{name}`: the sink's {} does not hold every value of the source's {}",
            column.type_name,
            shown(source_type)
        ));
    }
    if !carries(wire, source) {
        return Some(format!(
            "key column `{name}`: the stream's {wire} does not carry every value of the source's {}",
            shown(source_type)
        ));
    }
    None
}

/// A type's name comes from the marker: nothing of any length or content goes into a message.
fn shown(source_type: &str) -> String {
    let known = |character: &char| character.is_ascii_alphanumeric() || " _.,()\"[]-".contains(*character);
    source_type.chars().filter(known).take(64).collect()
}

/// Whether a source type is `oid`.
pub(super) fn is_oid(source_type: &str) -> bool {
    parse(source_type) == Ok(Source::Oid)
}

fn parse(source_type: &str) -> Result<Source, String> {
    let (base, modifiers, suffix) = split(source_type);
    let number = |index: usize| modifiers.get(index).and_then(|modifier| modifier.parse::<u32>().ok());
    let digits = || match (modifiers.len(), number(0)) {
        (0, _) => Ok(6),
        (1, Some(digits @ 0..=6)) => Ok(digits as u8),
        _ => Err(format!("the source's type {} has modifiers that are not known", shown(source_type))),
    };
    let plain = |source: Source| {
        if modifiers.is_empty() {
            Ok(source)
        } else {
            Err(format!("the source's type {} has modifiers that are not known", shown(source_type)))
        }
    };
    let refused = |why: &str| Err(format!("the source's type {} {why}", shown(source_type)));
    match (base.as_str(), suffix.as_str()) {
        ("boolean" | "bool", "") => plain(Source::Bool),
        ("smallint" | "int2", "") => plain(Source::Int(5, 16)),
        ("integer" | "int" | "int4", "") => plain(Source::Int(10, 32)),
        ("bigint" | "int8", "") => plain(Source::Int(19, 64)),
        ("oid", "") => plain(Source::Oid),
        ("numeric" | "decimal", "") => match modifiers.as_slice() {
            [] => Ok(Source::Decimal(None)),
            [precision] => {
                decimal(precision, "0").ok_or_else(|| format!("the source's type {} is not known", shown(source_type)))
            }
            [precision, scale] => decimal(precision, scale)
                .ok_or_else(|| format!("the source's type {} is not known", shown(source_type))),
            _ => refused("is not known"),
        },
        ("text", "") => plain(Source::Text(None)),
        ("name", "") => plain(Source::Text(Some(63))),
        ("character varying" | "varchar", "") if modifiers.is_empty() => Ok(Source::Text(None)),
        ("character varying" | "varchar", "") => match (modifiers.len(), number(0)) {
            (1, Some(length)) => Ok(Source::Text(Some(length))),
            _ => refused("has modifiers that are not known"),
        },
        ("bytea", "") => plain(Source::Bytes),
        ("uuid", "") => plain(Source::Uuid),
        ("date", "") => plain(Source::Date),
        ("time", "" | "without time zone") => digits().map(Source::Time),
        ("timestamp", "" | "without time zone") => digits().map(Source::Timestamp),
        ("timestamp", "with time zone") | ("timestamptz", "") => digits().map(Source::TimestampTz),
        ("time", "with time zone") | ("timetz", "") => refused("is no key: its offsets are lost in the stream"),
        ("real" | "double precision" | "float4" | "float8" | "float", "") => {
            refused("is floating point, which is no key")
        }
        ("character" | "char" | "bpchar", "") => refused("is padded with blanks, which is no key"),
        ("citext", "") => refused("does not tell upper from lower case, which is no key"),
        _ => refused("is not known as a key's (an enum, a domain or another type)"),
    }
}

fn decimal(precision: &str, scale: &str) -> Option<Source> {
    Some(Source::Decimal(Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))))
}

/// Takes a type's name apart: `timestamp(3) without time zone` is `timestamp`, `3` and `without time zone`.
fn split(source_type: &str) -> (String, Vec<String>, String) {
    let lower = source_type.trim().to_ascii_lowercase();
    let (head, rest) = match lower.split_once('(') {
        Some((head, rest)) => {
            let (modifiers, tail) = rest.split_once(')').unwrap_or((rest, "?"));
            let modifiers = modifiers.split(',').map(|modifier| modifier.trim().to_owned()).collect();
            return (head.trim().to_owned(), modifiers, tail.trim().to_owned());
        }
        None => match lower.find(" with") {
            Some(at) => lower.split_at(at),
            None => (lower.as_str(), ""),
        },
    };
    (head.trim().to_owned(), Vec::new(), rest.trim().to_owned())
}

/// Whether a column holds every value of a source type, each as itself.
fn holds(column: &ColumnType, source: Source) -> bool {
    match (source, column) {
        (Source::Bool, ColumnType::Bool)
        | (Source::Bytes, ColumnType::Bytes)
        | (Source::Uuid, ColumnType::Uuid)
        | (Source::Date, ColumnType::Date) => true,
        (Source::Int(_, bits), ColumnType::Int16) => bits <= 16,
        (Source::Int(_, bits), ColumnType::Int32) => bits <= 32,
        (Source::Int(_, bits), ColumnType::Int64) => bits <= 64,
        (Source::Int(digits, _), ColumnType::Decimal(limits)) => wide_enough(*limits, digits, 0),
        // Unsigned, of 32 bits: more than an integer of 32 bits holds.
        (Source::Oid, column) => column.is_oid() || holds(column, Source::Int(10, 33)),
        (Source::Decimal(None), ColumnType::Decimal(limits)) => limits.is_none(),
        (Source::Decimal(Some((precision, scale))), ColumnType::Decimal(limits)) => {
            wide_enough(*limits, precision, scale)
        }
        (Source::Text(length), ColumnType::Text(most)) => match (length, most) {
            (_, None) => true,
            (Some(length), Some(most)) => length <= *most,
            (None, Some(_)) => false,
        },
        (Source::Time(digits), ColumnType::Time(own))
        | (Source::Timestamp(digits), ColumnType::Timestamp(own))
        | (Source::TimestampTz(digits), ColumnType::TimestampTz(own)) => digits <= *own,
        _ => false,
    }
}

fn wide_enough(limits: Option<(u16, i16)>, precision: u16, scale: i16) -> bool {
    let whole = |precision: u16, scale: i16| i32::from(precision) - i32::from(scale);
    limits.is_none_or(|(own, own_scale)| own_scale >= scale && whole(own, own_scale) >= whole(precision, scale))
}

/// Whether the stream carries every value of a source type, each as itself.
fn carries(wire: &Wire, source: Source) -> bool {
    match (source, wire) {
        (_, Wire::Unknown(_)) => false,
        (Source::Decimal(_) | Source::Int(..) | Source::Oid, Wire::Float32 | Wire::Float64) => false,
        (Source::Decimal(Some((_, own))), Wire::Decimal(scale)) => *scale >= i32::from(own),
        (Source::Time(digits), Wire::Time(unit)) | (Source::Timestamp(digits), Wire::Timestamp(unit)) => {
            digits <= 3 || *unit != Unit::Millis
        }
        _ => true,
    }
}

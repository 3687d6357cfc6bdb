//! Tables and keys in Debezium's words: what stands in an `execute-snapshot` signal.

use regex::Regex;
use sink_api::{Key, KeyType, KeyValue, TableShape};

/// Writes a table's name as Debezium finds the table. It takes it as a regular expression first, and as an identifier if
/// that matches no table; the name that it found it parses again, and that fails for one with other characters than these.
/// So such a name stands in quotes and matches nothing, unless it is no regular expression at all.
pub(super) fn identifier(source: &str) -> String {
    let is_plain = |part: &str| part.chars().all(|character| character.is_alphanumeric() || character == '_');
    let parts = source.split_once('.').map_or(vec![source], |(schema, table)| vec![schema, table]);
    if parts.iter().all(|part| is_plain(part)) {
        return source.to_owned();
    }
    let quoted = parts.iter().map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    let quoted = quoted.collect::<Vec<_>>().join(".");
    if Regex::new(&quoted).is_ok() { quoted } else { pattern(source) }
}

/// Writes a table's name as a regular expression. A dot stays, for people: it also means itself.
pub(super) fn pattern(source: &str) -> String {
    let mut escaped = String::with_capacity(source.len());
    for character in source.chars() {
        if r"\^$*+?()[]{}|".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Writes `"a" IN (1, 2)`, or for a composite key `("a", "b") IN ((1, 'x'), ...)`.
pub(super) fn filter(table: &TableShape, types: &[KeyType], keys: &[Key]) -> Option<String> {
    let names: Vec<String> = table
        .key
        .iter()
        .map(|column| format!("\"{}\"", table.columns[column.column].name.replace('"', "\"\"")))
        .collect();
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        let values: Vec<String> = key.decode(types).ok()?.iter().map(literal).collect::<Option<_>>()?;
        rows.push(parenthesised(&values));
    }
    Some(format!("{} IN ({})", parenthesised(&names), rows.join(", ")))
}

fn parenthesised(items: &[String]) -> String {
    match items {
        [one] => one.clone(),
        several => format!("({})", several.join(", ")),
    }
}

/// Writes a value as a PostgreSQL literal. Quotes are doubled; backslashes mean themselves
/// (`standard_conforming_strings`, on by default since PostgreSQL 9.1).
fn literal(value: &KeyValue) -> Option<String> {
    Some(match value {
        KeyValue::Bool(value) => value.to_string(),
        KeyValue::Int(value) => value.to_string(),
        KeyValue::UInt(value) => value.to_string(),
        KeyValue::Decimal(value) => format!("'{value}'::numeric"),
        KeyValue::Text(text) => format!("'{}'", text.replace('\'', "''")),
        KeyValue::Bytes(bytes) => format!("'\\x{}'::bytea", hex::encode(bytes)),
        KeyValue::Uuid(bytes) => format!("'{}'::uuid", uuid::Uuid::from_bytes(*bytes)),
        KeyValue::Date(i32::MAX) => "'infinity'::date".to_owned(),
        KeyValue::Date(i32::MIN) => "'-infinity'::date".to_owned(),
        KeyValue::Date(days) => format!("'epoch'::date + {days}"),
        KeyValue::Time(micros) => format!("'00:00'::time + {micros} * interval '1 microsecond'"),
        KeyValue::Timestamp(i64::MAX) => "'infinity'::timestamp".to_owned(),
        KeyValue::Timestamp(i64::MIN) => "'-infinity'::timestamp".to_owned(),
        KeyValue::TimestampTz(i64::MAX) => "'infinity'::timestamptz".to_owned(),
        KeyValue::TimestampTz(i64::MIN) => "'-infinity'::timestamptz".to_owned(),
        KeyValue::Timestamp(micros) => format!("'epoch'::timestamp + {micros} * interval '1 microsecond'"),
        KeyValue::TimestampTz(micros) => {
            format!("'1970-01-01 00:00:00+00'::timestamptz + {micros} * interval '1 microsecond'")
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use super::*;

    #[test]
    fn a_table_of_any_name_is_asked_for_by_a_pattern_that_means_it() {
        assert_eq!(pattern("inventory.orders"), "inventory.orders");
        assert_eq!(pattern(r#"inv."a" (b+c)$[1]{2}|^\d?*"#), r#"inv."a" \(b\+c\)\$\[1\]\{2\}\|\^\\d\?\*"#);
        assert_eq!(identifier("inventory.orders_é"), "inventory.orders_é");
        assert_eq!(identifier(r#"inventory.Odd "x" (1+x)."#), r#""inventory"."Odd ""x"" (1+x).""#);
        assert_eq!(identifier("inventory.a(b"), r"inventory.a\(b", "Debezium would fail over it as it stands");
    }

    #[test]
    fn keys_are_written_as_literals_that_mean_them() {
        let written = |value| literal(&value).unwrap_or_default();

        assert_eq!(written(KeyValue::Text(r"it's a \ back".into())), r"'it''s a \ back'");
        assert_eq!(written(KeyValue::Bytes([0, 255].into())), r"'\x00ff'::bytea");
        assert_eq!(written(KeyValue::Date(19_782)), "'epoch'::date + 19782");
        assert_eq!(written(KeyValue::Date(i32::MAX)), "'infinity'::date");
        assert_eq!(written(KeyValue::TimestampTz(i64::MIN)), "'-infinity'::timestamptz");
    }
}

//! Columns: from PostgreSQL's types to the worker's, and how each travels.
//!
//! A domain counts as its base type, with the modifier that the domain gives it.

use sink_api::{Column, ColumnType, SinkError, TableName};
use sqlx::{Row, postgres::PgRow};

use super::relation::{Relation, oid_argument, refuse, regclass};
use crate::{
    binding::Carrier,
    connect::Session,
    errors::classify,
    identifier::{qualified, quote_identifier, quote_table},
    table::TableColumn,
};

/// A column as the catalog has it.
pub(super) struct CatalogColumn {
    pub(super) shape: Column,
    pub(super) traveling: TableColumn,
    /// Its number in the table.
    pub(super) number: i16,
    /// The base type.
    pub(super) base: BaseType,
    /// Whether only the server makes its values, unless it is told otherwise.
    pub(super) identity_always: bool,
}

/// A type below all domains.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BaseType {
    pub(super) schema: String,
    pub(super) name: String,
    /// `pg_type.typtype`.
    pub(super) kind: String,
    /// Its modifier, -1 for none.
    pub(super) modifier: i32,
}

impl BaseType {
    /// Returns the name of a type that PostgreSQL itself brings; empty for others.
    pub(super) fn builtin(&self) -> &str {
        if self.schema == "pg_catalog" { &self.name } else { "" }
    }
}

pub(super) async fn read(
    session: &mut Session,
    name: &TableName,
    relation: &Relation,
) -> Result<Vec<CatalogColumn>, SinkError> {
    let doing = format!("describe {name}");
    let rows = session.own_all(COLUMNS, oid_argument(relation)).await.map_err(|error| classify(&doing, &error))?;
    rows.iter()
        .map(|row| column(row).map_err(|error| classify(&doing, &error)))
        .map(|column| column.and_then(|column| check(name, column)))
        .collect()
}

/// Refuses what would be changed in silence, or cannot be written.
fn check(name: &TableName, column: CatalogColumn) -> Result<CatalogColumn, SinkError> {
    let (table, quoted) = (quote_table(name), &column.traveling.sql);
    if column.base.builtin() == "interval" && column.base.modifier != -1 {
        return Err(refuse(
            name,
            &format!(
                "has a column {quoted} of type {}, which drops parts of an interval in silence",
                column.shape.type_name
            ),
            &format!("ALTER TABLE {table} ALTER COLUMN {quoted} TYPE interval"),
        ));
    }
    if column.base.kind == "p" {
        return Err(refuse(
            name,
            &format!("has a column {quoted} of a pseudo-type"),
            &format!("see the columns of {}", regclass(name)),
        ));
    }
    Ok(column)
}

fn column(row: &PgRow) -> Result<CatalogColumn, sqlx::Error> {
    let name: String = row.try_get("name")?;
    let base = BaseType {
        schema: row.try_get("base_schema")?,
        name: row.try_get("base_name")?,
        kind: row.try_get("base_kind")?,
        modifier: row.try_get("modifier")?,
    };
    let element: Option<String> = row.try_get("element_name")?;
    let type_name: String = row.try_get("type_name")?;
    let money_digits = i16::try_from(row.try_get::<i32, _>("money_digits")?).unwrap_or(2);
    let identity: String = row.try_get("identity")?;

    let column_type = match element {
        Some(element_name) => {
            let element = BaseType {
                schema: row.try_get("element_schema")?,
                name: element_name,
                kind: row.try_get("element_kind")?,
                // An array column's modifier is its elements'; a domain as element brings its own.
                modifier: if base.modifier == -1 { row.try_get("element_modifier")? } else { base.modifier },
            };
            ColumnType::Array(Box::new(column_type(&element, money_digits, &row.try_get::<String, _>("element_text")?)))
        }
        None => column_type(&base, money_digits, &row.try_get::<String, _>("base_text")?),
    };
    let delimiter: Option<String> = row.try_get("delimiter")?;
    let (carrier, cast) = travel(&base, matches!(column_type, ColumnType::Array(_)));
    Ok(CatalogColumn {
        traveling: TableColumn {
            sql: quote_identifier(&name),
            carrier,
            text_cast: match base.builtin() {
                "text" | "varchar" => String::new(),
                "money" => cast_to("numeric") + &cast,
                "bit" => cast_to("varbit"),
                _ => format!("::{}", qualified(&base.schema, &base.name)),
            },
            to_text: if base.builtin() == "money" { cast_to("numeric") + "::pg_catalog.text" } else { cast_to("text") },
            cast,
            most_bytes: match base.builtin() {
                "name" => Some(63),
                "char" => Some(1),
                _ => None,
            },
            delimiter: delimiter.and_then(|text| text.bytes().next()).unwrap_or(b','),
            is_key: false,
        },
        shape: Column {
            name,
            column_type,
            type_name,
            nullable: row.try_get("nullable")?,
            generated: row.try_get("generated")?,
            has_default: row.try_get::<bool, _>("has_default")? || !identity.is_empty(),
        },
        number: row.try_get("number")?,
        base,
        identity_always: identity == "a",
    })
}

fn cast_to(builtin: &str) -> String {
    format!("::pg_catalog.{builtin}")
}

/// Returns the parameter's type, and the cast from it to the column's base type.
fn travel(base: &BaseType, array: bool) -> (Carrier, String) {
    let carrier = match base.builtin() {
        _ if array => Carrier::Text,
        "bool" => Carrier::Bool,
        "int2" => Carrier::Int2,
        "int4" => Carrier::Int4,
        "int8" => Carrier::Int8,
        "float4" => Carrier::Float4,
        "float8" => Carrier::Float8,
        "numeric" => Carrier::Numeric,
        "money" => return (Carrier::Numeric, cast_to("money")),
        "bytea" => Carrier::Bytea,
        "uuid" => Carrier::Uuid,
        "date" => Carrier::Date,
        "time" => Carrier::Time,
        "timestamp" => Carrier::Timestamp,
        "timestamptz" => Carrier::TimestampTz,
        "text" | "varchar" => return (Carrier::Text, String::new()),
        // A cast to `bit` would cut to one bit; the assignment from `varbit` checks the length.
        "bit" => return (Carrier::Text, cast_to("varbit")),
        _ => Carrier::Text,
    };
    let cast = match carrier {
        Carrier::Text => format!("::{}", qualified(&base.schema, &base.name)),
        _ => String::new(),
    };
    (carrier, cast)
}

/// Returns the worker's type for a base type; `text` is PostgreSQL's own name of it, without modifier.
fn column_type(base: &BaseType, money_digits: i16, text: &str) -> ColumnType {
    let modifier = u32::try_from(base.modifier).ok();
    // Of types whose modifier counts the four bytes of a length word.
    let length = || modifier.and_then(|modifier| modifier.checked_sub(4));
    let digits = || modifier.and_then(|digits| u8::try_from(digits).ok()).unwrap_or(6);
    match base.builtin() {
        "bool" => ColumnType::Bool,
        "int2" => ColumnType::Int16,
        "int4" => ColumnType::Int32,
        "int8" => ColumnType::Int64,
        "float4" => ColumnType::Float32,
        "float8" => ColumnType::Float64,
        "numeric" => ColumnType::Decimal(length().map(numeric_modifier)),
        "money" => ColumnType::Money(money_digits),
        "text" => ColumnType::Text(None),
        "varchar" => ColumnType::Text(length()),
        "bpchar" => length().map_or_else(|| ColumnType::Other(text.to_owned()), ColumnType::Char),
        "bytea" => ColumnType::Bytes,
        "uuid" => ColumnType::Uuid,
        "date" => ColumnType::Date,
        "time" => ColumnType::Time(digits()),
        "timetz" => ColumnType::TimeTz(digits()),
        "timestamp" => ColumnType::Timestamp(digits()),
        "timestamptz" => ColumnType::TimestampTz(digits()),
        "interval" => ColumnType::Interval,
        "json" => ColumnType::Json(false),
        "jsonb" => ColumnType::Json(true),
        "bit" => modifier.map_or(ColumnType::VarBit(None), ColumnType::Bit),
        "varbit" => ColumnType::VarBit(modifier),
        "point" => ColumnType::Point,
        _ if base.name == "hstore" => ColumnType::Map,
        _ => ColumnType::Other(text.to_owned()),
    }
}

/// Splits the modifier of `numeric`, its four bytes of length taken off: precision in the upper half, scale in the lower
/// eleven bits, signed (`numeric.c`, `make_numeric_typmod`).
fn numeric_modifier(modifier: u32) -> (u16, i16) {
    let scale = ((modifier & 0x7ff) ^ 0x400) as i16 - 0x400;
    ((modifier >> 16) as u16, scale)
}

const COLUMNS: &str = "
SELECT
    a.attnum AS number,
    a.attname::text AS name,
    format_type(a.atttypid, a.atttypmod) AS type_name,
    NOT (a.attnotnull OR base.not_null) AS nullable,
    a.attgenerated <> '' AS generated,
    a.atthasdef AND a.attgenerated = '' AS has_default,
    a.attidentity::text AS identity,
    base.modifier AS modifier,
    bn.nspname::text AS base_schema,
    bt.typname::text AS base_name,
    bt.typtype::text AS base_kind,
    format_type(bt.oid, NULL) AS base_text,
    en.nspname::text AS element_schema,
    et.typname::text AS element_name,
    et.typtype::text AS element_kind,
    element.modifier AS element_modifier,
    format_type(et.oid, NULL) AS element_text,
    listed.typdelim::text AS delimiter,
    scale((1::money)::numeric) AS money_digits
FROM pg_attribute a
CROSS JOIN LATERAL (
    WITH RECURSIVE step (oid, modifier, not_null, depth) AS (
        SELECT a.atttypid, a.atttypmod, false, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, step.not_null OR t.typnotnull, step.depth + 1
        FROM step JOIN pg_type t ON t.oid = step.oid
        WHERE t.typtype = 'd'
    )
    SELECT oid, modifier, not_null FROM step ORDER BY depth DESC LIMIT 1
) base
JOIN pg_type bt ON bt.oid = base.oid
JOIN pg_namespace bn ON bn.oid = bt.typnamespace
LEFT JOIN pg_type listed ON listed.oid = bt.typelem AND listed.typarray = bt.oid
LEFT JOIN LATERAL (
    WITH RECURSIVE step (oid, modifier, depth) AS (
        SELECT listed.oid, -1, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, step.depth + 1
        FROM step JOIN pg_type t ON t.oid = step.oid
        WHERE t.typtype = 'd'
    )
    SELECT oid, modifier FROM step ORDER BY depth DESC LIMIT 1
) element ON listed.oid IS NOT NULL
LEFT JOIN pg_type et ON et.oid = element.oid
LEFT JOIN pg_namespace en ON en.oid = et.typnamespace
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum";

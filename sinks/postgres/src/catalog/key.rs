//! The primary key: how its columns are encoded, and whether an index lists them in the encoding's order.
//!
//! Text has that order under a collation that compares bytes. Where the key's own index has another one, a second index
//! on the same columns under byte order serves: then ranges are asked for with its collation.

use std::collections::BTreeMap;

use sink_api::{KeyColumn, KeyType, NotNative, SinkError, TableName};
use sqlx::{Row, postgres::PgRow};

use super::{
    columns::CatalogColumn,
    relation::{Relation, oid_argument},
};
use crate::{
    connect::Session,
    errors::classify,
    identifier::{qualified, quote_table},
};

/// A column of the primary key.
pub(super) struct CatalogKey {
    pub(super) shape: KeyColumn,
    /// The collation that gives it the encoding's order, if its own does not.
    pub(super) collate: String,
    /// What turns it into the form in which it is listed.
    pub(super) listed: String,
}

/// A column of an index.
struct IndexColumn {
    number: i16,
    /// The collation's name as SQL text; empty for a type without one.
    collation: String,
    /// The collation's name as an operator knows it.
    collation_name: String,
    byte_ordered: bool,
    deterministic: bool,
    plain: bool,
}

pub(super) async fn read(
    session: &mut Session,
    name: &TableName,
    relation: &Relation,
    columns: &[CatalogColumn],
) -> Result<Vec<CatalogKey>, SinkError> {
    let doing = format!("describe {name}");
    let rows = session.own_all(INDEXES, oid_argument(relation)).await.map_err(|error| classify(&doing, &error))?;
    let mut indexes: BTreeMap<(bool, i64), Vec<IndexColumn>> = BTreeMap::new();
    for row in &rows {
        let (index, column) = index_column(row).map_err(|error| classify(&doing, &error))?;
        indexes.entry(index).or_default().push(column);
    }
    // `false` sorts first: the primary key's index is the first one.
    let mut indexes = indexes.into_values();
    let primary = indexes.next().unwrap_or_default();
    let second = indexes.find(|index| {
        index.len() >= primary.len()
            && index
                .iter()
                .zip(&primary)
                .all(|(column, key)| column.number == key.number && column.plain && column.byte_ordered)
    });
    Ok(primary
        .iter()
        .enumerate()
        .filter_map(|(at, key)| {
            let column = columns.iter().position(|column| column.number == key.number)?;
            let (key_type, listed) = match key_type(key, &columns[column]) {
                Ok((key_type, listed)) => (Ok(key_type), listed),
                Err(reason) => (Err(reason), String::new()),
            };
            let (order, collate) = order(name, relation, columns, &primary, at, second.as_deref());
            Some(CatalogKey { shape: KeyColumn { column, key_type, order }, collate, listed })
        })
        .collect())
}

/// Returns how a key column's values are encoded and in which form they are listed, or why they cannot be a key.
fn key_type(key: &IndexColumn, column: &CatalogColumn) -> Result<(KeyType, String), NotNative> {
    let name = &column.shape.name;
    let type_name = &column.shape.type_name;
    let as_is = |key_type, base: &str| Ok((key_type, format!("::pg_catalog.{base}")));
    let refuse = |reason: String, hint: &str| Err(NotNative { reason, hint: Some(hint.to_owned()) });
    match column.base.builtin() {
        base @ ("text" | "varchar") if !key.deterministic => refuse(
            format!(
                "{base} key \"{name}\" under collation \"{}\", which takes different texts for equal",
                key.collation_name
            ),
            "give the column a deterministic collation",
        ),
        "bool" => as_is(KeyType::Bool, "bool"),
        base @ ("int2" | "int4" | "int8") => as_is(KeyType::Int, base),
        "oid" => as_is(KeyType::UInt, "text"),
        "numeric" => as_is(KeyType::Decimal, "text"),
        "text" | "varchar" => as_is(KeyType::Text, "text"),
        "bytea" => as_is(KeyType::Bytes, "bytea"),
        "uuid" => as_is(KeyType::Uuid, "uuid"),
        "date" => as_is(KeyType::Date, "date"),
        "time" => as_is(KeyType::Time, "time"),
        "timestamp" => as_is(KeyType::Timestamp, "timestamp"),
        "timestamptz" => as_is(KeyType::TimestampTz, "timestamptz"),
        "bpchar" => refuse(
            format!("{type_name} key \"{name}\": blanks at its end count or not, depending on who compares"),
            "make the column text at source and sink",
        ),
        "float4" | "float8" => refuse(
            format!("floating point key \"{name}\": equal numbers have several forms"),
            "make the column numeric at source and sink",
        ),
        _ if column.base.kind == "e" => as_is(KeyType::Text, "text"),
        _ => refuse(
            format!("key \"{name}\" of type {type_name}, whose values have no encoding"),
            "keys are booleans, integers, numeric, text, bytea, uuid, enums, dates and times",
        ),
    }
}

/// Returns whether an index lists the key column in the encoding's order, and with which collation.
fn order(
    name: &TableName,
    relation: &Relation,
    columns: &[CatalogColumn],
    primary: &[IndexColumn],
    at: usize,
    second: Option<&[IndexColumn]>,
) -> (Result<(), NotNative>, String) {
    let key = &primary[at];
    let Some(column) = columns.iter().find(|column| column.number == key.number) else {
        return (Err(NotNative { reason: "a key column is gone".into(), hint: None }), String::new());
    };
    let column_name = &column.shape.name;
    if column.base.kind == "e" {
        let reason = format!("enum key \"{column_name}\", whose order is that of its declaration");
        let hint = Some("statements by keys work; for ranges make the column text COLLATE \"C\"".to_owned());
        return (Err(NotNative { reason, hint }), String::new());
    }
    if !matches!(column.base.builtin(), "text" | "varchar") {
        let plain = if key.plain {
            Ok(())
        } else {
            let reason = format!("key \"{column_name}\", whose index has an order of its own");
            Err(NotNative { reason, hint: Some("make the primary key with the default order".into()) })
        };
        // Next to text under another collation the second index is walked, whose other columns are in order as well.
        return (plain, String::new());
    }
    if !relation.utf8 {
        let reason = format!("text key \"{column_name}\" in a database whose encoding is not UTF8");
        return (
            Err(NotNative { reason, hint: Some("move the sink to a database with encoding UTF8".into()) }),
            String::new(),
        );
    }
    // One index must serve all columns: the second one only when the first does not.
    if primary.iter().all(|column| column.byte_ordered && column.plain) {
        return (Ok(()), String::new());
    }
    match second {
        Some(index) => (Ok(()), format!(" COLLATE {}", index[at].collation)),
        None if key.byte_ordered => (Ok(()), String::new()),
        None => {
            let reason = format!(
                "text key \"{column_name}\" of {name} under collation \"{}\", whose order is not that of bytes",
                key.collation_name
            );
            (Err(NotNative { reason, hint: Some(index_statement(name, relation, columns, primary)) }), String::new())
        }
    }
}

/// Returns the statement that makes an index under byte order.
fn index_statement(
    name: &TableName,
    relation: &Relation,
    columns: &[CatalogColumn],
    primary: &[IndexColumn],
) -> String {
    let listed: Vec<String> = primary
        .iter()
        .filter_map(|key| columns.iter().find(|column| column.number == key.number))
        .map(|column| match column.base.builtin() {
            "text" | "varchar" => format!("{} COLLATE \"C\"", column.traveling.sql),
            _ => column.traveling.sql.clone(),
        })
        .collect();
    // An index on a partitioned table cannot be built concurrently.
    let concurrently = if relation.partitioned { "" } else { "CONCURRENTLY " };
    format!("CREATE INDEX {concurrently}ON {} ({})", quote_table(name), listed.join(", "))
}

fn index_column(row: &PgRow) -> Result<((bool, i64), IndexColumn), sqlx::Error> {
    let text = |column: &str| row.try_get::<Option<String>, _>(column);
    let (provider, collate, locale) = if text("provider")?.as_deref() == Some("d") {
        // Before PostgreSQL 15 databases have no other provider than libc.
        (text("database_provider")?.or(Some("c".into())), text("database_collate")?, text("database_locale")?)
    } else {
        (text("provider")?, text("collate")?, text("locale")?)
    };
    let named = match provider.as_deref() {
        Some("i") => locale.as_deref().or(collate.as_deref()),
        _ => collate.as_deref().or(locale.as_deref()),
    };
    let collation = match text("collation_name")? {
        Some(name) => qualified(&text("collation_schema")?.unwrap_or_default(), &name),
        None => String::new(),
    };
    Ok((
        (!row.try_get::<bool, _>("primary")?, row.try_get("index")?),
        IndexColumn {
            number: row.try_get("number")?,
            collation_name: match text("collation_name")?.as_deref() {
                Some("default") => named.unwrap_or("default").to_owned(),
                name => name.unwrap_or_default().to_owned(),
            },
            byte_ordered: collation.is_empty() || is_byte_order(provider.as_deref(), collate.as_deref()),
            collation,
            deterministic: row.try_get("deterministic")?,
            plain: row.try_get("plain")?,
        },
    ))
}

/// Whether a collation compares the bytes of UTF-8: the builtin provider's all do, of libc's the `C` family.
fn is_byte_order(provider: Option<&str>, collate: Option<&str>) -> bool {
    match provider {
        Some("b") => true,
        Some("c") => {
            let collate = collate.unwrap_or_default().to_ascii_lowercase().replace('-', "");
            matches!(collate.as_str(), "c" | "posix" | "c.utf8")
        }
        _ => false,
    }
}

/// The columns of the primary key's index and of every other index that could list the whole table. The catalogs'
/// columns for locales were renamed twice; their JSON form has whatever is there.
const INDEXES: &str = "
SELECT
    i.indisprimary AS primary,
    i.indexrelid::int8 AS index,
    coalesce(k.number, 0::int2) AS number,
    cn.nspname::text AS collation_schema,
    co.collname::text AS collation_name,
    co.collprovider::text AS provider,
    to_jsonb(co) ->> 'collcollate' AS collate,
    coalesce(to_jsonb(co) ->> 'colllocale', to_jsonb(co) ->> 'colliculocale') AS locale,
    to_jsonb(d) ->> 'datlocprovider' AS database_provider,
    to_jsonb(d) ->> 'datcollate' AS database_collate,
    coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale') AS database_locale,
    coalesce(co.collisdeterministic, true) AS deterministic,
    (i.indoption[k.ord - 1] & 1) = 0 AND op.opcdefault AS plain
FROM pg_index i
JOIN pg_class ic ON ic.oid = i.indexrelid
JOIN pg_am am ON am.oid = ic.relam AND am.amname = 'btree'
JOIN pg_database d ON d.datname = current_database()
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (number, ord)
JOIN pg_opclass op ON op.oid = i.indclass[k.ord - 1]
LEFT JOIN pg_collation co ON co.oid = i.indcollation[k.ord - 1]
LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE i.indrelid = $1::oid AND k.ord <= i.indnkeyatts AND i.indisvalid AND i.indisready AND i.indpred IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid, k.ord";

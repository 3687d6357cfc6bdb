//! What an operator writes: templates, assignments, modes.

use sink_api::TableName;

use crate::decode::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, SourceTable, TableMapping, TimeMode};

fn source() -> SourceTable {
    SourceTable {
        connector: "shop".to_owned(),
        database: "db".to_owned(),
        schema: "odd.schema".to_owned(),
        table: "orders".to_owned(),
    }
}

#[test]
fn a_template_names_the_sink_table() {
    for (template, schema, name) in [
        ("{schema}.{table}", "odd.schema", "orders"),
        ("public.{schema}_{table}", "public", "odd.schema_orders"),
        ("{connector}.{database}-{table}-copy", "shop", "db-orders-copy"),
        ("archive.orders", "archive", "orders"),
    ] {
        let mapping = TableMapping::parse(template).unwrap();

        assert_eq!(mapping.sink_table(&source()), Ok(TableName::new(schema, name)), "{template}");
    }
}

#[test]
fn a_template_that_is_none_is_refused_with_what_to_write() {
    let dots = "write the sink's schema, a dot and the table: {schema}.{table} or public.{schema}_{table}";
    for (template, reason, hint) in [
        ("{table}", "it has 0 dots outside of placeholders, not one", dots),
        ("a.b.{table}", "it has 2 dots outside of placeholders, not one", dots),
        ("", "it has 0 dots outside of placeholders, not one", dots),
        (".{table}", "the schema or the table is empty", dots),
        (
            "{schema.table}",
            "the placeholder {schema.table} is not known",
            "the placeholders are {connector}, {database}, {schema} and {table}",
        ),
        (
            "{schema}.{tabel}",
            "the placeholder {tabel} is not known",
            "the placeholders are {connector}, {database}, {schema} and {table}",
        ),
        ("{schema}.{table", "a placeholder is not closed", "write {table}"),
        ("{schema}.table}", "a `}` has no `{`", "write {table}"),
    ] {
        let error = TableMapping::parse(template).unwrap_err();

        assert_eq!((error.reason, &*error.hint), (format!("sink table template `{template}`: {reason}"), hint));
    }
}

#[test]
fn a_template_that_needs_what_records_do_not_say_is_refused_when_one_comes() {
    let mapping = TableMapping::parse("{database}.{table}").unwrap();

    let error = mapping.sink_table(&SourceTable { database: String::new(), ..source() }).unwrap_err();

    assert_eq!(
        error.reason,
        "sink table template `{database}.{table}` needs the database of source table odd.schema.orders, which its records do not say"
    );
    assert_eq!(error.hint, "write the database into the template in place of {database}");
}

#[test]
fn a_topic_has_one_source_table() {
    let mut mapping = TableMapping::default();
    let orders = TableName::new("inventory", "orders");

    mapping.assign("shop-orders", &orders).unwrap();
    let twice = mapping.assign("shop-orders", &orders).unwrap_err();

    assert_eq!(mapping.assigned("shop-orders"), Some(("inventory", "orders")));
    assert_eq!(twice.reason, "topic `shop-orders` has two source tables");
}

#[test]
fn modes_have_debeziums_names_and_defaults() {
    assert_eq!(
        "precise string double".split(' ').map(|name| name.parse().unwrap()).collect::<Vec<DecimalMode>>(),
        DecimalMode::ALL
    );
    let times = "adaptive adaptive_time_microseconds connect microseconds nanoseconds isostring";
    assert_eq!(times.split(' ').map(|name| name.parse().unwrap()).collect::<Vec<TimeMode>>(), TimeMode::ALL);
    let binaries = "bytes base64 base64-url-safe hex";
    assert_eq!(binaries.split(' ').map(|name| name.parse().unwrap()).collect::<Vec<BinaryMode>>(), BinaryMode::ALL);
    assert_eq!((IntervalMode::default().as_str(), HstoreMode::default().as_str()), ("numeric", "json"));
    assert_eq!((DecimalMode::default().as_str(), TimeMode::default().as_str()), ("precise", "adaptive"));

    let error = "Precise".parse::<DecimalMode>().unwrap_err();

    assert_eq!(error.to_string(), "decimal.handling.mode is one of precise, string, double, not `Precise`");
}

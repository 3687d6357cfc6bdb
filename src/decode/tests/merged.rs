//! Topics by which several tables come, and keys of several columns: what must not be put down to the wrong row.

use std::sync::Arc;

use sink_api::{Rule, SourceName, TableName, TableShape};

use super::{decode, decode_one, decoder, markers::envelope, record, shape};
use crate::decode::{BadRecord, DecodeError, DecodeSettings, Decoder, Event, Stage, TableMapping};

const TOPIC: &str = "shop.inv.orders";

fn shapes() -> Vec<Arc<TableShape>> {
    ["inv.orders", "inv.lines"].map(|name| shape(name, &[("id", "bigint"), ("v", "text")], &["id"])).into()
}

fn change(table: &str, op: &str, id: i64) -> String {
    let after = if op == "d" { "null".to_owned() } else { format!(r#"{{"id":{id},"v":"x"}}"#) };
    format!(
        r#"{{"before":null,"after":{after},"op":"{op}","source":{{"name":"shop","db":"app","schema":"inv","table":"{table}","txId":7}}}}"#
    )
}

fn table_of(event: &Event) -> &str {
    match event {
        Event::Row(row) => &row.table.name.name,
        event => panic!("{event:?}"),
    }
}

fn carrying(sources: &[&str]) -> Decoder {
    let noted = |source: &&str| {
        let (schema, table) = source.split_once('.').unwrap();
        (SourceName::of_table(*source), TableName::new(schema, table))
    };
    let sources = sources.iter().map(noted).collect();
    decoder(DecodeSettings::default(), TOPIC, &shapes()).carrying(sources)
}

fn tombstone(decoder: &mut Decoder, key: &str, headers: &[(&str, &str)]) -> Result<String, String> {
    let record = record(Some(key), None, headers);
    // A lane decodes a record again when it has looked at a table anew.
    let first = decoder.decode(&record);
    assert_eq!(decoder.decode(&record), first, "decoding changes nothing");
    match first {
        Ok(event) => Ok(table_of(&event).to_owned()),
        Err(DecodeError::Bad(bad)) => Err(bad.reason),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_tombstone_is_of_the_table_whose_delete_it_follows() {
    let mut decoder = carrying(&["inv.orders", "inv.lines"]);
    decode(&mut decoder, &record(Some(r#"{"id":2}"#), Some(&change("lines", "d", 2)), &[]));

    assert_eq!(tombstone(&mut decoder, r#"{"id":2}"#, &[]), Ok("lines".to_owned()));
}

/// As after a restart between a delete and its tombstone, where the delete is not read again.
#[test]
fn a_tombstone_without_its_delete_is_of_the_topics_table_only_where_no_other_comes_by_the_topic() {
    let alone = tombstone(&mut carrying(&["inv.orders"]), r#"{"id":2}"#, &[]);
    let beside = tombstone(&mut carrying(&["inv.lines", "inv.orders"]), r#"{"id":2}"#, &[]);
    let mut met = carrying(&[]);
    for table in ["orders", "lines"] {
        decode(&mut met, &record(Some(r#"{"id":1}"#), Some(&change(table, "c", 1)), &[]));
    }
    let met = tombstone(&mut met, r#"{"id":2}"#, &[]);

    assert_eq!(alone, Ok("orders".to_owned()));
    for refused in [beside, met] {
        assert!(refused.as_ref().is_err_and(|reason| reason.contains("does not say its table")), "{refused:?}");
    }
}

/// Two connectors, or two tables, whose deletes of one key stand between each other's tombstones.
#[test]
fn a_tombstone_takes_no_row_that_was_written_after_its_delete() {
    let mut decoder = carrying(&["inv.orders", "inv.lines"]);
    let key = r#"{"id":2}"#;
    let put = |decoder: &mut Decoder, table: &str, op: &str| {
        decode(decoder, &record(Some(key), Some(&change(table, op, 2)), &[]));
    };
    put(&mut decoder, "orders", "d");
    put(&mut decoder, "lines", "d");
    assert_eq!(tombstone(&mut decoder, key, &[]), Ok("lines".to_owned()));
    put(&mut decoder, "lines", "c");

    assert_eq!(tombstone(&mut decoder, key, &[]), Ok("orders".to_owned()));
    put(&mut decoder, "orders", "c");
    assert!(tombstone(&mut decoder, key, &[]).is_err(), "both live");
}

/// Its record may have been the delete of another table: of one that nobody has met yet, too.
#[test]
fn a_tombstone_after_a_record_that_could_not_be_read_is_nobodys() {
    let key = r#"{"id":2}"#;
    let alone = |value: Option<&str>| {
        let mut decoder = carrying(&["inv.orders"]);
        decode(&mut decoder, &record(Some(key), Some(&change("orders", "d", 2)), &[]));
        decode(&mut decoder, &record(Some(key), Some(&change("orders", "c", 2)), &[]));
        match value {
            Some(value) => {
                let bad = record(Some(key), Some(value), &[]);
                let Err(DecodeError::Bad(reason)) = decoder.decode(&bad) else { panic!("it is bad") };
                decoder.unread(&bad, &reason);
            }
            None => {
                let reason = "the sink refuses it".to_owned();
                let bad = BadRecord {
                    stage: Stage::TaskPut,
                    table: Some("inv.orders".into()),
                    feed: None,
                    key: None,
                    reason,
                };
                decoder.unread(&record(Some(key), Some("{}"), &[]), &bad);
            }
        }
        tombstone(&mut decoder, key, &[])
    };

    assert!(alone(Some(r#"{"before":{"id":2},"aft"#)).is_err());
    let wrong = change("lines", "d", 2).replace("\"app\"", "7").replace("\"op\":\"d\"", "\"op\":\"z\"");
    assert!(alone(Some(&wrong)).is_err());
    assert!(alone(None).is_err(), "nor after one that a lane gave up");
}

#[test]
fn a_tombstone_of_two_connectors_tables_of_one_name_is_nobodys() {
    let mut decoder = carrying(&["inv.orders"]);
    let of = |name: &str, op: &str, id| change("orders", op, id).replace("\"shop\"", &format!("\"{name}\""));
    for (name, id) in [("shop", 1), ("outlet", 3)] {
        let key = format!(r#"{{"id":{id}}}"#);
        decode(&mut decoder, &record(Some(&key), Some(&of(name, "c", id)), &[]));
    }

    assert!(tombstone(&mut decoder, r#"{"id":2}"#, &[]).is_err());
}

/// Returns a key of one number, with a schema.
fn key_of(schema_name: &str, id: i64) -> String {
    format!(
        r#"{{"schema":{{"type":"struct","fields":[{{"type":"int64","optional":false,"field":"id"}}],"optional":false,"name":"{schema_name}.Key"}},"payload":{{"id":{id}}}}}"#
    )
}

/// Two connectors that capture tables of one name, each into a sink table of its own.
fn two_connectors(topic: &str) -> Decoder {
    let mapping = TableMapping::parse("{schema}.{connector}_{table}").unwrap();
    let settings = DecodeSettings { mapping, ..DecodeSettings::default() };
    let shapes =
        ["inv.c1_orders", "inv.c2_orders"].map(|name| shape(name, &[("id", "bigint"), ("v", "text")], &["id"]));
    decoder(settings, topic, &shapes)
}

fn of_connector(name: &str, op: &str, id: i64) -> String {
    change("orders", op, id).replace("\"shop\"", &format!("\"{name}\""))
}

/// Debezium names the connector in the key's schema, and (3.6) in a header.
#[test]
fn a_tombstone_is_of_the_connector_that_it_names() {
    let context = "__debezium.context.connectorLogicalName";
    for (key, headers) in [
        (key_of("c2.inv.orders", 1), vec![]),
        (r#"{"id":1}"#.to_owned(), vec![(context, "c2")]),
        (r#"{"id":1}"#.to_owned(), vec![(context, "\"c2\""), ("__schema", "inv"), ("__table", "orders")]),
        (
            r#"{"id":1}"#.to_owned(),
            vec![("__source_name", "c2"), ("__source_schema", "inv"), ("__source_table", "orders")],
        ),
    ] {
        for with_delete in [true, false] {
            let mut decoder = two_connectors("merged");
            for connector in ["c1", "c2"] {
                let schema_key = key_of(&format!("{connector}.inv.orders"), 1);
                let own = if key.starts_with("{\"schema") { &schema_key } else { &key };
                decode(&mut decoder, &record(Some(own), Some(&of_connector(connector, "c", 1)), &[]));
            }
            if with_delete {
                decode(&mut decoder, &record(Some(&key), Some(&of_connector("c2", "d", 1)), &[]));
            }
            // By its header and nothing else only where a delete says the table.
            let says_table = key.starts_with("{\"schema") || headers.len() > 1;
            match tombstone(&mut decoder, &key, &headers) {
                Ok(table) => assert_eq!(table, "c2_orders", "{key} {headers:?}"),
                Err(reason) => assert!(!with_delete && !says_table, "{key} {headers:?}: {reason}"),
            }
        }
    }
}

/// As flattened rows with `add.headers=source.schema,source.table`.
#[test]
fn a_tombstone_whose_name_fits_two_connectors_tables_is_of_the_one_that_deleted_the_key_or_nobodys() {
    let headers = [("__source_schema", "inv"), ("__source_table", "orders")];
    let met = |delete: Option<&str>| {
        let mut decoder = two_connectors("merged");
        for connector in ["c1", "c2"] {
            decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of_connector(connector, "c", 1)), &[]));
        }
        if let Some(connector) = delete {
            decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of_connector(connector, "d", 1)), &[]));
        }
        tombstone(&mut decoder, r#"{"id":1}"#, &headers)
    };

    assert!(met(None).is_err());
    assert_eq!((met(Some("c1")), met(Some("c2"))), (Ok("c1_orders".to_owned()), Ok("c2_orders".to_owned())));
}

/// Debezium writes other characters as `_` in schemas.
#[test]
fn a_tombstone_of_two_tables_that_schemas_call_alike_is_of_the_one_that_deleted_the_key() {
    let key = key_of("shop.inv.my_table", 1);
    let shapes = ["inv.my table", "inv.my_table"].map(|name| shape(name, &[("id", "bigint"), ("v", "text")], &["id"]));
    let met = |tables: &[&str], delete: Option<&str>| {
        let mut decoder = decoder(DecodeSettings::default(), "merged", &shapes);
        for table in tables {
            decode(&mut decoder, &record(Some(&key), Some(&change(table, "c", 1)), &[]));
        }
        if let Some(table) = delete {
            decode(&mut decoder, &record(Some(&key), Some(&change(table, "d", 1)), &[]));
        }
        tombstone(&mut decoder, &key, &[])
    };

    let both = ["my table", "my_table"];
    assert_eq!(met(&both, Some("my table")), Ok("my table".to_owned()));
    assert_eq!(met(&both, Some("my_table")), Ok("my_table".to_owned()));
    assert!(met(&both, None).is_err());
    assert_eq!(met(&both[..1], None), Ok("my table".to_owned()), "of the one that has come");
}

/// After a restart a lane has met few of the tables that come by its topic; the sink knows the others.
#[test]
fn a_tombstone_that_fits_a_table_of_an_earlier_life_as_well_is_nobodys() {
    let noted = |connector: &str, table: &str| {
        let source = SourceName { connector: connector.into(), ..SourceName::of_table(format!("inv.{table}")) };
        (source, TableName::new("inv", table))
    };
    let headers = [("__source_schema", "inv"), ("__source_table", "orders")];
    let plain = r#"{"id":1}"#;
    let twins = |carried: &[&str], met: bool| {
        let carried = carried.iter().map(|connector| noted(connector, "orders")).collect();
        let mut decoder = decoder(DecodeSettings::default(), "merged", &shapes()).carrying(carried);
        if met {
            decode(&mut decoder, &record(Some(plain), Some(&of_connector("c1", "c", 1)), &[]));
        }
        tombstone(&mut decoder, plain, &headers)
    };
    assert_eq!((twins(&["c1"], true), twins(&["c1"], false)), (Ok("orders".to_owned()), Ok("orders".to_owned())));
    assert!(twins(&["c1", "c2"], true).is_err() && twins(&["c1", "c2"], false).is_err());

    let key = key_of("shop.inv.my_table", 1);
    let alike = |carried: &[&str]| {
        let shape = shape("inv.my_table", &[("id", "bigint"), ("v", "text")], &["id"]);
        let carried = carried.iter().map(|table| noted("shop", table)).collect();
        let mut decoder = decoder(DecodeSettings::default(), "merged", &[shape]).carrying(carried);
        decode(&mut decoder, &record(Some(&key), Some(&change("my_table", "c", 1)), &[]));
        tombstone(&mut decoder, &key, &[])
    };
    assert_eq!(alike(&["my_table"]), Ok("my_table".to_owned()));
    assert!(alike(&["my_table", "my table"]).is_err());
}

/// A delete that could not be read, and another table's delete and row of the same key.
#[test]
fn a_tables_own_tombstone_does_not_use_up_what_could_not_be_read() {
    let mut decoder = carrying(&["inv.orders", "inv.lines"]);
    let key = r#"{"id":2}"#;
    let bad = record(Some(key), Some(r#"{"before":{"id":2},"aft"#), &[]);
    let Err(DecodeError::Bad(reason)) = decoder.decode(&bad) else { panic!("it is bad") };
    decoder.unread(&bad, &reason);
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "d", 2)), &[]));

    assert_eq!(tombstone(&mut decoder, key, &[]), Ok("orders".to_owned()));
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "c", 2)), &[]));
    assert!(tombstone(&mut decoder, key, &[]).is_err());
    // One that is given up was the unread record's; JSON null is a tombstone, too.
    let null = record(Some(key), Some("null"), &[]);
    let Err(DecodeError::Bad(reason)) = decoder.decode(&null) else { panic!("it is nobody's") };
    decoder.unread(&null, &reason);
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "d", 2)), &[]));
    assert_eq!(tombstone(&mut decoder, key, &[]), Ok("orders".to_owned()));
}

/// Records of one table may say more or less of where they come from.
#[test]
fn a_row_lives_however_much_its_record_says_of_its_source() {
    let mut decoder = carrying(&["inv.orders", "inv.lines"]);
    let key = r#"{"id":2}"#;
    let terse = |op: &str| change("orders", op, 2).replace(r#""db":"app","#, "");
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "c", 2)), &[]));
    decode(&mut decoder, &record(Some(key), Some(&terse("d")), &[]));
    assert_eq!(tombstone(&mut decoder, key, &[]), Ok("orders".to_owned()));
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "c", 2)), &[]));

    assert!(tombstone(&mut decoder, key, &[]).is_err(), "it lives");
    let headers = [("__source_schema", "inv"), ("__source_table", "orders")];
    assert_eq!(tombstone(&mut decoder, key, &headers), Ok("orders".to_owned()), "both are one table");
}

/// Debezium's adjustments of names in schemas: none, `avro` and `avro_unicode`.
#[test]
fn a_schemas_name_is_of_the_table_that_it_may_be_written_for_and_makes_none() {
    let columns = [("id", "bigint"), ("v", "text")];
    let shapes = ["inv.caf\u{e8}", "inv.caf_"].map(|name| shape(name, &columns, &["id"]));
    let met = |schema_name: &str| {
        let key = key_of(schema_name, 1);
        let mut decoder = decoder(DecodeSettings::default(), "merged", &shapes);
        decode(&mut decoder, &record(Some(&key), Some(&change("caf\u{e8}", "c", 1)), &[]));
        decode(&mut decoder, &record(Some(&key), Some(&change("caf\u{e8}", "d", 1)), &[]));
        tombstone(&mut decoder, &key, &[])
    };
    for schema_name in ["shop.inv.caf\u{e8}", "shop.inv.caf_", "shop.inv.caf_u00e8"] {
        assert_eq!(met(schema_name), Ok("caf\u{e8}".to_owned()), "{schema_name}");
    }
    let carried = |sources: &[&str]| {
        let noted = |table: &&str| (SourceName::of_table(format!("inv.{table}")), TableName::new("inv", *table));
        let carried = sources.iter().map(noted).collect();
        let mut decoder = decoder(DecodeSettings::default(), "merged", &shapes).carrying(carried);
        tombstone(&mut decoder, &key_of("shop.inv.caf_", 1), &[])
    };
    assert_eq!(carried(&["caf\u{e8}"]), Ok("caf\u{e8}".to_owned()));
    assert!(carried(&["caf\u{e8}", "caf_"]).is_err() && carried(&[]).is_err());
}

#[test]
fn a_tombstone_that_names_a_table_without_its_schema_is_of_none_but_the_topics() {
    let columns = [("id", "bigint"), ("v", "text")];
    let shapes = [shape("inv.b.orders", &columns, &["id"]), shape("inv.orders", &columns, &["id"])];
    let mut decoder = decoder(DecodeSettings::default(), "merged", &shapes);
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&change("b.orders", "c", 1)), &[]));

    let refused = decoder.decode(&record(Some(r#"{"id":1}"#), None, &[("__source_table", "orders")]));
    assert!(matches!(refused, Err(DecodeError::Setup { .. })), "{refused:?}");
    let named = tombstone(&mut carrying(&[]), r#"{"id":1}"#, &[("__source_table", "orders")]);
    assert_eq!(named, Ok("orders".to_owned()));
}

/// As `i1 t`, whose topic is called `...i1_t`.
#[test]
fn a_table_is_known_by_the_topic_that_is_named_after_it_as_topics_are() {
    let columns = [("id", "bigint"), ("v", "text")];
    let shapes = [shape("inv.my orders", &columns, &["id"])];
    let mut decoder = decoder(DecodeSettings::default(), "shop.inv.my_orders", &shapes);
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&change("my orders", "c", 1)), &[]));

    assert_eq!(tombstone(&mut decoder, r#"{"id":1}"#, &[]), Ok("my orders".to_owned()));
}

/// A schema `x.y` with a table `z`, and a schema `x` with a table `y.z`.
#[test]
fn a_statement_whose_name_means_two_tables_is_refused() {
    let columns = [("id", "bigint"), ("v", "text")];
    let named = |schema: &str, name: &str| {
        let mut table = (*shape("x.t", &columns, &["id"])).clone();
        table.name = TableName::new(schema, name);
        Arc::new(table)
    };
    let mut decoder = decoder(DecodeSettings::default(), "merged", &[named("x.y", "z"), named("x", "y.z")]);
    let of = |schema: &str| {
        change(if schema == "x" { "y.z" } else { "z" }, "c", 1).replace("\"inv\"", &format!("\"{schema}\""))
    };
    for schema in ["x.y", "x"] {
        decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of(schema)), &[]));
    }
    let low = r#"{"v":1,"kind":"low","read_id":"r","table":"x.y.z","topic":"merged"}"#;

    let event = decode(&mut decoder, &record(None, Some(low), &[("sink-repair.kind", "low")]));

    assert_eq!(refusal(&event).0, Rule::OneStream);
}

/// The topic may be named after a connector whose rows do not come by it.
#[test]
fn the_topics_name_does_not_speak_against_the_rows_that_come_by_it() {
    let mut decoder = two_connectors("c1.inv.orders");
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of_connector("c2", "c", 1)), &[]));
    let low = r#"{"v":1,"kind":"low","read_id":"r","table":"inv.orders","topic":"c1.inv.orders"}"#;

    let event = decode(&mut decoder, &record(None, Some(low), &[("sink-repair.kind", "low")]));

    assert_eq!(refusal(&event).0, Rule::OneStream);
}

/// Flattened rows of an old Debezium: nothing but the topic's name says whose they are.
#[test]
fn a_statement_of_another_connector_than_the_topics_is_refused_where_rows_name_none() {
    let flattened = record(Some(r#"{"id":1}"#), Some(r#"{"id":1,"v":"x","__op":"c"}"#), &[]);
    let refused = |connector: &str| {
        let mut decoder = carrying(&[]);
        decode(&mut decoder, &flattened);
        let low = format!(
            r#"{{"v":1,"kind":"low","read_id":"r","table":"inv.orders","topic":"{TOPIC}","connector":"{connector}"}}"#
        );
        match decode(&mut decoder, &record(None, Some(&low), &[("sink-repair.kind", "low")])) {
            Event::Low(_) => None,
            event => Some(refusal(&event).0),
        }
    };

    assert_eq!((refused("shop"), refused("elsewhere")), (None, Some(Rule::OneStream)));
}

#[test]
fn an_absence_event_that_contradicts_itself_is_refused_and_makes_no_topic_merged() {
    let context = ("__debezium.context.connectorLogicalName", "c2");
    let marks = [("dblog.op", "absent"), ("dblog.read_id", "r"), ("dblog.table", "inv.orders")];
    let source = |more: &[(&str, &str)]| {
        let mut decoder = carrying(&[]);
        match decode(&mut decoder, &record(Some(r#"{"id":1}"#), None, &[&marks[..], more].concat())) {
            Event::Part(part) => Ok(part.claim.read.source.connector),
            event => Err(refusal(&event).0),
        }
    };
    assert_eq!(source(&[context, ("dblog.connector", "")]), Ok("c2".to_owned()), "an empty header says nothing");
    assert_eq!(source(&[("dblog.connector", "c1")]), Ok("c1".to_owned()));
    assert_eq!(source(&[context, ("dblog.connector", "c1")]), Err(Rule::OneStream));

    let absent = change("lines", "d", 1).replace("\"op\":\"d\"", "\"op\":\"absent\",\"read_id\":\"r\"");
    let mut decoder = carrying(&[]);
    for (name, value) in [("dblog.table", "inv.orders"), ("dblog.connector", "c9")] {
        let event =
            decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&absent), &[("dblog.op", "absent"), (name, value)]));
        assert_eq!(refusal(&event).0, Rule::OneStream, "{name}");
    }
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&change("orders", "c", 1)), &[]));
    assert!(matches!(decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&absent), &[])), Event::Part(_)));
    assert_eq!(tombstone(&mut decoder, r#"{"id":1}"#, &[]), Ok("orders".to_owned()));
}

#[test]
fn an_envelope_without_its_connector_is_of_the_one_that_debeziums_header_names() {
    let context = [("__debezium.context.connectorLogicalName", "c2")];
    let nameless = |value: &str| value.replace("\"name\":\"shop\",", "").replace("\"name\":\"rr\",", "");
    let low = r#"{"v":1,"kind":"low","read_id":"r","table":"inv.orders","topic":"shop.inv.orders"}"#;
    let mut decoder = carrying(&[]);

    let row = decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&nameless(&change("orders", "c", 1))), &context));
    let low =
        decode(&mut decoder, &record(None, Some(&nameless(&envelope(low)).replace("\"src\"", "\"app\"")), &context));

    let (Event::Row(row), Event::Low(low)) = (row, low) else { panic!("a row and a marker") };
    assert_eq!((row.source.connector.as_str(), low.source.connector.as_str()), ("c2", "c2"));
}

/// Where the connector decides where a row goes, what is not said is not guessed.
#[test]
fn a_row_that_does_not_name_its_connector_goes_nowhere_where_that_decides() {
    let row = r#"{"id":1,"v":"x","__op":"c","__source_schema":"inv","__source_table":"orders"}"#;
    let mut decoder = two_connectors("merged");
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of_connector("c1", "c", 1)), &[]));

    let refused = decoder.decode(&record(Some(r#"{"id":1}"#), Some(row), &[]));

    assert!(matches!(refused, Err(DecodeError::Setup { .. })), "{refused:?}");
}

/// Where rows go by their connector, a row that does not say its own goes nowhere once two are known.
#[test]
fn a_row_that_fits_two_connectors_tables_is_put_down_to_neither() {
    let row = r#"{"id":1,"v":"x","__op":"c","__source_schema":"inv","__source_table":"orders"}"#;
    let mut decoder = two_connectors("merged").carrying(
        ["c1", "c2"]
            .map(|name| {
                let source = SourceName { connector: name.into(), ..SourceName::of_table("inv.orders") };
                (source, TableName::new("inv", format!("{name}_orders")))
            })
            .into(),
    );
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&of_connector("c1", "c", 1)), &[]));

    let refused = decoder.decode(&record(Some(r#"{"id":1}"#), Some(row), &[]));

    let Err(DecodeError::Setup { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("connector"), "{reason}");
}

/// What only a statement names does not come by the topic, and a statement that is refused leaves nothing behind.
#[test]
fn a_statement_makes_no_topic_merged() {
    let low = |table: &str| {
        let payload = format!(r#"{{"v":1,"kind":"low","read_id":"r","table":"{table}","topic":"{TOPIC}"}}"#);
        record(Some(r#"{"prefix":"sink-repair"}"#), Some(&payload), &[("sink-repair.kind", "low")])
    };
    let mut decoder = carrying(&[]);
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&change("orders", "c", 1)), &[]));
    assert!(matches!(decode(&mut decoder, &low("inv.lines")), Event::Low(_)));

    assert_eq!(tombstone(&mut decoder, r#"{"id":1}"#, &[]), Ok("orders".to_owned()));

    // Debezium's signal table: its rows are not applied, so the sink need not have it.
    let signal = r#"{"id":"01234567-89ab-cdef-0123-456789abcdef-open"}"#;
    let row = r#"{"before":null,"after":{"id":"01234567-89ab-cdef-0123-456789abcdef-open","type":"snapshot-window-open","data":"{}"},"op":"c","source":{"name":"shop","db":"app","schema":"inv","table":"signals","txId":7}}"#;
    let gone = row.replace("\"before\":null,\"after\":", "\"after\":null,\"before\":").replace("\"c\"", "\"d\"");
    decode(&mut decoder, &record(Some(signal), Some(row), &[]));
    decode(&mut decoder, &record(Some(signal), Some(&gone), &[]));
    let Err(DecodeError::NeedsTable { table, refused: Some(_) }) = decoder.decode(&low("inv.signals")) else {
        panic!("the sink has no such table")
    };
    decoder.refused(&table);

    let event = decode(&mut decoder, &record(Some(signal), None, &[]));

    assert!(matches!(event, Event::Other(_)), "{event:?}");
}

/// A statement of a topic that is not called after its connector is read as the stream's keys are.
#[test]
fn the_topics_first_part_is_not_taken_for_the_connector() {
    let topic = "warehouse.inv.pairs";
    let mut decoder = decoder(DecodeSettings::default(), topic, &[pairs(&["a", "b"])]);
    decode(&mut decoder, &pair("shop", 1));

    let Event::Part(part) = decode(&mut decoder, &outbox(topic, "")) else { panic!("it is a statement") };

    assert_eq!(part.claim.read.source, SourceName::of_table("inv.pairs"));
}

/// A guess is no ground to take the next tombstone of the key for the guessed table's.
#[test]
fn a_bad_record_that_was_put_down_to_a_table_by_the_topics_name_stays_unread() {
    let mut decoder = carrying(&[]);
    let key = r#"{"id":1}"#;
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "c", 1)), &[]));
    let bad = record(Some(key), Some(r#"{"before":{"id":1},"aft"#), &[]);
    let Err(DecodeError::Bad(reason)) = decoder.decode(&bad) else { panic!("it is bad") };
    assert_eq!((reason.table.as_deref(), reason.feed), (Some("inv.orders"), None));
    decoder.unread(&bad, &reason);
    decode(&mut decoder, &record(Some(key), Some(&change("orders", "u", 1)), &[]));

    assert!(tombstone(&mut decoder, key, &[]).is_err());
}

/// Debezium deletes the rows of its signal table itself.
#[test]
fn a_tombstone_of_the_signal_table_is_known_by_its_delete() {
    let settings = DecodeSettings { signal_table: Some("inv.signals".into()), ..DecodeSettings::default() };
    let carried =
        ["orders", "lines"].map(|name| (SourceName::of_table(format!("inv.{name}")), TableName::new("inv", name)));
    let mut decoder = decoder(settings, TOPIC, &shapes()).carrying(carried.into());
    let key = r#"{"id":"2-close"}"#;
    let delete = change("signals", "d", 2);
    decode(&mut decoder, &record(Some(key), Some(&delete), &[]));

    let event = decode(&mut decoder, &record(Some(key), None, &[]));

    assert!(matches!(event, Event::Other(_)), "{event:?}");
}

#[test]
fn a_tombstone_of_flattened_rows_says_its_table_in_its_headers() {
    let headers = [("__source_schema", "inv"), ("__source_table", "lines")];

    assert_eq!(tombstone(&mut carrying(&[]), r#"{"id":2}"#, &headers), Ok("lines".to_owned()));
}

#[test]
fn a_tombstone_is_of_the_table_that_its_keys_schema_is_named_after() {
    let key = |name: &str| key_of(name, 2);
    let both = ["inv.orders", "inv.lines"];

    assert_eq!(tombstone(&mut carrying(&both), &key("shop.inv.lines"), &[]), Ok("lines".to_owned()));
    // A router names it after the merged topic; that says nothing.
    assert!(tombstone(&mut carrying(&both), &key(TOPIC), &[]).is_err());
    assert!(tombstone(&mut carrying(&both), &key("shop_inv_orders"), &[]).is_err());
    assert_eq!(tombstone(&mut carrying(&both[..1]), &key("shop_inv_orders"), &[]), Ok("orders".to_owned()));
}

/// Its key would count as that of another table's change.
#[test]
fn a_bad_record_that_does_not_say_its_table_counts_for_the_topics_table_only_where_it_is_alone() {
    let counted = |decoder: &mut Decoder, value: &str| {
        decode(decoder, &record(Some(r#"{"id":1}"#), Some(&change("orders", "c", 1)), &[]));
        match decoder.decode(&record(Some(r#"{"id":2}"#), Some(value), &[])) {
            Err(DecodeError::Bad(bad)) => bad.key.map(|(table, _)| table.name.name.clone()),
            other => panic!("{other:?}"),
        }
    };

    for value in [r#"{"before":null,"aft"#, r#"{"op":"c","source":{}}"#] {
        assert_eq!(counted(&mut carrying(&["inv.orders"]), value), Some("orders".to_owned()), "{value}");
        assert_eq!(counted(&mut carrying(&["inv.orders", "inv.lines"]), value), None, "{value}");
    }
}

fn refusal(event: &Event) -> (Rule, &str) {
    match event {
        Event::Damaged(damaged) => (damaged.rule, &damaged.reason),
        event => panic!("{event:?}"),
    }
}

/// A chunk marker as the outbox router brings it: it does not name its connector.
fn outbox(topic: &str, more: &str) -> crate::record::Record {
    let payload = format!(
        r#"{{"v":1,"kind":"chunk","read_id":"r","table":"inv.pairs","topic":"{topic}","part":1,"parts":1,"range":{{"lower":{{"open":true}},"upper":{{"open":true}}}},"selected":[[1,11],[2,12]],"key_types":["bigint","bigint"],"snapshot":"1:1:","settled":true{more}}}"#
    );
    record(Some("\"k\""), Some(&payload), &[("sink-repair.kind", "chunk")])
}

fn pairs(key: &[&str]) -> Arc<TableShape> {
    shape("inv.pairs", &[("a", "bigint"), ("b", "bigint")], key)
}

fn pair(connector: &str, a: i64) -> crate::record::Record {
    let value = format!(
        r#"{{"before":null,"after":{{"a":{a},"b":1{a}}},"op":"c","source":{{"name":"{connector}","db":"app","schema":"inv","table":"pairs","txId":7}}}}"#
    );
    record(Some(&format!(r#"{{"a":{a},"b":1{a}}}"#)), Some(&value), &[])
}

#[test]
fn key_columns_in_another_order_than_the_sinks_refuse_a_statement() {
    let topic = "shop.inv.pairs";
    let taken = |key: &[&str], seen: bool, more: &str| {
        let mut decoder = decoder(DecodeSettings::default(), topic, &[pairs(key)]);
        if seen {
            decode(&mut decoder, &pair("shop", 1));
        }
        decode(&mut decoder, &outbox(topic, more))
    };

    assert!(matches!(taken(&["a", "b"], true, ""), Event::Part(_)));
    assert!(matches!(taken(&["a", "b"], false, r#","key_columns":["a","b"]"#), Event::Part(_)));
    for (event, reason) in [
        (taken(&["b", "a"], true, ""), "the sink's primary key (b, a): make it at the sink in the source's order"),
        (taken(&["b", "a"], false, r#","key_columns":["a","b"]"#), "the source's key is (a, b)"),
        (taken(&["a", "b"], false, ""), "field `key_columns` is missing"),
        (taken(&["a", "b"], true, r#","key_columns":["a","c"]"#), "the source's key is (a, c)"),
        (taken(&["a", "b"], true, r#","key_columns":["a"]"#), "the source's key is (a)"),
        (taken(&["a", "b"], true, r#","key_columns":[1]"#), "field `key_columns` is not a list of text"),
    ] {
        let (rule, said) = refusal(&event);
        assert!(matches!(rule, Rule::Order | Rule::Whole) && said.contains(reason), "{rule}: {said}");
    }
}

#[test]
fn a_marker_that_fits_the_tables_of_two_connectors_is_refused() {
    let topic = "merged";
    let columns = r#","key_columns":["a","b"]"#;
    let mut decoder = decoder(DecodeSettings::default(), topic, &[pairs(&["a", "b"])]);
    for connector in ["left", "right"] {
        decode(&mut decoder, &pair(connector, 1));
    }

    let event = decode(&mut decoder, &outbox(topic, columns));
    let (rule, reason) = refusal(&event);
    assert_eq!(rule, Rule::OneStream);
    assert!(reason.contains("left/app/inv.pairs into") && reason.contains("right/app/inv.pairs into"), "{reason}");
    let named = decode(&mut decoder, &outbox(topic, &format!(r#"{columns},"connector":"right""#)));
    assert!(matches!(named, Event::Part(_)), "{named:?}");
}

/// The topic may be named after the table of one of them.
#[test]
fn the_topics_name_does_not_decide_between_two_connectors() {
    let columns = r#","key_columns":["a","b"]"#;
    let topic = "left.inv.pairs";
    let mut met = decoder(DecodeSettings::default(), topic, &[pairs(&["a", "b"])]);
    for connector in ["left", "right"] {
        decode(&mut met, &pair(connector, 1));
    }
    let mapping = TableMapping::parse("{schema}.{connector}_{table}").unwrap();
    let settings = DecodeSettings { mapping, ..DecodeSettings::default() };
    let shapes = [shape("inv.left_pairs", &[("a", "bigint"), ("b", "bigint")], &["a", "b"])];
    let carried = ["left", "right"].map(|name| {
        let source = SourceName { connector: name.into(), ..SourceName::of_table("inv.pairs") };
        (source, TableName::new("inv", format!("{name}_pairs")))
    });
    let mut carried = decoder(settings, topic, &shapes).carrying(carried.into());
    decode(&mut carried, &pair("left", 1));

    for decoder in [&mut met, &mut carried] {
        assert_eq!(refusal(&decode(decoder, &outbox(topic, columns))).0, Rule::OneStream);
        let named = decode(decoder, &outbox(topic, &format!(r#"{columns},"connector":"left""#)));
        assert!(matches!(named, Event::Part(_)), "{named:?}");
    }
}

#[test]
fn where_the_connector_decides_the_sink_table_a_marker_has_to_name_it() {
    let mapping = TableMapping::parse("{schema}.{connector}_{table}").unwrap();
    let settings = || DecodeSettings { mapping: mapping.clone(), ..DecodeSettings::default() };
    let columns = r#","key_columns":["a","b"]"#;
    let shapes = [shape("inv.shop_pairs", &[("a", "bigint"), ("b", "bigint")], &["a", "b"])];
    let one = |topic: &str, more: &str| {
        let mut decoder = decoder(settings(), topic, &shapes);
        decode(&mut decoder, &pair("shop", 1));
        decode(&mut decoder, &outbox(topic, &format!("{columns}{more}")))
    };

    assert_eq!(refusal(&one("merged", "")).0, Rule::OneStream);
    assert!(matches!(one("merged", r#","connector":"shop""#), Event::Part(_)));
    assert!(matches!(one("shop.inv.pairs", ""), Event::Part(_)), "the topic's name says it");
}

#[test]
fn a_marker_of_another_connector_than_it_says_is_refused() {
    let payload = format!(
        r#"{{"v":1,"kind":"low","read_id":"r","table":"inv.orders","topic":"{TOPIC}","connector":"elsewhere"}}"#
    );
    let record = record(Some(r#"{"prefix":"sink-repair.0"}"#), Some(&envelope(&payload)), &[]);

    let event = decode_one(TOPIC, &shapes(), &record).unwrap();

    assert_eq!(refusal(&event), (Rule::OneStream, "field `connector`: the record comes from another connector"));
}

/// The operator has told since that the table goes elsewhere (`--sink-table`).
#[test]
fn where_a_table_went_in_earlier_lives_says_nothing_about_where_it_goes() {
    let shapes = [shape("inv.orders", &[("id", "bigint"), ("v", "text")], &["id"])];
    let earlier = (SourceName::of_table("inv.orders"), TableName::new("public", "orders"));
    let mut decoder = decoder(DecodeSettings::default(), TOPIC, &shapes).carrying(vec![earlier]);
    decode(&mut decoder, &record(Some(r#"{"id":1}"#), Some(&change("orders", "c", 1)), &[]));
    let low = r#"{"v":1,"kind":"low","read_id":"r","table":"inv.orders","topic":"shop.inv.orders"}"#;

    let event = decode(&mut decoder, &record(None, Some(low), &[("sink-repair.kind", "low")]));

    assert!(matches!(&event, Event::Low(read) if read.table.name == TableName::new("inv", "orders")), "{event:?}");
    assert_eq!(tombstone(&mut decoder, r#"{"id":2}"#, &[]), Ok("orders".to_owned()));
}

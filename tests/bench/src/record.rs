//! A change as stock Debezium publishes it: PostgreSQL envelope, JsonConverter, with or without schemas.

use std::io::Write;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::stream::{Change, cents, name};

/// The columns, as `CREATE TABLE` has them.
pub const COLUMNS: &str =
    "id bigint PRIMARY KEY, name text, price numeric(10,2), ok boolean, tstz timestamptz, d date, js jsonb, note text";

/// Milliseconds of the first event.
const START_MS: i64 = 1_796_000_000_000;

/// Renders changes of one topic, into buffers that are used again.
#[derive(Debug)]
pub struct Renderer {
    connector: String,
    key_schema: String,
    value_schema: String,
    end: &'static str,
    /// The key of the last change.
    pub key: Vec<u8>,
    /// The value of the last change.
    pub value: Vec<u8>,
}

impl Renderer {
    /// Prepares for a topic.
    pub fn new(topic: &str, schemas: bool) -> Renderer {
        let wrap = |schema: String| if schemas { format!(r#"{{"schema":{schema},"payload":"#) } else { String::new() };
        Renderer {
            connector: topic.split('.').next().unwrap_or_default().to_owned(),
            key_schema: wrap(key_schema(topic)),
            value_schema: wrap(envelope_schema(topic)),
            end: if schemas { "}" } else { "" },
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The transaction of event `n`.
    pub fn transaction(n: u64) -> u64 {
        1_000 + n / 4
    }

    /// Renders event `n`.
    pub fn render(&mut self, n: u64, change: Change) -> Result<()> {
        self.key.clear();
        self.value.clear();
        let (id, op) = match change {
            Change::Create(id) => (id, 'c'),
            Change::Update(id) => (id, 'u'),
            Change::Delete(id) => (id, 'd'),
        };
        write!(self.key, r#"{}{{"id":{id}}}{}"#, self.key_schema, self.end)?;
        let value = &mut self.value;
        value.extend_from_slice(self.value_schema.as_bytes());
        match change {
            Change::Delete(_) => {
                // Replica identity default: of the old row, the key alone is known.
                write!(
                    value,
                    r#"{{"before":{{"id":{id},"name":null,"price":null,"ok":null,"tstz":null,"d":null,"js":null,"note":null}},"after":null"#
                )?;
            }
            _ => {
                value.extend_from_slice(br#"{"before":null,"after":"#);
                write_row(value, id, n)?;
            }
        }
        let ms = START_MS + n as i64;
        let (us, ns, lsn) = (ms * 1_000, ms * 1_000_000, 30_000_000 + n * 128);
        write!(
            value,
            r#","source":{{"version":"3.6.1.Final","connector":"postgresql","name":"{}","ts_ms":{ms},"snapshot":"false","db":"source","sequence":"[\"{}\",\"{lsn}\"]","ts_us":{us},"ts_ns":{ns},"schema":"inventory","table":"items","txId":{},"lsn":{lsn},"xmin":null,"origin":null,"origin_lsn":null}},"transaction":null,"op":"{op}","ts_ms":{ms},"ts_us":{us},"ts_ns":{ns}}}{}"#,
            self.connector,
            lsn - 64,
            Renderer::transaction(n),
            self.end
        )?;
        Ok(())
    }
}

/// The parts of a row beyond id, name and price, for whoever writes it without JSON.
pub struct Rest {
    /// `ok`
    pub ok: bool,
    /// `tstz`, in seconds of the day 2026-11-30 UTC.
    pub second: u64,
    /// `d`, in days since 1970-01-01.
    pub day: i32,
    /// `js`
    pub js: String,
    /// `note`
    pub note: String,
}

/// Returns what event `n` writes into the other columns.
pub fn rest(id: i64, n: u64) -> Rest {
    Rest {
        ok: n & 1 == 1,
        second: n % 86_400,
        day: 19_000 + (n % 1_000) as i32,
        js: format!(r#"{{"n": {n}}}"#),
        note: format!("note of row {id} written by event {n}, padded to a usual length"),
    }
}

fn write_row(out: &mut Vec<u8>, id: i64, n: u64) -> Result<()> {
    let Rest { ok, second, day, js, note } = rest(id, n);
    write!(
        out,
        r#"{{"id":{id},"name":"{}","price":"{}","ok":{ok},"tstz":"2026-11-30T{:02}:{:02}:{:02}.000000Z","d":{day},"js":"{}","note":"{note}"}}"#,
        name(id, n),
        decimal(cents(id, n)),
        second / 3600,
        second / 60 % 60,
        second % 60,
        js.replace('"', r#"\""#),
    )?;
    Ok(())
}

/// Connect's Decimal: the unscaled number in as few bytes as hold it with its sign, big end first, in base64.
fn decimal(unscaled: i64) -> String {
    let bytes = unscaled.to_be_bytes();
    let fill = if unscaled < 0 { 0xff } else { 0 };
    let skip = (0..7).take_while(|&i| bytes[i] == fill && (bytes[i + 1] ^ fill) & 0x80 == 0).count();
    STANDARD.encode(&bytes[skip..])
}

fn field(kind: &str, optional: bool, name: &str) -> String {
    format!(r#"{{"type":"{kind}","optional":{optional},"field":"{name}"}}"#)
}

fn logical(kind: &str, logical: &str, more: &str, name: &str) -> String {
    format!(r#"{{"type":"{kind}","optional":true,"name":"{logical}","version":1,{more}"field":"{name}"}}"#)
}

fn key_schema(topic: &str) -> String {
    let id = field("int64", false, "id");
    format!(r#"{{"type":"struct","fields":[{id}],"optional":false,"name":"{topic}.Key"}}"#)
}

fn envelope_schema(topic: &str) -> String {
    let decimal = r#""parameters":{"scale":"2","connect.decimal.precision":"10"},"#;
    let row = [
        field("int64", false, "id"),
        field("string", true, "name"),
        logical("bytes", "org.apache.kafka.connect.data.Decimal", decimal, "price"),
        field("boolean", true, "ok"),
        logical("string", "io.debezium.time.ZonedTimestamp", "", "tstz"),
        logical("int32", "io.debezium.time.Date", "", "d"),
        logical("string", "io.debezium.data.Json", "", "js"),
        field("string", true, "note"),
    ]
    .join(",");
    let snapshot = r#""parameters":{"allowed":"true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"default":"false","#;
    let source = [
        field("string", false, "version"),
        field("string", false, "connector"),
        field("string", false, "name"),
        field("int64", false, "ts_ms"),
        logical("string", "io.debezium.data.Enum", snapshot, "snapshot"),
        field("string", false, "db"),
        field("string", true, "sequence"),
        field("int64", true, "ts_us"),
        field("int64", true, "ts_ns"),
        field("string", false, "schema"),
        field("string", false, "table"),
        field("int64", true, "txId"),
        field("int64", true, "lsn"),
        field("int64", true, "xmin"),
        field("string", true, "origin"),
        field("int64", true, "origin_lsn"),
    ]
    .join(",");
    let transaction = [
        field("string", false, "id"),
        field("int64", false, "total_order"),
        field("int64", false, "data_collection_order"),
    ]
    .join(",");
    let value = |name: &str| {
        format!(r#"{{"type":"struct","fields":[{row}],"optional":true,"name":"{topic}.Value","field":"{name}"}}"#)
    };
    let fields = [
        value("before"),
        value("after"),
        format!(r#"{{"type":"struct","fields":[{source}],"optional":false,"name":"io.debezium.connector.postgresql.Source","version":1,"field":"source"}}"#),
        format!(r#"{{"type":"struct","fields":[{transaction}],"optional":true,"name":"event.block","version":1,"field":"transaction"}}"#),
        field("string", false, "op"),
        field("int64", true, "ts_ms"),
        field("int64", true, "ts_us"),
        field("int64", true, "ts_ns"),
    ]
    .join(",");
    format!(r#"{{"type":"struct","fields":[{fields}],"optional":false,"name":"{topic}.Envelope","version":2}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    // What java.math.BigInteger.toByteArray gives, in base64: two's complement, big end first, as few bytes as hold it.
    #[test]
    fn decimals_are_as_short_as_they_can_be() {
        assert_eq!(
            [0, 125, 127, 128, 999, -1, -128, -129, 89_999_999].map(decimal),
            ["AA==", "fQ==", "fw==", "AIA=", "A+c=", "/w==", "gA==", "/38=", "BV1Kfw=="]
        );
    }
}

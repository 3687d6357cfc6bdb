//! Markers, chunk info records and absence events: where they stand in a record, and what becomes of damaged ones.
//!
//! A marker comes as a logical decoding message in an envelope (`message.content`, base64 or as
//! `binary.handling.mode` has it), or routed by the outbox router: then the header `sink-repair.kind` marks it, and the
//! value is the payload, as a JSON string or as an object, with a schema or without. A chunk info record is marked by
//! the header `dblog.record: chunk-info`, or is the content of a message that has no `kind`.

use std::{borrow::Cow, sync::Arc};

use sink_api::{KeyList, KeyRange, KeySet, ReadId, Rule, SourceName, StatementKind, TableName};

use super::{
    Claim, Damaged, Event, OtherRecord, Part, ReadName,
    claim::{NO_NAME, Payload, PayloadKind, is_name, shown},
    decoder::Decoder,
    envelope::{Source, Top},
    fault::Fault,
    json::{self, Broken, Kind},
    keylist::Damage,
    modes::BinaryMode,
    said::Named,
    value::decode_bytes,
};
use crate::record::{CONNECTOR_HEADER, Record};

/// Where a payload came from.
#[derive(Clone, Copy, Debug, Default)]
struct Origin<'a> {
    /// The kind that the record's header names.
    kind: Option<PayloadKind>,
    connector: &'a str,
    database: &'a str,
}

impl Decoder {
    /// A message in an envelope: a marker of ours, or someone else's.
    pub(super) fn message(&mut self, top: &Top<'_>, source: &Source<'_>, record: &Record) -> Result<Event, Fault> {
        let (mut prefix, mut content) = (None, None);
        if let Some(message) = top.message {
            json::object::<Broken>(message.get(), |name, raw| {
                match &*name {
                    "prefix" => prefix = json::string(raw),
                    "content" => content = Some(raw),
                    _ => {}
                }
                Ok(())
            })?;
        }
        if !prefix.is_some_and(|prefix| self.is_marker_prefix(&prefix)) {
            return Ok(Event::Other(OtherRecord::Message));
        }
        let origin = Origin {
            kind: None,
            connector: source.connector.as_deref().or_else(|| connector_of(record)).unwrap_or_default(),
            database: source.database.as_deref().unwrap_or_default(),
        };
        let bytes = content.and_then(json::string).and_then(|content| self.decode_content(&content));
        match bytes.as_deref().map(json::utf8) {
            Some(Ok(text)) => self.payload(text, origin),
            Some(Err(_)) => Ok(damaged(None, None, Damage::whole("the message's content is not UTF-8"))),
            None => Ok(damaged(None, None, Damage::whole("the message's content is not bytes in base64"))),
        }
    }

    fn is_marker_prefix(&self, prefix: &str) -> bool {
        self.settings
            .marker_prefixes
            .iter()
            .any(|own| prefix.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }

    /// Content is written as the connector writes bytes.
    fn decode_content(&self, content: &str) -> Option<Vec<u8>> {
        // A payload is an object, which begins otherwise in base64 (`ey`) than in hexadecimal (`7b`).
        [self.settings.modes.binary, BinaryMode::Bytes].into_iter().find_map(|mode| decode_bytes(mode, content).ok())
    }

    /// A marker that the outbox router has routed.
    pub(super) fn routed_marker(&mut self, record: &Record) -> Result<Event, Fault> {
        let name = record.header("sink-repair.kind").and_then(header_text).unwrap_or_default();
        let Some(kind) = PayloadKind::of_marker(name) else {
            return Ok(damaged(None, None, Damage::whole("header `sink-repair.kind` is none of low, chunk and keys")));
        };
        self.value_payload(record, kind)
    }

    /// A chunk info record that its header marks.
    pub(super) fn chunk_info(&mut self, record: &Record) -> Result<Event, Fault> {
        if record.header("dblog.record").and_then(header_text) != Some("chunk-info") {
            let damage = Damage::whole("header `dblog.record` names a kind of record that is not known");
            return Ok(damaged(None, Some(PayloadKind::ChunkInfo), damage));
        }
        self.value_payload(record, PayloadKind::ChunkInfo)
    }

    /// A payload that is a record's value: an object, or a string that holds one.
    fn value_payload(&mut self, record: &Record, kind: PayloadKind) -> Result<Event, Fault> {
        let whole = |reason: String| Ok(damaged(None, Some(kind), Damage::whole(reason)));
        let Some(value) = record.value.as_deref() else { return whole("the record has no value".to_owned()) };
        let payload = match self.values.split(value).and_then(|split| json::value(split.payload)) {
            Ok(raw) => raw,
            Err(broken) => return whole(format!("the value {broken}")),
        };
        let text = match Kind::of(payload) {
            Kind::String => json::string(payload),
            _ => Some(Cow::Borrowed(payload.get())),
        };
        match text {
            Some(text) => {
                let connector = connector_of(record).unwrap_or_default();
                self.payload(&text, Origin { kind: Some(kind), connector, database: "" })
            }
            None => whole("the value is not text".to_owned()),
        }
    }

    fn payload(&mut self, text: &str, origin: Origin<'_>) -> Result<Event, Fault> {
        let payload = match Payload::parse(text) {
            Ok(payload) => payload,
            Err(damage) => return Ok(damaged(None, origin.kind, damage)),
        };
        match self.taken(&payload, origin) {
            Ok(event) => event,
            Err(damage) => Ok(damaged(Some(&payload), origin.kind, damage)),
        }
    }

    /// Takes a payload: what is damaged about it on one side, what stops decoding on the other.
    fn taken(&mut self, payload: &Payload<'_>, origin: Origin<'_>) -> Result<Result<Event, Fault>, Damage> {
        payload.check_authentic(&self.settings)?;
        let kind = payload.kind()?;
        if origin.kind.is_some_and(|marked| marked != kind) {
            return Err(Damage::whole("field `kind` and the record's header disagree"));
        }
        if kind == PayloadKind::ChunkInfo && payload.is_advisory()? {
            return Ok(Ok(Event::Other(OtherRecord::Advisory)));
        }
        payload.check_fields(kind, &self.topic)?;
        let table = payload.text("table").unwrap_or_default();
        let stated = payload.text("connector").unwrap_or_default();
        let connector = match (origin.connector, &*stated) {
            ("", stated) => stated,
            (connector, stated) if stated.is_empty() || stated == connector => connector,
            _ => {
                let reason = "field `connector`: the record comes from another connector";
                return Err(Damage::new(Rule::OneStream, reason));
            }
        };
        let source =
            SourceName { connector: connector.into(), database: origin.database.into(), table: table.clone().into() };
        let feed = match self.tables.of_statement(&source, &self.topic, &self.carried, &self.settings) {
            Ok(feed) => feed,
            Err(Fault::Setup { reason, .. }) => return Err(Damage::new(Rule::OneStream, reason)),
            Err(fault) => return Ok(Err(fault)),
        };
        let known = match self.tables.feed(feed).known() {
            Ok(known) => known,
            Err(Fault::Needs(table)) => {
                let refused = damage_of(Some(payload), origin.kind, not_there(&table));
                return Ok(Err(Fault::StatementNeeds(table, Box::new(refused))));
            }
            Err(fault) => return Ok(Err(fault)),
        };
        if kind == PayloadKind::Low {
            return Ok(Ok(Event::Low(payload.read_name(source, &known.shape))));
        }
        let key = match &known.key {
            Ok(key) => key,
            Err(not_native) => return Err(Damage::new(Rule::Order, not_native.reason.clone())),
        };
        payload.check_key_columns(key, known.in_order)?;
        let wires = known.schema_key.as_ref().unwrap_or(&known.assumed_key);
        Ok(Ok(Event::Part(Box::new(payload.part(kind, source, key, wires)?))))
    }

    /// A tombstone that its headers make an absence event.
    pub(super) fn absence_tombstone(&mut self, record: &Record, feed: &mut Option<usize>) -> Result<Event, Fault> {
        let Some(name) = record.header("dblog.table").and_then(header_text).filter(|name| !name.is_empty()) else {
            return Ok(absence_damaged(record, None, Damage::whole("header `dblog.table` is missing")));
        };
        if !is_name(name) {
            return Ok(absence_damaged(record, None, Damage::whole(format!("header `dblog.table` {NO_NAME}"))));
        }
        let source =
            SourceName { connector: connector_of(record).unwrap_or_default().into(), ..SourceName::of_table(name) };
        self.absence_of(record, source, None, false, feed)
    }

    /// An absence event in an envelope.
    pub(super) fn absence_envelope(
        &mut self,
        record: &Record,
        named: Named<'_>,
        read_id: Option<&str>,
        says_absent: bool,
        feed: &mut Option<usize>,
    ) -> Result<Event, Fault> {
        let source = SourceName {
            connector: named.connector.to_owned(),
            database: named.database.to_owned(),
            table: format!("{}.{}", named.schema, named.table),
        };
        self.absence_of(record, source, read_id, says_absent, feed)
    }

    fn absence_of(
        &mut self,
        record: &Record,
        mut source: SourceName,
        read_id: Option<&str>,
        says_absent: bool,
        feed: &mut Option<usize>,
    ) -> Result<Event, Fault> {
        let header = |name: &str| record.header(name).and_then(header_text).filter(|text| !text.is_empty());
        let contradicts = |own: &str, header: Option<&str>| !own.is_empty() && header.is_some_and(|said| said != own);
        let name = source.table.clone();
        let name = name.as_str();
        let stated = header("dblog.connector");
        for (field, own, said) in
            [("connector", &source.connector, stated), ("table", &source.table, header("dblog.table"))]
        {
            if contradicts(own, said) {
                let reason = format!("header `dblog.{field}`: the record is of another {field}");
                return Ok(absence_damaged(record, Some(name.to_owned()), Damage::new(Rule::OneStream, reason)));
            }
        }
        if source.connector.is_empty() {
            stated.unwrap_or_default().clone_into(&mut source.connector);
        }
        let table = match self.tables.of_statement(&source, &self.topic, &self.carried, &self.settings) {
            Ok(table) => table,
            Err(Fault::Setup { reason, .. }) => {
                return Ok(absence_damaged(record, Some(name.to_owned()), Damage::new(Rule::OneStream, reason)));
            }
            Err(fault) => return Err(fault),
        };
        *feed = Some(table);
        self.absence(record, table, source, read_id, says_absent)
    }

    /// An absence event: one key that a read did not find.
    pub(super) fn absence(
        &mut self,
        record: &Record,
        feed: usize,
        source: SourceName,
        read_id: Option<&str>,
        says_absent: bool,
    ) -> Result<Event, Fault> {
        let source_table = source.table.clone();
        let refuse = |damage: Damage| Ok(absence_damaged(record, Some(source_table.clone()), damage));
        match self.tables.feed(feed).known() {
            Ok(known) => {
                if let Err(not_native) = &known.key {
                    return refuse(Damage::new(Rule::Order, not_native.reason.clone()));
                }
            }
            Err(Fault::Needs(table)) => {
                let refused = absence_damage(record, Some(source_table.clone()), not_there(&table));
                return Err(Fault::StatementNeeds(table, Box::new(refused)));
            }
            Err(fault) => return Err(fault),
        }
        match record.header("dblog.op").and_then(header_text) {
            Some("absent") => {}
            None if says_absent => {}
            _ => return refuse(Damage::whole("header `dblog.op` is not `absent`")),
        }
        let read_id = record.header("dblog.read_id").and_then(header_text).or(read_id).filter(|id| !id.is_empty());
        let Some(read_id) = read_id else { return refuse(Damage::whole("header `dblog.read_id` is missing")) };
        if !is_name(read_id) {
            return refuse(Damage::whole(format!("header `dblog.read_id` {NO_NAME}")));
        }
        let key = match self.record_key(record, feed) {
            Ok(key) => key,
            Err(Fault::Bad(_, reason)) => return refuse(Damage::whole(reason)),
            Err(fault) => return Err(fault),
        };
        let known = self.tables.feed(feed).known()?;
        let empty = || KeySet::List(KeyList::new());
        let claim = Claim {
            read: ReadName { read_id: ReadId(read_id.to_owned()), source, table: Arc::clone(&known.shape) },
            kind: StatementKind::Absence,
            range: KeyRange::ALL,
            snapshot: None,
            settled: false,
            confirmed: None,
            rows: None,
            key_types: None,
            byte_order: false,
        };
        Ok(Event::Part(Box::new(Part {
            claim,
            part: 1,
            parts: 1,
            asked: [&key.key].into_iter().collect(),
            selected: empty(),
            changed: empty(),
        })))
    }
}

/// Returns the connector that Debezium's own header names (3.6 writes it on every record of a connector).
pub(super) fn connector_of(record: &Record) -> Option<&str> {
    record.header(CONNECTOR_HEADER).and_then(header_text).filter(|name| !name.is_empty())
}

/// Returns a header's text; a JSON converter for headers puts it in quotes.
pub(super) fn header_text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    Some(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text))
}

fn damaged(payload: Option<&Payload<'_>>, kind: Option<PayloadKind>, damage: Damage) -> Event {
    Event::Damaged(damage_of(payload, kind, damage))
}

fn damage_of(payload: Option<&Payload<'_>>, kind: Option<PayloadKind>, damage: Damage) -> Damaged {
    let kind = payload.and_then(|payload| payload.kind().ok()).or(kind).unwrap_or(PayloadKind::Chunk);
    let text = |name: &str| payload.and_then(|payload| payload.text(name));
    refusal(text("read_id").as_deref(), kind.statement(), text("table").as_deref(), damage)
}

fn absence_damaged(record: &Record, source_table: Option<String>, damage: Damage) -> Event {
    Event::Damaged(absence_damage(record, source_table, damage))
}

fn absence_damage(record: &Record, source_table: Option<String>, damage: Damage) -> Damaged {
    let read_id = record.header("dblog.read_id").and_then(header_text);
    refusal(read_id, StatementKind::Absence, source_table.as_deref(), damage)
}

/// Makes a refusal of what a record says, whatever it says: it is written down at the sink and shown.
fn refusal(read_id: Option<&str>, kind: StatementKind, source_table: Option<&str>, damage: Damage) -> Damaged {
    Damaged {
        read_id: read_id.filter(|id| is_name(id)).map(|id| ReadId(id.to_owned())),
        kind,
        source_table: source_table.map(shown),
        rule: damage.rule,
        reason: shown(&damage.reason),
    }
}

/// Why a statement on this table is refused, if the sink has none.
fn not_there(table: &TableName) -> Damage {
    Damage::new(Rule::OneStream, format!("no stream feeds {table}"))
}

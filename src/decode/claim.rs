//! The payload of a statement or marker.
//!
//! A field that this version does not know refuses the payload, since it may claim less than it seems to; but for fields
//! whose name begins with `x_`. A field that is null counts as absent: a converter may write absent fields so. The
//! signature is checked before anything that the payload claims.

use std::borrow::Cow;

use serde_json::value::RawValue;
use sink_api::{KeyList, KeyRange, KeySet, KeyType, ReadId, Rule, SourceName, StatementKind};

use super::{
    DecodeSettings, authentic,
    event::{Claim, Part, ReadName, Snapshot},
    json::{self, Broken, Kind},
    key::KeyColumns,
    keylist::{self, Damage},
    same_value,
    wire::Wire,
};

/// Longer than any read id that this project writes, and than any table's name; a sink keeps them in an index.
const LONGEST_NAME: usize = 512;

/// What a text is that [`is_name`] does not take.
pub(super) const NO_NAME: &str = "is longer than 512 bytes, or has control characters";

/// The longest text of a damaged record that is repeated.
const LONGEST_SHOWN: usize = 300;

/// Whether a text can be kept as the name of a read or a table.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && !text.contains(char::is_control)
}

/// Makes a text of a damaged record fit to be written down: short, without control characters.
pub(super) fn shown(text: &str) -> String {
    let printable = |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    let mut characters = text.chars();
    let shown: String = characters.by_ref().take(LONGEST_SHOWN).map(printable).collect();
    if characters.next().is_some() { shown + "..." } else { shown }
}

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadKind {
    Low,
    Chunk,
    Keys,
    ChunkInfo,
}

impl PayloadKind {
    /// Returns the kind that a marker names.
    pub(super) fn of_marker(name: &str) -> Option<PayloadKind> {
        match name {
            "low" => Some(PayloadKind::Low),
            "chunk" => Some(PayloadKind::Chunk),
            "keys" => Some(PayloadKind::Keys),
            _ => None,
        }
    }

    /// Returns the form of statement that it is, or begins.
    pub(super) fn statement(self) -> StatementKind {
        match self {
            PayloadKind::Low | PayloadKind::Chunk => StatementKind::Chunk,
            PayloadKind::Keys => StatementKind::Keys,
            PayloadKind::ChunkInfo => StatementKind::ChunkInfo,
        }
    }

    /// Returns the fields that have to be there, and those that may.
    fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            PayloadKind::Low => (&["v", "kind", "read_id", "table", "topic"], &["connector", "mac"]),
            PayloadKind::Chunk => (
                &[
                    "v",
                    "kind",
                    "read_id",
                    "table",
                    "topic",
                    "part",
                    "parts",
                    "range",
                    "selected",
                    "key_types",
                    "snapshot",
                    "settled",
                ],
                &["key_order", "key_columns", "connector", "confirmed", "mac"],
            ),
            PayloadKind::Keys => (
                &[
                    "v",
                    "kind",
                    "read_id",
                    "table",
                    "topic",
                    "part",
                    "parts",
                    "asked",
                    "present",
                    "key_types",
                    "snapshot",
                    "settled",
                ],
                &["key_order", "key_columns", "connector", "confirmed", "mac"],
            ),
            PayloadKind::ChunkInfo => (
                &["table", "read_id", "range", "selected", "changed"],
                &[
                    "v",
                    "key_order",
                    "key_columns",
                    "connector",
                    "rows",
                    "confirmed",
                    "snapshot",
                    "key_types",
                    "topic",
                    "mac",
                    "advisory",
                ],
            ),
        }
    }
}

/// A payload, taken apart by field.
#[derive(Debug)]
pub(super) struct Payload<'a> {
    text: &'a str,
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Payload<'a> {
    /// Takes a payload apart.
    pub(super) fn parse(text: &'a str) -> Result<Payload<'a>, Damage> {
        let mut fields: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(16);
        json::object::<Broken>(text, |name, value| {
            if fields.iter().any(|(field, _)| *field == name) {
                return Err(Broken::Twice(name.into_owned()));
            }
            fields.push((name, value));
            Ok(())
        })
        .map_err(|broken| Damage::whole(format!("the payload {broken}")))?;
        Ok(Payload { text, fields })
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.fields.iter().find(|(field, _)| field == name)?;
        (Kind::of(value) != Kind::Null).then_some(value)
    }

    /// Returns a field's text, if it is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(json::string).filter(|text| !text.is_empty())
    }

    /// Returns what the payload says it is; one without `kind` is a chunk info record.
    pub(super) fn kind(&self) -> Result<PayloadKind, Damage> {
        match self.get("kind") {
            None => Ok(PayloadKind::ChunkInfo),
            Some(_) => self
                .text("kind")
                .and_then(|name| PayloadKind::of_marker(&name))
                .ok_or_else(|| Damage::whole("field `kind` is none of low, chunk and keys")),
        }
    }

    /// Whether the record is meant for sidecars.
    pub(super) fn is_advisory(&self) -> Result<bool, Damage> {
        Ok(self.boolean("advisory")?.unwrap_or(false))
    }

    /// Checks the signature, where one is asked for.
    pub(super) fn check_authentic(&self, settings: &DecodeSettings) -> Result<(), Damage> {
        let Some(key) = &settings.marker_key else { return Ok(()) };
        let damage = |reason: &str| Err(Damage::new(Rule::Authentic, reason));
        match self.text("mac") {
            None => damage("field `mac` is missing, and this worker takes signed markers only"),
            Some(mac) if authentic::is_signed(key, self.text, &mac) => Ok(()),
            Some(_) => damage("field `mac` is not the payload's signature under this worker's key"),
        }
    }

    /// Checks what can be checked without the table: version, fields, topic.
    pub(super) fn check_fields(&self, kind: PayloadKind, topic: &str) -> Result<(), Damage> {
        if let Some(version) = self.get("v")
            && version.get() != "1"
        {
            return Err(Damage::whole("field `v`: this version of the protocol is not known"));
        }
        let (required, optional) = kind.fields();
        for (name, _) in &self.fields {
            let name = &**name;
            if !required.contains(&name) && !optional.contains(&name) && !name.starts_with("x_") {
                return Err(Damage::whole(format!("field `{name}` is not known")));
            }
        }
        if let Some(missing) = required.iter().find(|name| self.get(name).is_none()) {
            return Err(Damage::whole(format!("field `{missing}` is missing")));
        }
        for name in ["read_id", "table"] {
            match self.text(name) {
                None => return Err(Damage::whole(format!("field `{name}` is not text"))),
                Some(text) if !is_name(&text) => return Err(Damage::whole(format!("field `{name}` {NO_NAME}"))),
                Some(_) => {}
            }
        }
        if self.text("table").is_some_and(|table| !table.contains('.')) {
            return Err(Damage::whole("field `table` is not schema.table"));
        }
        match self.get("topic").map(|_| self.text("topic")) {
            Some(None) => Err(Damage::whole("field `topic` is not text")),
            Some(Some(named)) if named != topic => Err(Damage::new(
                Rule::OneStream,
                format!("field `topic`: the record is meant for topic `{named}` and stands in `{topic}`"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the read and its table. The fields were checked.
    pub(super) fn read_name(&self, source: SourceName, table: &std::sync::Arc<sink_api::TableShape>) -> ReadName {
        ReadName {
            read_id: ReadId(self.text("read_id").unwrap_or_default().into_owned()),
            source,
            table: std::sync::Arc::clone(table),
        }
    }

    /// Reads a part of a statement. The fields were checked; `wires` is how the stream carries the key columns.
    pub(super) fn part(
        &self,
        kind: PayloadKind,
        source: SourceName,
        key: &KeyColumns,
        wires: &[Wire],
    ) -> Result<Part, Damage> {
        let key_types = self.key_types(key, wires)?;
        let key = &key.of_sources(key_types.as_deref());
        let byte_order = self.byte_order()?;
        let is_range = kind != PayloadKind::Keys;
        if is_range && !byte_order {
            let text = key.columns().zip(&key.types).find(|(_, key_type)| **key_type == KeyType::Text);
            if let Some((column, _)) = text {
                let reason = format!("field `key_order` is not `bytes`, and key column `{}` is text", column.name);
                return Err(Damage::new(Rule::Order, reason));
            }
        }
        let empty = || KeySet::List(KeyList::new());
        let (range, asked, selected, changed) = if is_range {
            let range = self.get("range").map(|raw| keylist::range(key, raw)).transpose()?.unwrap_or(KeyRange::ALL);
            let list = |field: &str| match self.get(field) {
                Some(raw) => keylist::ascending(key, &range, field, raw),
                None => Ok(empty()),
            };
            let (selected, changed) = (list("selected")?, list("changed")?);
            (range, KeyList::new(), selected, changed)
        } else {
            let asked = self.get("asked").map(|raw| keylist::list(key, "asked", raw)).transpose()?.unwrap_or_default();
            let present = match self.get("present") {
                // Equality is all that matters here, so the source's order may be any.
                Some(raw) => match keylist::set(key, "present", raw)? {
                    KeySet::List(list) => KeySet::List(list.sorted()),
                    intervals => intervals,
                },
                None => empty(),
            };
            (KeyRange::ALL, asked, present, empty())
        };
        let (part, parts) = self.numbers(kind)?;
        let claim = Claim {
            read: self.read_name(source, &key.shape),
            kind: kind.statement(),
            range,
            snapshot: self.snapshot()?,
            settled: self.boolean("settled")?.unwrap_or(false),
            confirmed: self.confirmed()?,
            rows: self.unsigned("rows")?,
            key_types,
            byte_order,
        };
        Ok(Part { claim, part, parts, asked, selected, changed })
    }

    fn numbers(&self, kind: PayloadKind) -> Result<(u32, u32), Damage> {
        if kind == PayloadKind::ChunkInfo {
            return Ok((1, 1));
        }
        let number = |name: &str| {
            let number = self.get(name).and_then(json::number).and_then(|text| text.parse::<u32>().ok());
            number
                .filter(|number| *number > 0)
                .ok_or_else(|| Damage::whole(format!("field `{name}` is not a number from 1")))
        };
        let (part, parts) = (number("part")?, number("parts")?);
        if part > parts {
            return Err(Damage::whole(format!("field `part`: {part} of {parts} parts")));
        }
        Ok((part, parts))
    }

    fn key_types(&self, key: &KeyColumns, wires: &[Wire]) -> Result<Option<Vec<String>>, Damage> {
        let Some(types) = self.texts("key_types")? else { return Ok(None) };
        if types.len() != key.types.len() {
            return Err(Damage::new(
                Rule::SameValue,
                format!(
                    "field `key_types`: the source's key has {} columns, the sink's {}",
                    types.len(),
                    key.types.len()
                ),
            ));
        }
        for ((source_type, wire), column) in types.iter().zip(wires).zip(key.columns()) {
            if let Some(reason) = same_value::differs(source_type, wire, column) {
                return Err(Damage::new(Rule::SameValue, format!("field `key_types`: {reason}")));
            }
        }
        Ok(Some(types))
    }

    /// Checks that several key columns stand at the source in the order of the sink's primary key: else ranges are other
    /// ranges, and keys without names other keys. `in_order` is what the stream's own keys have shown.
    pub(super) fn check_key_columns(&self, key: &KeyColumns, in_order: Option<bool>) -> Result<(), Damage> {
        let sink = key.names();
        let differs = |source: &str| {
            let sink = sink.join(", ");
            let reason = format!(
                "the source's key is {source}, the sink's primary key ({sink}): make it at the sink in the source's order"
            );
            Err(Damage::new(Rule::Order, reason))
        };
        if let Some(source) = self.texts("key_columns")? {
            return if source == sink { Ok(()) } else { differs(&format!("({})", source.join(", "))) };
        }
        match in_order {
            _ if sink.len() < 2 => Ok(()),
            Some(true) => Ok(()),
            Some(false) => differs("in another order, as the stream's keys show"),
            None => Err(Damage::new(
                Rule::Order,
                "field `key_columns` is missing, and no key of the table has come yet to show the order of its columns",
            )),
        }
    }

    /// Returns a list of text, if it is there.
    fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Damage> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let mut texts = Vec::new();
        json::array::<Damage>(raw.get(), |element| {
            texts.push(json::string(element).ok_or_else(|| Damage::whole("it is not text"))?.into_owned());
            Ok(())
        })
        .map_err(|_| Damage::whole(format!("field `{name}` is not a list of text")))?;
        Ok(Some(texts))
    }

    fn byte_order(&self) -> Result<bool, Damage> {
        match self.get("key_order").map(|_| self.text("key_order")) {
            None => Ok(false),
            Some(Some(order)) if order == "bytes" => Ok(true),
            Some(_) => Err(Damage::new(Rule::Order, "field `key_order` is an order that is not known")),
        }
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, Damage> {
        let read =
            |raw| json::boolean(raw).ok_or_else(|| Damage::whole(format!("field `{name}` is not true or false")));
        self.get(name).map(read).transpose()
    }

    fn unsigned(&self, name: &str) -> Result<Option<u64>, Damage> {
        self.get(name).map(|raw| unsigned(name, raw)).transpose()
    }

    fn confirmed(&self) -> Result<Option<u64>, Damage> {
        let Some(raw) = self.get("confirmed") else { return Ok(None) };
        let mut ceiling = None;
        json::object::<Damage>(raw.get(), |name, value| {
            if name != "max_removals" {
                return Err(Damage::whole(format!("field `confirmed.{name}` is not known")));
            }
            match ceiling.replace(unsigned("confirmed.max_removals", value)?) {
                Some(_) => Err(Damage::from(Broken::Twice(name.into_owned()))),
                None => Ok(()),
            }
        })
        .map_err(|damage| damage.within("confirmed"))?;
        ceiling.map(Some).ok_or_else(|| Damage::whole("field `confirmed.max_removals` is missing"))
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, Damage> {
        let Some(raw) = self.get("snapshot") else { return Ok(None) };
        json::string(raw)
            .and_then(|text| snapshot(&text))
            .map(Some)
            .ok_or_else(|| Damage::whole("field `snapshot` is not a snapshot, xmin:xmax:xip,..."))
    }
}

fn unsigned(name: &str, raw: &RawValue) -> Result<u64, Damage> {
    json::number(raw)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Damage::whole(format!("field `{name}` is not a number from 0")))
}

/// Reads a snapshot as `pg_current_snapshot()` writes it.
fn snapshot(text: &str) -> Option<Snapshot> {
    let mut parts = text.split(':');
    let (xmin, xmax, running) = (parts.next()?, parts.next()?, parts.next()?);
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (xmin, xmax) = (number(xmin)?, number(xmax)?);
    let running = match running {
        "" => Vec::new(),
        running => running.split(',').map(number).collect::<Option<Vec<u64>>>()?,
    };
    let is_ordered =
        running.is_sorted_by(|first, second| first < second) && running.iter().all(|xid| (xmin..xmax).contains(xid));
    (parts.next().is_none() && xmin <= xmax && is_ordered).then_some(Snapshot { xmin, xmax, running })
}

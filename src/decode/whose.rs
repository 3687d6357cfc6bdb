//! Whose a record is that does not say its table in an envelope.
//!
//! A flattened row says it in the fields or headers that `ExtractNewRecordState` was told to add, and a tombstone in such
//! headers. What they leave open is found, the surest first: the physical table in a merged topic's key; the operator's
//! word (`--source-table`); the key schema's name, where it is another than the topic's; the delete before a tombstone, by
//! its key; the topic's name, `connector.schema.table`, where the topic carries no other table. What cannot be told is a
//! bad record: a tombstone put down to the wrong table would delete a row.

use sink_api::SourceName;

use super::{
    Stage,
    decoder::Decoder,
    deletes::Told,
    envelope::Added,
    fault::Fault,
    key::physical_table,
    markers::connector_of,
    said::{Named, Said, is_rendered},
    schema::Split,
};
use crate::record::Record;

impl Decoder {
    /// Finds the table of a tombstone. What it says itself leaves some of the tables met before; of those the one is meant
    /// whose last event of this key was a delete: there the tombstone takes nothing that lives. Without such a delete it
    /// has to say enough to leave one table only.
    pub(super) fn table_of_tombstone(
        &mut self,
        record: &Record,
        bytes: &[u8],
        split: &Split<'_>,
        added: &Added<'_>,
    ) -> Result<usize, Fault> {
        if let Some(table) = self.table_by_certain_name(split.payload, connector_of(record))? {
            return Ok(table);
        }
        let schema_name =
            if split.has_schema { self.keys.current().and_then(|entry| entry.schema.name()) } else { None };
        let schema_name = schema_name.and_then(|name| name.strip_suffix(".Key"));
        // A router that merges topics may name the schema after the merged one; names are adjusted in schemas.
        let schema_name = schema_name.filter(|name| !is_rendered(name, &self.topic)).map(str::to_owned);
        let said = Said { named: named(record, added), schema_name: schema_name.as_deref() };
        let fitting = self.tables.fitting(&said);
        match self.deletes.told(bytes, &fitting) {
            Told::Of(table) => return Ok(table),
            Told::Unread if !said.names_table() => return Err(unnamed_tombstone()),
            Told::Unread | Told::Nothing => {}
        }
        if !said.names_table() {
            // A name without its schema is of the topic's own table, or of the operator's.
            return match said.named.table {
                "" => self.table_of_lone_topic(&said.named, &fitting),
                _ => self.table_of_row(record, added),
            };
        }
        if fitting.is_empty() {
            return self.table_not_met(record, added, &said);
        }
        let Some(table) = self.tables.one_of(&fitting) else { return Err(unnamed_tombstone()) };
        let feed = self.tables.feed(table);
        let (source, sink) = (feed.source.name(), &feed.sink);
        // Of a table that no record has come of in this life it may be as well.
        let mut known = self.carried.iter().filter(|(carried, _)| said.fits(carried));
        match known.all(|(known, known_sink)| known.may_be(&source) && known_sink == sink) {
            true => Ok(table),
            false => Err(unnamed_tombstone()),
        }
    }

    /// Returns the number of a table that a tombstone names and that no record has come of in this life: one that the topic
    /// is known to carry, else the one of that very name. A schema's name may be another table's, written otherwise.
    fn table_not_met(&mut self, record: &Record, added: &Added<'_>, said: &Said<'_>) -> Result<usize, Fault> {
        let mut known = self.carried.iter().filter(|(carried, _)| said.fits(carried)).cloned();
        let first = known.next();
        if let Some((first, sink)) = first {
            if known.any(|(other, other_sink)| !other.may_be(&first) || other_sink != sink) {
                return Err(unnamed_tombstone());
            }
            let (schema, table) = first.table.split_once('.').ok_or_else(unnamed_tombstone)?;
            if table.contains('.') {
                return Err(unnamed_tombstone());
            }
            let Named { connector, database, .. } = said.named;
            let connector = if connector.is_empty() { &first.connector } else { connector };
            let database = if database.is_empty() { &first.database } else { database };
            return self.tables.find(Named { connector, database, schema, table }, &self.settings);
        }
        let Some(name) = said.schema_name.filter(|_| said.named.table.is_empty() || said.named.schema.is_empty())
        else {
            return self.table_of_row(record, added);
        };
        if name.contains('_') {
            return Err(unnamed_tombstone());
        }
        let by_name = topic_parts(name).ok_or_else(unnamed_tombstone)?;
        let connector = self.connector_or_topics(said.named.connector, by_name.connector);
        self.tables.find(Named { connector, ..by_name }, &self.settings)
    }

    /// Finds the table of a tombstone that says nothing: the topic's only one.
    fn table_of_lone_topic(&mut self, named: &Named<'_>, fitting: &[usize]) -> Result<usize, Fault> {
        if let Some(table) = self.only_table().filter(|table| fitting.contains(table)) {
            return Ok(table);
        }
        let topic = self.topic.clone();
        match topic_parts(&topic) {
            Some(by_topic) if self.tables.is_empty() && self.carries_only(&short_name(by_topic)) => {
                let connector = self.connector_or_topics(named.connector, by_topic.connector);
                self.tables.find(Named { connector, ..by_topic }, &self.settings)
            }
            _ => Err(unnamed_tombstone()),
        }
    }

    pub(super) fn table_of_row(&mut self, record: &Record, added: &Added<'_>) -> Result<usize, Fault> {
        let topic = self.topic.clone();
        let by_topic = topic_parts(&topic).unwrap_or_default();
        let named = named(record, added);
        let table = named.table;
        if !table.is_empty() {
            let is_topics = by_topic.table == table;
            let assigned = self.settings.mapping.assigned(&topic).filter(|(_, assigned)| *assigned == table);
            let assigned = assigned.map(|(schema, _)| schema.to_owned());
            let schema = match (named.schema, &assigned) {
                ("", Some(schema)) => schema,
                ("", None) if is_topics => by_topic.schema,
                ("", None) => return Err(self.unnamed_table()),
                (schema, _) => schema,
            };
            let is_topics = is_topics && by_topic.schema == schema;
            let topics = if is_topics { by_topic.connector } else { "" };
            let connector = self.connector_or_topics(named.connector, topics);
            return self.find_partial(Named { connector, schema, ..named });
        }
        let key = record.key.as_deref().and_then(|key| self.keys.split(key).ok()).map(|split| split.payload.to_owned());
        if let Some(table) = self.table_by_certain_name(key.as_deref().unwrap_or_default(), connector_of(record))? {
            return Ok(table);
        }
        if by_topic.table.is_empty() {
            return Err(self.unnamed_table());
        }
        let connector = self.connector_or_topics(named.connector, by_topic.connector);
        self.find_partial(Named { connector, database: named.database, ..by_topic })
    }

    /// Finds the table of this name; what it leaves open is taken from the one table that it fits, of those met and of those
    /// that the topic is known to carry.
    fn find_partial(&mut self, named: Named<'_>) -> Result<usize, Fault> {
        let said = Said { named, schema_name: None };
        let known = self.carried.iter().map(|(carried, _)| carried).filter(|carried| said.fits(carried));
        let is_one = SourceName::are_one(known);
        // Where the connector decides where a row goes, what is not said is not guessed.
        let is_sure = !named.connector.is_empty() || !self.settings.mapping.needs_connector();
        match is_one && is_sure {
            true => self.tables.find_partial(named, &self.settings),
            false => self.tables.find(named, &self.settings),
        }
    }

    /// Returns the connector that a record names; the topic's name only says where rows go, where that depends on it: a
    /// topic may be called otherwise.
    fn connector_or_topics<'n>(&self, said: &'n str, topics: &'n str) -> &'n str {
        if said.is_empty() && self.settings.mapping.needs_connector() { topics } else { said }
    }

    fn unnamed_table(&self) -> Fault {
        Fault::Setup {
            reason: format!("topic `{}` carries flattened rows that do not say their table", self.topic),
            hint: format!(
                "start with --source-table {}=SCHEMA.TABLE, or have the connector say it (add.fields=schema,table)",
                self.topic
            ),
        }
    }

    /// Finds the table that the key's physical table or the operator names.
    fn table_by_certain_name(&mut self, key: &str, connector: Option<&str>) -> Result<Option<usize>, Fault> {
        if let Some(physical) = physical_table(key)
            && let Some(named) = topic_parts(&physical)
        {
            let connector = connector.unwrap_or(named.connector);
            return self.find_partial(Named { connector, ..named }).map(Some);
        }
        let assigned = self.settings.mapping.assigned(&self.topic);
        let Some((schema, table)) = assigned.map(|(schema, table)| (schema.to_owned(), table.to_owned())) else {
            return Ok(None);
        };
        let connector = connector.unwrap_or_default();
        let named = Named { connector, schema: &schema, table: &table, ..Named::default() };
        self.find_partial(named).map(Some)
    }

    /// Returns the table that the topic is named after, where no other one is known to come by it.
    pub(super) fn only_table(&mut self) -> Option<usize> {
        let table = self.table_of_topic()?;
        let source = self.tables.feed(table).source.name();
        (self.tables.are_all(&source) && self.carries_only(&source)).then_some(table)
    }

    /// Whether all that the topic is known to carry may be one table, and this one.
    fn carries_only(&self, source: &SourceName) -> bool {
        SourceName::are_one(self.carried.iter().map(|(carried, _)| carried).chain([source]))
    }

    /// Returns the table met before that the topic is named after.
    pub(super) fn table_of_topic(&self) -> Option<usize> {
        self.tables.of_topic(&self.topic)
    }
}

fn unnamed_tombstone() -> Fault {
    let reason = "the tombstone does not say its table, or says what fits several; no delete right before it says it (it \
                  may lie too far back, before a restart: then it was applied, and the tombstone can be stepped over), \
                  and by the topic's name it cannot be told, or other tables come by this topic too; of a topic with \
                  one table name it with --source-table; of flattened rows have the connector say it \
                  (add.headers=source.name,source.schema,source.table)";
    Fault::Bad(Stage::TaskPut, reason.to_owned())
}

/// Returns what a flattened row or a tombstone says of its table.
fn named<'a>(record: &'a Record, added: &'a Added<'_>) -> Named<'a> {
    let text = |text: &'a Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default();
    let connector = added.connector.as_deref().or_else(|| connector_of(record)).unwrap_or_default();
    Named { connector, database: text(&added.database), schema: text(&added.schema), table: text(&added.table) }
}

/// Returns a table's name without what the topic's own name says of its connector, which may be another's.
fn short_name(named: Named<'_>) -> SourceName {
    SourceName::of_table(format!("{}.{}", named.schema, named.table))
}

/// Takes a topic's name apart: `connector.schema.table`. The connector's own name may have dots.
pub(super) fn topic_parts(topic: &str) -> Option<Named<'_>> {
    let (rest, table) = topic.rsplit_once('.')?;
    let (connector, schema) = rest.rsplit_once('.')?;
    let is_whole = [connector, schema, table].iter().all(|part| !part.is_empty());
    is_whole.then_some(Named { connector, database: "", schema, table })
}

//! The tables whose records a lane has met: source table, sink table, and what was found out about them.

use std::{collections::HashMap, sync::Arc};

use sink_api::{NotNative, SourceName, TableName, TableShape};

use super::{
    DecodeSettings, SourceTable,
    fault::Fault,
    key::{KeyColumns, ReadKey},
    row::RowPlan,
    wire::Wire,
};

/// One source table.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) source: Arc<SourceTable>,
    pub(super) sink: TableName,
    /// What the sink's table is like, once it is known.
    known: Option<Known>,
    /// Whether it is Debezium's signal table.
    pub(super) is_signal: bool,
    /// Whether a change of it has come; else only statements have named it.
    met: bool,
}

/// What is known of a table once the sink's shape is.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: Result<KeyColumns, NotNative>,
    pub(super) shape: Arc<TableShape>,
    /// How keys are written where no schema says it.
    pub(super) assumed_key: Vec<Wire>,
    /// How the last key with a schema was written.
    pub(super) schema_key: Option<Vec<Wire>>,
    /// Whether the columns of keys stand in the order of the sink's primary key, as the last key showed.
    pub(super) in_order: Option<bool>,
    /// The plan of rows without schemas.
    pub(super) envelope: RowPlan,
    /// The same of flattened rows.
    pub(super) flattened: RowPlan,
}

impl Feed {
    /// Returns what is known of the table.
    pub(super) fn known(&mut self) -> Result<&mut Known, Fault> {
        self.known.as_mut().ok_or_else(|| Fault::Needs(self.sink.clone()))
    }

    /// Whether the sink's table is known.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Returns the table's shape, if it is known.
    pub(super) fn shape(&self) -> Option<&Arc<TableShape>> {
        self.known.as_ref().map(|known| &known.shape)
    }
}

impl Known {
    fn new(shape: &Arc<TableShape>, settings: &DecodeSettings) -> Known {
        let key = shape.key_types().map(|types| KeyColumns {
            shape: Arc::clone(shape),
            types,
            oids: Vec::new(),
            binary: settings.modes.binary,
        });
        Known {
            assumed_key: key.as_ref().map(|key| key.assumed(settings)).unwrap_or_default(),
            key,
            shape: Arc::clone(shape),
            schema_key: None,
            in_order: None,
            envelope: RowPlan::default(),
            flattened: RowPlan::default(),
        }
    }

    /// Takes note of what a key shows.
    pub(super) fn seen(&mut self, read: ReadKey) -> ReadKey {
        self.in_order = read.in_order.or(self.in_order);
        read
    }

    /// Returns the key columns.
    pub(super) fn key(&self) -> Result<&KeyColumns, Fault> {
        self.key.as_ref().map_err(|not_native| Fault::Setup {
            reason: format!("the sink table {}: {}", self.shape.name, not_native.reason),
            hint: not_native.hint.clone().unwrap_or_else(|| "give the table another primary key".to_owned()),
        })
    }
}

/// The tables of a lane.
#[derive(Debug, Default)]
pub(super) struct Tables {
    feeds: Vec<Feed>,
    by_source: HashMap<SourceTable, usize>,
    shapes: HashMap<TableName, Arc<TableShape>>,
    last: usize,
}

/// What a record says of its source table; empty where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    pub(super) connector: &'a str,
    pub(super) database: &'a str,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
}

/// What a tombstone says of its source table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    pub(super) named: Named<'a>,
    /// What its key's schema is named after: `connector.schema.table`, in which other characters than letters and digits
    /// have become `_`.
    pub(super) schema_name: Option<&'a str>,
}

impl Said<'_> {
    /// Whether it says which table it is.
    pub(super) fn names_table(&self) -> bool {
        self.schema_name.is_some() || !self.named.table.is_empty()
    }

    /// Whether it may be of a table.
    pub(super) fn fits(&self, source: &SourceName) -> bool {
        let Named { connector, database, schema, table } = self.named;
        let may_be = |own: &str, said: &str| own.is_empty() || said.is_empty() || own == said;
        let is_table = match (schema, table) {
            (_, "") => true,
            ("", table) => source.table.strip_suffix(table).is_some_and(|rest| rest.ends_with('.')),
            (schema, table) => source.table.strip_prefix(schema).and_then(|rest| rest.strip_prefix('.')) == Some(table),
        };
        let is_named_after = |name: &str| {
            adjusted_suffix(name, &format!(".{}", source.table)).is_some_and(|connector| {
                source.connector.is_empty() || adjusted_suffix(connector, &source.connector) == Some("")
            })
        };
        is_table
            && may_be(&source.connector, connector)
            && may_be(&source.database, database)
            && self.schema_name.is_none_or(is_named_after)
    }
}

impl Tables {
    /// Takes the shape of a sink table, in place of an earlier one.
    pub(super) fn learn(&mut self, shape: Arc<TableShape>, settings: &DecodeSettings) {
        for feed in self.feeds.iter_mut().filter(|feed| feed.sink == shape.name) {
            let schema_key = feed.known.take().and_then(|known| known.schema_key);
            // How keys come is the source's doing; it holds unless the key's columns are others now.
            let schema_key = schema_key.filter(|wires| wires.len() == shape.key.len());
            feed.known = Some(Known { schema_key, ..Known::new(&shape, settings) });
        }
        self.shapes.insert(shape.name.clone(), shape);
    }

    /// Returns the sink table of the source table of this name (`schema.table`).
    pub(super) fn sink_of(&self, source: &str) -> Option<&TableName> {
        self.feeds.iter().find(|feed| feed.source.short() == source).map(|feed| &feed.sink)
    }

    /// Forgets the table met last, if it is one that only a statement has named, and is not known: statements may name any
    /// number of tables that are not there.
    pub(super) fn forget_unknown(&mut self, sink: &TableName) {
        if let Some(feed) = self.feeds.pop_if(|feed| feed.sink == *sink && !feed.is_known() && !feed.met) {
            self.by_source.remove(&*feed.source);
            self.last = 0;
        }
    }

    /// Returns a table by its number.
    pub(super) fn feed(&mut self, index: usize) -> &mut Feed {
        &mut self.feeds[index]
    }

    /// Returns the number of the table of this name, of which a change has come; a new one if need be.
    pub(super) fn find(&mut self, named: Named<'_>, settings: &DecodeSettings) -> Result<usize, Fault> {
        let is_named = |source: &SourceTable| {
            source.table == named.table
                && source.schema == named.schema
                && source.connector == named.connector
                && source.database == named.database
        };
        if self.feeds.get(self.last).is_some_and(|feed| feed.met && is_named(&feed.source)) {
            return Ok(self.last);
        }
        let source = SourceTable {
            connector: named.connector.to_owned(),
            database: named.database.to_owned(),
            schema: named.schema.to_owned(),
            table: named.table.to_owned(),
        };
        self.last = self.number_of(source, settings)?;
        self.feeds[self.last].met = true;
        Ok(self.last)
    }

    fn number_of(&mut self, source: SourceTable, settings: &DecodeSettings) -> Result<usize, Fault> {
        match self.by_source.get(&source) {
            Some(index) => Ok(*index),
            None => self.add(source, settings),
        }
    }

    /// Returns the number of the table of this name; what the name leaves open is taken from the one table met before
    /// that it fits. Where it fits several it stays open, and where it says more it is the table's name.
    pub(super) fn find_partial(&mut self, named: Named<'_>, settings: &DecodeSettings) -> Result<usize, Fault> {
        let says_no_more = |source: &SourceTable| {
            (named.connector.is_empty() || source.connector == named.connector)
                && (named.database.is_empty() || source.database == named.database)
        };
        match self.fitting(&Said { named, schema_name: None })[..] {
            [index] if says_no_more(&self.feeds[index].source) => Ok(index),
            _ => self.find(named, settings),
        }
    }

    /// Returns the tables met before that what is said fits.
    pub(super) fn fitting(&self, said: &Said<'_>) -> Vec<usize> {
        self.met().filter(|(_, source)| said.fits(&source.name())).map(|(index, _)| index).collect()
    }

    /// Returns the tables of which changes have come.
    fn met(&self) -> impl Iterator<Item = (usize, &SourceTable)> {
        self.feeds.iter().enumerate().filter(|(_, feed)| feed.met).map(|(index, feed)| (index, &*feed.source))
    }

    /// Returns the number of the table that a statement is of. `carried` is what the topic is known to carry. A statement
    /// feeds nothing: a table that only statements name is not one that comes by the topic.
    pub(super) fn of_statement(
        &mut self,
        source: &SourceName,
        topic: &str,
        carried: &[(SourceName, TableName)],
        settings: &DecodeSettings,
    ) -> Result<usize, Fault> {
        let met: Vec<SourceName> = self.met().map(|(_, met)| met.name()).filter(|met| met.may_be(source)).collect();
        let known: Vec<&SourceName> =
            carried.iter().map(|(carried, _)| carried).filter(|carried| carried.may_be(source)).chain(&met).collect();
        // Records of one table may say more or less of where they come from.
        let several = known.iter().find_map(|one| Some((one, known.iter().find(|other| !other.may_be(one))?)));
        if let Some((one, other)) = several {
            return Err(unnamed(format!(
                "tables called {} of several connectors or databases come by this topic ({one} and {other}), and the record \
                 does not say which it means",
                source.table
            )));
        }
        let (schema, table) = source.table.split_once('.').unwrap_or(("", &source.table));
        let connector = match source.connector.as_str() {
            "" if settings.mapping.needs_connector() => {
                topic.strip_suffix(source.table.as_str()).and_then(|rest| rest.strip_suffix('.')).unwrap_or_default()
            }
            connector => connector,
        };
        if connector.is_empty() && settings.mapping.needs_connector() {
            let reason =
                format!("the record does not name its connector, and where rows of {} go depends on it", source.table);
            return Err(unnamed(reason));
        }
        if let Some(index) = self.met().find(|(_, met)| met.name().may_be(source)).map(|(index, _)| index) {
            return Ok(index);
        }
        let source = SourceTable {
            connector: connector.to_owned(),
            database: source.database.clone(),
            schema: schema.to_owned(),
            table: table.to_owned(),
        };
        self.number_of(source, settings)
    }

    /// Returns the number of the table met before that a topic is named after: `...schema.table`.
    pub(super) fn of_topic(&self, topic: &str) -> Option<usize> {
        let is_named = |source: &SourceTable| {
            topic
                .strip_suffix(source.table.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .and_then(|rest| rest.strip_suffix(source.schema.as_str()))
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.met().find(|(_, source)| is_named(source)).map(|(index, _)| index)
    }

    /// Whether all tables met are this one, as far as they say where they come from.
    pub(super) fn are_all(&self, source: &SourceName) -> bool {
        self.met().all(|(_, met)| met.name().may_be(source))
    }

    /// Whether no table was met yet.
    pub(super) fn is_empty(&self) -> bool {
        self.met().next().is_none()
    }

    fn add(&mut self, source: SourceTable, settings: &DecodeSettings) -> Result<usize, Fault> {
        let sink = settings
            .mapping
            .sink_table(&source)
            .map_err(|error| Fault::Setup { reason: error.reason, hint: error.hint })?;
        let known = self.shapes.get(&sink).map(|shape| Known::new(shape, settings));
        let is_signal = settings.signal_table.as_deref() == Some(&*source.short());
        let index = self.feeds.len();
        self.by_source.insert(source.clone(), index);
        self.feeds.push(Feed { source: Arc::new(source), sink, known, is_signal, met: false });
        Ok(index)
    }
}

fn unnamed(reason: String) -> Fault {
    let hint = "write the connector's topic.prefix into the marker's field `connector` (header `dblog.connector`)";
    Fault::Setup { reason, hint: hint.to_owned() }
}

/// Takes `suffix` off the end of a schema's name, where other characters than letters and digits count as one.
fn adjusted_suffix<'n>(name: &'n str, suffix: &str) -> Option<&'n str> {
    let (rest, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
    is_adjusted(end, suffix).then_some(rest)
}

/// Whether a schema's name is a topic's, but for characters that schemas may not have.
pub(super) fn is_adjusted(name: &str, topic: &str) -> bool {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'_' };
    name.len() == topic.len() && name.bytes().zip(topic.bytes()).all(|(left, right)| plain(left) == plain(right))
}

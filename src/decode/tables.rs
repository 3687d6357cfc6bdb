//! The tables whose records a lane has met: source table, sink table, and what was found out about them.

use std::{collections::HashMap, sync::Arc};

use sink_api::{NotNative, SourceName, TableName, TableShape};

use super::{
    DecodeSettings, SourceTable,
    fault::Fault,
    key::{KeyColumns, ReadKey},
    row::RowPlan,
    said::{Named, Said, plain},
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
        self.met().filter(|(_, source)| said.fits_table(source)).map(|(index, _)| index).collect()
    }

    /// Returns the one table that these are, which may say more or less of where it is.
    pub(super) fn one_of(&self, tables: &[usize]) -> Option<usize> {
        let first = *tables.first()?;
        let are_one = |one: usize, other: usize| {
            let (one, other) = (&self.feeds[one], &self.feeds[other]);
            one.sink == other.sink && one.source.is_alike(&other.source)
        };
        tables.iter().all(|one| tables.iter().all(|other| are_one(*one, *other))).then_some(first)
    }

    /// Returns the tables whose rows are those of this one at the sink.
    pub(super) fn sharing_sink(&self, table: usize) -> Vec<usize> {
        let sink = &self.feeds[table].sink;
        self.feeds.iter().enumerate().filter(|(_, feed)| feed.sink == *sink).map(|(index, _)| index).collect()
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
        let met: Vec<usize> = self.met().filter(|(_, met)| met.name().may_be(source)).map(|(index, _)| index).collect();
        let of_met = met.iter().map(|index| (self.feeds[*index].source.name(), self.feeds[*index].sink.clone()));
        let known: Vec<(SourceName, TableName)> =
            carried.iter().filter(|(carried, _)| carried.may_be(source)).cloned().chain(of_met).collect();
        // Records of one table may say more or less of where they come from. Names with dots may mean two tables.
        let are_two = |one: &(SourceName, TableName), other: &(SourceName, TableName)| {
            !one.0.may_be(&other.0) || one.1 != other.1
        };
        let several = known.iter().find_map(|one| Some((one, known.iter().find(|other| are_two(one, other))?)));
        if let Some((one, other)) = several {
            return Err(unnamed(format!(
                "tables called {} of several connectors, databases or schemas come by this topic ({} into {} and {} into {}), \
                 and the record does not say which it means",
                source.table, one.0, one.1, other.0, other.1
            )));
        }
        let (schema, table) = source.table.split_once('.').unwrap_or(("", &source.table));
        let by_topic =
            topic.strip_suffix(source.table.as_str()).and_then(|rest| rest.strip_suffix('.')).unwrap_or_default();
        // In doubt a row stays: where rows do not name their connector, the topic's name may be all that does.
        let is_unsaid = !known.is_empty() && known.iter().all(|(known, _)| known.connector.is_empty());
        if is_unsaid && ![by_topic, source.connector.as_str()].contains(&"") && by_topic != source.connector {
            let reason = format!(
                "the rows of {} do not name their connector, by the topic's name it is {by_topic}, and the record is of {}",
                source.table, source.connector
            );
            let hint = "have the connector say it in its rows: add.headers=source.name";
            return Err(Fault::Setup { reason: format!("{reason}; {hint}"), hint: hint.to_owned() });
        }
        let connector = match source.connector.as_str() {
            "" if settings.mapping.needs_connector() => by_topic,
            connector => connector,
        };
        if connector.is_empty() && settings.mapping.needs_connector() {
            let reason =
                format!("the record does not name its connector, and where rows of {} go depends on it", source.table);
            return Err(unnamed(reason));
        }
        let named = SourceName { connector: connector.to_owned(), ..source.clone() };
        if let Some((other, _)) = known.iter().find(|(known, _)| !known.may_be(&named)) {
            return Err(unnamed(format!(
                "the record does not name its connector, by the topic's name it is {connector}, and {other} comes by the topic"
            )));
        }
        if let Some(index) = met.first() {
            return Ok(*index);
        }
        let source = SourceTable {
            connector: connector.to_owned(),
            database: source.database.clone(),
            schema: schema.to_owned(),
            table: table.to_owned(),
        };
        self.number_of(source, settings)
    }

    /// Returns the number of the table met before that a topic is named after: `...schema.table`, in which characters that
    /// topics may not have are `_`.
    pub(super) fn of_topic(&self, topic: &str) -> Option<usize> {
        let is_named = |source: &SourceTable| {
            let own = plain(&source.short(), |character| matches!(character, '.' | '_' | '-'));
            [source.short(), own]
                .iter()
                .any(|own| topic.strip_suffix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        };
        let named: Vec<usize> = self.met().filter(|(_, source)| is_named(source)).map(|(index, _)| index).collect();
        self.one_of(&named)
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

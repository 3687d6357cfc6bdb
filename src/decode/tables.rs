//! The tables whose records a lane has met: source table, sink table, and what was found out about them.

use std::{collections::HashMap, sync::Arc};

use sink_api::{NotNative, TableName, TableShape};

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

/// What a statement says of where its table is.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementOrigin<'a> {
    pub(super) connector: &'a str,
    pub(super) database: &'a str,
    /// Whether the record itself says it, rather than the topic's name.
    pub(super) stated: bool,
}

/// What a record says of its source table; empty where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    pub(super) connector: &'a str,
    pub(super) database: &'a str,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
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

    /// Returns the number of the table met before of this name (`schema.table`).
    pub(super) fn number_of(&self, source: &str) -> Option<usize> {
        self.feeds.iter().position(|feed| feed.source.short() == source)
    }

    /// Forgets the table met last, unless it is known: statements may name any number of tables that are not there.
    pub(super) fn forget_unknown(&mut self, sink: &TableName) {
        if let Some(feed) = self.feeds.pop_if(|feed| feed.sink == *sink && !feed.is_known()) {
            self.by_source.remove(&*feed.source);
            self.last = 0;
        }
    }

    /// Returns a table by its number.
    pub(super) fn feed(&mut self, index: usize) -> &mut Feed {
        &mut self.feeds[index]
    }

    /// Returns the number of the table of this name, a new one if need be.
    pub(super) fn find(&mut self, named: Named<'_>, settings: &DecodeSettings) -> Result<usize, Fault> {
        let is_named = |source: &SourceTable| {
            source.table == named.table
                && source.schema == named.schema
                && source.connector == named.connector
                && source.database == named.database
        };
        if self.feeds.get(self.last).is_some_and(|feed| is_named(&feed.source)) {
            return Ok(self.last);
        }
        let source = SourceTable {
            connector: named.connector.to_owned(),
            database: named.database.to_owned(),
            schema: named.schema.to_owned(),
            table: named.table.to_owned(),
        };
        self.last = match self.by_source.get(&source) {
            Some(index) => *index,
            None => self.add(source, settings)?,
        };
        Ok(self.last)
    }

    /// Returns the number of the table of this name; what the name leaves open is taken from a table met before.
    pub(super) fn find_partial(&mut self, named: Named<'_>, settings: &DecodeSettings) -> Result<usize, Fault> {
        let fits = |own: &str, named: &str| named.is_empty() || own == named;
        let met = self.feeds.iter().position(|feed| {
            feed.source.table == named.table
                && fits(&feed.source.schema, named.schema)
                && fits(&feed.source.connector, named.connector)
                && fits(&feed.source.database, named.database)
        });
        match met {
            Some(index) => Ok(index),
            None => self.find(named, settings),
        }
    }

    /// Returns the number of the table that statements call `name` (`schema.table`). `carried` is what the topic is known
    /// to carry.
    pub(super) fn find_short(
        &mut self,
        name: &str,
        origin: StatementOrigin<'_>,
        carried: &[(String, TableName)],
        settings: &DecodeSettings,
    ) -> Result<usize, Fault> {
        let StatementOrigin { connector, database, stated } = origin;
        if connector.is_empty() && settings.mapping.needs_connector() {
            let reason = format!("the record does not name its connector, and where rows of {name} go depends on it");
            return Err(unnamed(reason));
        }
        let at = |connector: &str, database: &str| SourceTable {
            connector: connector.to_owned(),
            database: database.to_owned(),
            schema: String::new(),
            table: String::new(),
        };
        let place = at(connector, database);
        // The topic's name says nothing where tables of that name of several connectors come by it.
        let said = if stated { place.clone() } else { at("", "") };
        let sources = self.feeds.iter().map(|feed| &feed.source);
        let mut fitting = sources.filter(|source| source.short() == name && source.may_be(&said));
        let first = fitting.next();
        // Records of one table may say more or less of where they come from.
        let other = first.and_then(|first| fitting.find(|other| !other.may_be(first)));
        let several = !stated
            && settings.mapping.needs_connector()
            && carried.iter().filter(|(source, _)| source == name).count() > 1;
        if several || other.is_some() {
            let origins: Vec<String> = first.into_iter().chain(other).map(|source| source.origin()).collect();
            return Err(unnamed(format!(
                "tables called {name} of several connectors or databases come by this topic ({}), and the record does not \
                 say which it means",
                origins.join(" and ")
            )));
        }
        match self.feeds.iter().position(|feed| feed.source.short() == name && feed.source.may_be(&place)) {
            Some(index) => Ok(index),
            None => {
                let (schema, table) = name.split_once('.').unwrap_or(("", name));
                self.find(Named { connector, database, schema, table }, settings)
            }
        }
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
        self.feeds.iter().position(|feed| is_named(&feed.source))
    }

    /// Whether all tables met are this one, as far as they say where they come from.
    pub(super) fn are_all(&self, source: &SourceTable) -> bool {
        self.feeds.iter().all(|feed| {
            feed.source.schema == source.schema && feed.source.table == source.table && feed.source.may_be(source)
        })
    }

    /// Whether no table was met yet.
    pub(super) fn is_empty(&self) -> bool {
        self.feeds.is_empty()
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
        self.feeds.push(Feed { source: Arc::new(source), sink, known, is_signal });
        Ok(index)
    }
}

fn unnamed(reason: String) -> Fault {
    let hint = "write the connector's topic.prefix into the marker's field `connector` (header `dblog.connector`)";
    Fault::Setup { reason, hint: hint.to_owned() }
}

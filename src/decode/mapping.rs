//! Which sink table a source table goes to.
//!
//! A template such as `{schema}.{table}` names the sink table; its placeholders are what the source's records say of
//! their table. Flattened rows often say nothing: then the topic's name does (`connector.schema.table`), or the operator
//! (`--source-table TOPIC=SCHEMA.TABLE`).

use std::collections::HashMap;

use sink_api::{SourceName, TableName};

use super::SourceTable;

/// A template or an assignment that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct MappingError {
    /// What is wrong.
    pub reason: String,
    /// What to write in its place.
    pub hint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Connector,
    Database,
    Schema,
    Table,
}

impl Placeholder {
    const ALL: [(&'static str, Placeholder); 4] = [
        ("connector", Placeholder::Connector),
        ("database", Placeholder::Database),
        ("schema", Placeholder::Schema),
        ("table", Placeholder::Table),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Value(&'static str, Placeholder),
}

/// The mapping from source tables to sink tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMapping {
    template: String,
    schema: Vec<Piece>,
    name: Vec<Piece>,
    source_tables: HashMap<String, (String, String)>,
}

impl Default for TableMapping {
    /// A table goes to the table of its own name.
    fn default() -> TableMapping {
        TableMapping::parse("{schema}.{table}").expect("the default template is a template")
    }
}

impl TableMapping {
    /// Whether it depends on the connector or on the database from which a row comes.
    pub(super) fn needs_connector(&self) -> bool {
        let is_origin =
            |piece: &Piece| matches!(piece, Piece::Value(_, Placeholder::Connector | Placeholder::Database));
        self.schema.iter().chain(&self.name).any(is_origin)
    }

    /// Returns where a source table goes whose name is known as `schema.table`; `None` where that leaves it open: a name
    /// with more dots, or where the table depends on something that the name does not say.
    pub(super) fn sink_of(&self, source: &SourceName) -> Option<TableName> {
        let (schema, table) = source.table.split_once('.').filter(|(_, table)| !table.contains('.'))?;
        if self.needs_connector() && (source.connector.is_empty() || source.database.is_empty()) {
            return None;
        }
        let source = SourceTable {
            connector: source.connector.clone(),
            database: source.database.clone(),
            schema: schema.to_owned(),
            table: table.to_owned(),
        };
        self.sink_table(&source).ok()
    }

    /// Parses a template: the sink's schema, a dot, the sink's table. Text stands for itself; `{connector}`,
    /// `{database}`, `{schema}` and `{table}` stand for the source table's.
    ///
    /// # Errors
    /// When it has no dot or several, an empty part, or a placeholder that is not known.
    pub fn parse(template: &str) -> Result<TableMapping, MappingError> {
        let error = |reason: String, hint: &str| {
            Err(MappingError { reason: format!("sink table template `{template}`: {reason}"), hint: hint.to_owned() })
        };
        let mut parts = vec![Vec::new()];
        let mut rest = template;
        while let Some(next) = rest.chars().next() {
            let pieces = parts.last_mut().expect("there is always a last part");
            match next {
                '{' => {
                    let Some((inner, after)) = rest[1..].split_once('}') else {
                        return error("a placeholder is not closed".to_owned(), "write {table}");
                    };
                    let Some((name, placeholder)) = Placeholder::ALL.into_iter().find(|(name, _)| *name == inner)
                    else {
                        return error(
                            format!("the placeholder {{{inner}}} is not known"),
                            "the placeholders are {connector}, {database}, {schema} and {table}",
                        );
                    };
                    pieces.push(Piece::Value(name, placeholder));
                    rest = after;
                }
                '}' => return error("a `}` has no `{`".to_owned(), "write {table}"),
                '.' => {
                    parts.push(Vec::new());
                    rest = &rest[1..];
                }
                _ => {
                    let (literal, after) = rest.split_at(rest.find(['{', '}', '.']).unwrap_or(rest.len()));
                    pieces.push(Piece::Literal(literal.to_owned()));
                    rest = after;
                }
            }
        }
        let hint = "write the sink's schema, a dot and the table: {schema}.{table} or public.{schema}_{table}";
        match <[Vec<Piece>; 2]>::try_from(parts) {
            Ok([schema, name]) if !schema.is_empty() && !name.is_empty() => {
                Ok(TableMapping { template: template.to_owned(), schema, name, source_tables: HashMap::new() })
            }
            Ok(_) => error("the schema or the table is empty".to_owned(), hint),
            Err(parts) => error(format!("it has {} dots outside of placeholders, not one", parts.len() - 1), hint),
        }
    }

    /// Says which source table the records of `topic` are of, when they do not.
    ///
    /// # Errors
    /// When the topic has one already.
    pub fn assign(&mut self, topic: &str, table: &TableName) -> Result<(), MappingError> {
        match self.source_tables.insert(topic.to_owned(), (table.schema.clone(), table.name.clone())) {
            None => Ok(()),
            Some(_) => Err(MappingError {
                reason: format!("topic `{topic}` has two source tables"),
                hint: "name each topic once".to_owned(),
            }),
        }
    }

    /// Returns schema and table that were assigned to a topic.
    pub fn assigned(&self, topic: &str) -> Option<(&str, &str)> {
        self.source_tables.get(topic).map(|(schema, table)| (schema.as_str(), table.as_str()))
    }

    /// Returns the sink table of a source table.
    ///
    /// # Errors
    /// When the template needs something that the source's records do not say.
    pub fn sink_table(&self, source: &SourceTable) -> Result<TableName, MappingError> {
        Ok(TableName::new(self.expand(&self.schema, source)?, self.expand(&self.name, source)?))
    }

    fn expand(&self, pieces: &[Piece], source: &SourceTable) -> Result<String, MappingError> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Value(name, placeholder) => {
                    let value = match placeholder {
                        Placeholder::Connector => &source.connector,
                        Placeholder::Database => &source.database,
                        Placeholder::Schema => &source.schema,
                        Placeholder::Table => &source.table,
                    };
                    if value.is_empty() {
                        return Err(MappingError {
                            reason: format!(
                                "sink table template `{}` needs the {name} of source table {}, which its records do not say",
                                self.template,
                                source.short()
                            ),
                            hint: format!("write the {name} into the template in place of {{{name}}}"),
                        });
                    }
                    text.push_str(value);
                }
            }
        }
        Ok(text)
    }
}

//! Where a source table goes: a sink table's name, made of the source's by a template.

use std::str::FromStr;

use sink_api::TableName;

use super::Usage;
use crate::decode::SourceTable;

/// A sink table's name with places for parts of the source's: `{schema}.{table}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTemplate {
    schema: Vec<Piece>,
    name: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Connector,
    Database,
    Schema,
    Table,
}

impl TableTemplate {
    /// Returns the name of the sink table that `source` goes to.
    pub fn sink_table(&self, source: &SourceTable) -> TableName {
        let fill = |pieces: &[Piece]| pieces.iter().map(|piece| piece.fill(source)).collect::<String>();
        TableName { schema: fill(&self.schema), name: fill(&self.name) }
    }
}

impl Piece {
    fn fill<'a>(&'a self, source: &'a SourceTable) -> &'a str {
        match self {
            Piece::Text(text) => text,
            Piece::Connector => &source.connector,
            Piece::Database => &source.database,
            Piece::Schema => &source.schema,
            Piece::Table => &source.table,
        }
    }
}

impl FromStr for TableTemplate {
    type Err = Usage;

    fn from_str(text: &str) -> Result<TableTemplate, Usage> {
        let TableName { schema, name } = table_name(text)?;
        Ok(TableTemplate { schema: pieces(&schema)?, name: pieces(&name)? })
    }
}

/// Reads `SCHEMA.NAME`, each part as it is or in double quotes (a quote inside doubled), as SQL writes it. Unlike
/// SQL, capitals outside quotes stay capitals.
pub(crate) fn table_name(text: &str) -> Result<TableName, Usage> {
    let refuse = |why: &str| {
        Usage::new(format!("`{text}` is not a table's name: {why}"))
            .hint("write SCHEMA.NAME, in double quotes where a part has a dot: public.orders or \"odd.schema\".orders")
    };
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(char) = chars.next() {
        let part = parts.last_mut().expect("starts with one part");
        match char {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            char => part.push(char),
        }
    }
    match <[String; 2]>::try_from(parts) {
        _ if quoted => Err(refuse("a double quote is not closed")),
        Ok([schema, name]) if !schema.is_empty() && !name.is_empty() => Ok(TableName { schema, name }),
        Ok(_) => Err(refuse("a part is empty")),
        Err(parts) if parts.len() == 1 => Err(refuse("it has no schema")),
        Err(_) => Err(refuse("it has more than two parts")),
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, Usage> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (place, after) = after.split_once('}').ok_or_else(|| unknown_place(after))?;
        pieces.push(match place {
            "connector" => Piece::Connector,
            "database" => Piece::Database,
            "schema" => Piece::Schema,
            "table" => Piece::Table,
            _ => return Err(unknown_place(place)),
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

fn unknown_place(place: &str) -> Usage {
    Usage::new(format!("`{{{place}` is not a part of a source table's name"))
        .hint("the parts are {connector}, {database}, {schema} and {table}")
}

/// Flattened rows of a topic and the sink table that they go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicTable {
    /// The topic.
    pub topic: String,
    /// The sink table.
    pub table: TableName,
}

impl FromStr for TopicTable {
    type Err = Usage;

    fn from_str(text: &str) -> Result<TopicTable, Usage> {
        let parts = text.split_once('=').filter(|(topic, _)| !topic.is_empty());
        let (topic, table) = parts.ok_or_else(|| {
            Usage::new(format!("`{text}` does not say which topic goes to which table"))
                .hint("write TOPIC=SCHEMA.NAME, such as shop.orders=public.orders")
        })?;
        Ok(TopicTable { topic: topic.trim().to_owned(), table: table_name(table.trim())? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    fn source() -> SourceTable {
        SourceTable {
            connector: "shop".into(),
            database: "app".into(),
            schema: "inventory".into(),
            table: "Orders".into(),
        }
    }

    #[test]
    fn a_source_table_goes_where_the_template_says() {
        for (template, schema, name) in [
            ("{schema}.{table}", "inventory", "Orders"),
            ("public.{table}", "public", "Orders"),
            ("{connector}_{database}.{schema}_{table}_v2", "shop_app", "inventory_Orders_v2"),
            ("\"my.{schema}\".\"{table}\"", "my.inventory", "Orders"),
        ] {
            let template: TableTemplate = template.parse().unwrap();
            assert_eq!(template.sink_table(&source()), TableName::new(schema, name));
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for (template, message) in [
            ("orders", "`orders` is not a table's name: it has no schema"),
            ("a.b.c", "`a.b.c` is not a table's name: it has more than two parts"),
            (".b", "`.b` is not a table's name: a part is empty"),
            ("\"a.b", "`\"a.b` is not a table's name: a double quote is not closed"),
            ("public.{tabel}", "`{tabel` is not a part of a source table's name"),
            ("public.{table", "`{table` is not a part of a source table's name"),
        ] {
            assert_eq!(template.parse::<TableTemplate>().unwrap_err().message, message);
        }
    }

    #[test]
    fn quotes_work_as_in_sql() {
        assert_eq!(table_name(r#""a""b"."c.d""#), Ok(TableName::new("a\"b", "c.d")));
        assert_eq!(table_name("Public.Orders"), Ok(TableName::new("Public", "Orders")));
        assert_eq!(
            "shop.orders = public.orders".parse(),
            Ok(TopicTable { topic: "shop.orders".into(), table: TableName::new("public", "orders") })
        );
        assert!("public.orders".parse::<TopicTable>().is_err());
    }
}

//! Tables' names, as operators write them.

use std::str::FromStr;

use sink_api::TableName;

use super::Usage;
use crate::decode::TableMapping;

/// Reads a template of sink tables' names.
pub(crate) fn mapping(template: &str) -> Result<TableMapping, Usage> {
    TableMapping::parse(template).map_err(|error| Usage::new(error.reason).hint(error.hint))
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

/// A topic whose records do not name their table, and the source's table that they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicTable {
    /// The topic.
    pub topic: String,
    /// The source's table.
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

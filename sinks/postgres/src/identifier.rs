//! Names in SQL text.

use sink_api::TableName;

/// Returns `name` as an SQL identifier: any name, whatever it holds.
pub fn quote_identifier(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for character in name.chars() {
        if character == '"' {
            quoted.push('"');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

/// Returns `schema.name` as SQL text.
pub(crate) fn quote_table(table: &TableName) -> String {
    qualified(&table.schema, &table.name)
}

/// Returns two names, joined by a dot, as SQL text.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// Returns `text` as an SQL string constant; only for texts that are shown to an operator.
pub(crate) fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted_whatever_they_hold() {
        let quoted: Vec<String> = ["id", "Order Line", "a.b", "say \"hi\"", ""].map(quote_identifier).into();

        assert_eq!(quoted, ["\"id\"", "\"Order Line\"", "\"a.b\"", "\"say \"\"hi\"\"\"", "\"\""]);
    }

    #[test]
    fn literals_double_their_quotes() {
        assert_eq!(quote_literal("o'clock"), "'o''clock'");
    }
}

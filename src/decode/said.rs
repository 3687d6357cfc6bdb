//! What records say of their source table, and which tables it fits.

use sink_api::SourceName;

use super::SourceTable;

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
        self.schema_name.is_some() || !self.named.table.is_empty() && !self.named.schema.is_empty()
    }

    /// Whether it may be of a table. Where the table's schema has a dot, it may be of others as well.
    pub(super) fn fits(&self, source: &SourceName) -> bool {
        let Named { schema, table, .. } = self.named;
        let is_table = match (schema, table) {
            (_, "") => true,
            ("", table) => source.table.strip_suffix(table).is_some_and(|rest| rest.ends_with('.')),
            (schema, table) => source.table.strip_prefix(schema).and_then(|rest| rest.strip_prefix('.')) == Some(table),
        };
        is_table && self.fits_origin(source)
    }

    /// The same of a table whose name is known in its parts.
    pub(super) fn fits_table(&self, source: &SourceTable) -> bool {
        let Named { schema, table, .. } = self.named;
        (table.is_empty() || source.table == table)
            && (schema.is_empty() || source.schema == schema)
            && self.fits_origin(&source.name())
    }

    fn fits_origin(&self, source: &SourceName) -> bool {
        let short = &source.table;
        let is_named_after = |name: &str| match source.connector.as_str() {
            "" => {
                is_rendered(name, short) || name.match_indices('.').any(|(dot, _)| is_rendered(&name[dot + 1..], short))
            }
            connector => is_rendered(name, &format!("{connector}.{short}")),
        };
        source.may_be_at(self.named.connector, self.named.database) && self.schema_name.is_none_or(is_named_after)
    }
}

/// Whether a schema's name is one that Debezium may write for a name (`schema.name.adjustment.mode`): as it is, with `_`
/// in place of other characters than letters and digits, or with their numbers (`_u0020`).
pub(super) fn is_rendered(rendered: &str, name: &str) -> bool {
    let avro = |keep: fn(char) -> bool| plain(name, keep);
    let unicode = |keep_underscore: bool| {
        let mut text = String::with_capacity(name.len());
        for character in name.chars() {
            match character {
                '.' => text.push('.'),
                '_' if keep_underscore => text.push('_'),
                plain if plain.is_ascii_alphanumeric() => text.push(plain),
                other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let _ = std::fmt::Write::write_fmt(&mut text, format_args!("_u{unit:04x}"));
                }),
            }
        }
        text
    };
    rendered == name
        || rendered == avro(|character| character == '.')
        // A router writes a topic's name as one word.
        || rendered == avro(|_| false)
        || rendered == unicode(true)
        || rendered == unicode(false)
}

/// Writes `_` for each UTF-16 unit of a character that is neither an ASCII letter or digit nor kept.
pub(super) fn plain(name: &str, keep: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || keep(character) {
            text.push(character);
        } else {
            (0..character.len_utf16()).for_each(|_| text.push('_'));
        }
    }
    text
}

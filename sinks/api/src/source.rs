//! Where rows come from: a table of a connector's database, and the streams that bring them to a sink's table.

use std::fmt;

use crate::{TableName, TopicId};

/// A source table by its full name, as far as records say it. The parts that they leave open are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceName {
    /// The connector's logical name (`topic.prefix`).
    pub connector: String,
    /// The database.
    pub database: String,
    /// The table: `schema.table`.
    pub table: String,
}

impl SourceName {
    /// Returns the name of a table of which no more is known.
    pub fn of_table(table: impl Into<String>) -> SourceName {
        SourceName { table: table.into(), ..SourceName::default() }
    }

    /// Whether both may be one table: what both say is the same.
    pub fn may_be(&self, other: &SourceName) -> bool {
        self.table == other.table && self.may_be_at(&other.connector, &other.database)
    }

    /// Whether it may be of this connector and database; empty is what is not known.
    pub fn may_be_at(&self, connector: &str, database: &str) -> bool {
        let fits = |one: &str, other: &str| one.is_empty() || other.is_empty() || one == other;
        fits(&self.connector, connector) && fits(&self.database, database)
    }

    /// Whether all of these may be one table: each two of them.
    pub fn are_one<'s>(names: impl Iterator<Item = &'s SourceName> + Clone) -> bool {
        names.clone().all(|one| names.clone().all(|other| one.may_be(other)))
    }

    /// Whether this says all that `other` says.
    pub fn says(&self, other: &SourceName) -> bool {
        let says = |own: &str, other: &str| other.is_empty() || own == other;
        self.table == other.table && says(&self.connector, &other.connector) && says(&self.database, &other.database)
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.connector, &self.database] {
            if !part.is_empty() {
                write!(f, "{part}/")?;
            }
        }
        f.write_str(&self.table)
    }
}

/// A stream that feeds a table of the sink: a source, a topic's incarnation, and the worker's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The sink's table.
    pub table: TableName,
    /// The source.
    pub source: SourceName,
    /// The topic.
    pub topic_id: TopicId,
    /// The worker's name.
    pub name: String,
}

impl Feed {
    /// Whether this feeds a table, and nothing else does, as far as `feeds` of the table, of its parts and of those that it
    /// is a part of are known (rule `one-stream`).
    pub fn feeds<'f>(&self, feeds: impl Iterator<Item = &'f Feed> + Clone) -> Feeding {
        let fed = feeds.clone().any(|feed| self.may_be(feed));
        // A name that leaves things open goes with two that cannot be one.
        let alone = feeds.clone().all(|feed| self.may_be(feed)) && SourceName::are_one(feeds.map(|feed| &feed.source));
        Feeding { fed, alone }
    }

    /// Whether both may be one stream.
    pub fn may_be(&self, other: &Feed) -> bool {
        (&self.table, self.topic_id, &self.name) == (&other.table, other.topic_id, &other.name)
            && self.source.may_be(&other.source)
    }
}

/// Whether a stream feeds a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feeding {
    /// It does.
    pub fed: bool,
    /// No other one does.
    pub alone: bool,
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use super::*;

    #[test]
    fn what_is_not_said_goes_with_everything() {
        let name = |connector: &str, database: &str, table: &str| SourceName {
            connector: connector.into(),
            database: database.into(),
            table: table.into(),
        };
        let full = name("c1", "shop", "inventory.a");

        assert!(full.may_be(&SourceName::of_table("inventory.a")) && full.may_be(&name("c1", "", "inventory.a")));
        for other in
            [name("c2", "", "inventory.a"), name("c1", "other", "inventory.a"), name("c1", "shop", "inventory.b")]
        {
            assert!(!full.may_be(&other) && !other.may_be(&full), "{other}");
        }
        assert!(full.says(&name("c1", "", "inventory.a")) && !name("c1", "", "inventory.a").says(&full));
        assert_eq!(
            (full.to_string(), SourceName::of_table("t").to_string()),
            ("c1/shop/inventory.a".into(), "t".into())
        );
    }

    #[test]
    fn a_stream_is_alone_where_no_other_one_can_be_there() {
        let feed = |connector: &str, table: &str| Feed {
            table: TableName::new("inventory", table),
            source: SourceName { connector: connector.into(), ..SourceName::of_table("inventory.a") },
            topic_id: TopicId([1; 16]),
            name: "worker".into(),
        };
        let (own, unsaid) = (feed("c1", "a"), feed("", "a"));
        let other_topic = Feed { topic_id: TopicId([2; 16]), ..own.clone() };
        let other_worker = Feed { name: "other".into(), ..own.clone() };
        for (feeds, fed, alone) in [
            (vec![], false, true),
            (vec![own.clone()], true, true),
            (vec![unsaid.clone()], true, true),
            (vec![own.clone(), unsaid.clone()], true, true),
            (vec![feed("c2", "a")], false, false),
            (vec![own.clone(), feed("c2", "a")], true, false),
            (vec![own.clone(), other_topic], true, false),
            (vec![own.clone(), other_worker], true, false),
            // A partition that is fed on its own.
            (vec![own.clone(), feed("c1", "a_1")], true, false),
        ] {
            assert_eq!(own.feeds(feeds.iter()), Feeding { fed, alone }, "{feeds:?}");
        }
        let two = [own, feed("c2", "a")];
        assert_eq!(unsaid.feeds(two.iter()), Feeding { fed: true, alone: false });
    }
}

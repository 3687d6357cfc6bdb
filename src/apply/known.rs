//! The sink's tables as a lane's records were decoded for.

use std::{collections::HashMap, sync::Arc};

use sink_api::{NotNative, TableName, TableShape};

/// The tables that a lane has met.
#[derive(Debug, Default)]
pub(super) struct KnownTables(HashMap<TableName, Arc<TableShape>>);

/// What a newly read shape of a table means for the lane.
#[derive(Debug, PartialEq)]
pub(super) enum Met {
    /// It decodes by it from now on. `unordered` says why ranges of its keys cannot be evaluated, if that is news.
    Taken { unordered: Option<NotNative> },
    /// Its key is another one. Windows and memory hold keys as they were read for the old one, next to which new ones mean
    /// nothing: the lane has to read them anew.
    KeyChanged,
}

impl KnownTables {
    /// Takes the shape of a table as it is now.
    pub(super) fn meet(&mut self, shape: &Arc<TableShape>) -> Met {
        let before = self.0.insert(shape.name.clone(), Arc::clone(shape));
        if before.as_ref().is_some_and(|before| !shape.has_key_of(before)) {
            return Met::KeyChanged;
        }
        let known = before.and_then(|before| before.range_order().err());
        Met::Taken { unordered: shape.range_order().err().filter(|now| known.as_ref() != Some(now)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sink_api::{Column, ColumnType, KeyColumn, KeyType};

    use super::*;

    fn shape(column_type: ColumnType, key_type: KeyType, order: Result<(), NotNative>) -> Arc<TableShape> {
        let column = Column {
            name: "id".into(),
            type_name: format!("{column_type:?}"),
            column_type,
            nullable: false,
            generated: false,
            has_default: false,
        };
        let key = KeyColumn { column: 0, key_type: Ok(key_type), order };
        Arc::new(TableShape::new(TableName::new("shop", "orders"), vec![column], vec![key], vec![]))
    }

    #[test]
    fn a_key_of_another_type_is_another_key() {
        let mut known = KnownTables::default();
        known.meet(&shape(ColumnType::Int32, KeyType::Int, Ok(())));

        assert_eq!(known.meet(&shape(ColumnType::Int64, KeyType::Int, Ok(()))), Met::KeyChanged);
        assert_eq!(known.meet(&shape(ColumnType::Text(None), KeyType::Text, Ok(()))), Met::KeyChanged);
        let text = shape(ColumnType::Text(None), KeyType::Text, Ok(()));
        assert_eq!(known.meet(&text), Met::Taken { unordered: None });
    }

    #[test]
    fn a_key_without_order_is_told_once_and_again_when_it_had_one() {
        let not_native = NotNative { reason: "under a collation".into(), hint: Some("CREATE INDEX".into()) };
        let of = |order| shape(ColumnType::Text(None), KeyType::Text, order);
        let mut known = KnownTables::default();

        let mut told = |order| matches!(known.meet(&of(order)), Met::Taken { unordered: Some(_) });

        let orders = [Err(not_native.clone()), Err(not_native.clone()), Ok(()), Err(not_native.clone())];
        assert_eq!(orders.map(&mut told), [true, false, false, true]);
    }
}

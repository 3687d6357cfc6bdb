//! Which tables are known, shared by all lanes of a sink.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use sink_api::{ErrorClass, SinkError, TableName, TableShape};
use sqlx::SqlStr;

use crate::{catalog, connect::Session, table::Table, upsert::Pattern};

/// The tables as they were described last.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    described: Mutex<HashMap<TableName, Arc<Table>>>,
}

impl Tables {
    pub(crate) fn remember(&self, table: Arc<Table>) {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        described.insert(table.shape.name.clone(), table);
    }

    pub(crate) fn known(&self, name: &TableName) -> Option<Arc<Table>> {
        self.described.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns the table that a shape is of. A shape that is no longer the table's is the caller's to renew.
    pub(crate) async fn resolve(
        &self,
        session: &mut Session,
        shape: &Arc<TableShape>,
    ) -> Result<Arc<Table>, SinkError> {
        let same = |table: &Arc<Table>| Arc::ptr_eq(&table.shape, shape) || *table.shape == **shape;
        if let Some(table) = self.known(&shape.name).filter(same) {
            return Ok(table);
        }
        let table = catalog::describe(session, &shape.name).await?;
        if !same(&table) {
            return Err(outdated(&shape.name));
        }
        self.remember(Arc::clone(&table));
        Ok(table)
    }
}

/// Makes the error of a shape that is no longer the table's.
pub(crate) fn outdated(name: &TableName) -> SinkError {
    SinkError::new(ErrorClass::Configuration, format!("write {name}: the table's definition has changed"))
        .hint("the catalog is read again; if this comes back, somebody keeps changing the table")
}

/// A table and the statements that a lane has built for it.
pub(crate) struct Plans {
    pub(crate) table: Arc<Table>,
    pub(crate) upserts: HashMap<Pattern, SqlStr>,
}

/// The plans of one lane.
#[derive(Default)]
pub(crate) struct LanePlans {
    plans: HashMap<TableName, Plans>,
}

impl LanePlans {
    /// Drops what was built for a table.
    pub(crate) fn forget(&mut self, name: &TableName) {
        self.plans.remove(name);
    }

    /// Returns the plans of the table that `shape` is of.
    pub(crate) async fn of(
        &mut self,
        tables: &Tables,
        session: &mut Session,
        shape: &Arc<TableShape>,
    ) -> Result<&mut Plans, SinkError> {
        let known = self.plans.get(&shape.name).is_some_and(|plans| Arc::ptr_eq(&plans.table.shape, shape));
        if !known {
            let table = tables.resolve(session, shape).await?;
            // Another allocation of an equal shape: the plans stay good.
            let unchanged = self.plans.get(&shape.name).is_some_and(|plans| Arc::ptr_eq(&plans.table, &table));
            if !unchanged {
                self.plans.insert(shape.name.clone(), Plans { table, upserts: HashMap::new() });
            }
        }
        Ok(self.plans.get_mut(&shape.name).expect("the table's plans were there or have just been put there"))
    }
}

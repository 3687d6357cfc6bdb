//! Windows: what changed between a read's low marker and its close.
//!
//! Windows of one table share one map from each changed key to the place of its last change: a key changed in a window
//! if that place lies behind the window's low marker. So a change costs the same however many windows are open.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use sink_api::{Key, KeyList, Offset, ReadId, Rule, TableName, TableShape};

use crate::{
    decode::ReadName,
    statement::{Parts, Past, RecentKeys},
};

/// One open window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) read: ReadName,
    /// Where the first delivery of the low marker stands.
    pub(super) low: Offset,
    /// When that record was written, in milliseconds since 1970-01-01 UTC.
    opened_at: Option<i64>,
    /// What is known of all events before `low`.
    pub(super) before: Past,
    /// Whether events of the table before `low` carried no transaction id.
    pub(super) lacks_ids: bool,
    /// Why the read can prove nothing any more.
    pub(super) void: Option<Void>,
    pub(super) parts: Option<Parts>,
}

/// Why a window is void.
#[derive(Clone, Debug)]
pub(super) struct Void {
    pub(super) rule: Rule,
    pub(super) reason: String,
}

impl Window {
    /// Voids the window: its close will be refused. The first reason stays.
    pub(super) fn make_void(&mut self, rule: Rule, reason: impl Into<String>) {
        self.void.get_or_insert_with(|| Void { rule, reason: reason.into() });
    }

    fn parts_bytes(&self) -> usize {
        self.parts.as_ref().map_or(0, Parts::bytes)
    }
}

/// The open windows of a lane.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Oldest first.
    open: Vec<Window>,
    changed: HashMap<TableName, Changed>,
    bytes: usize,
    /// The earliest that one of them was opened.
    opened_at: Option<i64>,
}

/// Where each key of a table changed last.
#[derive(Debug, Default)]
struct Changed {
    keys: HashMap<Key, Offset>,
    bytes: usize,
}

impl Windows {
    /// Opens a window at a low marker; `recent` knows the events before it.
    pub(super) fn open(&mut self, read: ReadName, low: Offset, opened_at: Option<i64>, recent: &RecentKeys) {
        self.changed.entry(read.table.name.clone()).or_default();
        let (before, lacks_ids) = (recent.all(), recent.lacks_ids(&read.table.name));
        self.open.push(Window { read, low, opened_at, before, lacks_ids, void: None, parts: None });
        self.opened_at = self.open.iter().filter_map(|window| window.opened_at).min();
    }

    /// Counts `key` of `table` as changed at `offset`.
    pub(super) fn change(&mut self, offset: Offset, table: &TableShape, key: &Key) {
        if self.changed.is_empty() {
            return;
        }
        let Some(changed) = self.changed.get_mut(&table.name) else { return };
        match changed.keys.get_mut(key) {
            Some(last) => *last = offset,
            None => {
                changed.keys.insert(key.clone(), offset);
                let bytes = key_bytes(key);
                changed.bytes += bytes;
                self.bytes += bytes;
            }
        }
    }

    /// Returns the keys that changed in the window of `low`, ascending.
    pub(super) fn changed(&self, table: &TableName, low: Offset) -> KeyList {
        let Some(changed) = self.changed.get(table) else { return KeyList::new() };
        let mut keys: Vec<&Key> = changed.keys.iter().filter(|(_, last)| **last > low).map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.into_iter().collect()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Window> {
        self.open.iter()
    }

    pub(super) fn find(&mut self, read_id: &ReadId) -> Option<&mut Window> {
        self.open.iter_mut().find(|window| window.read.read_id == *read_id)
    }

    /// Takes the parts of a read out of its window.
    pub(super) fn take_parts(&mut self, read_id: &ReadId) -> Option<Parts> {
        let parts = self.find(read_id)?.parts.take()?;
        self.bytes -= parts.bytes();
        Some(parts)
    }

    /// Puts the parts of a read into its window.
    pub(super) fn put_parts(&mut self, read_id: &ReadId, parts: Parts) {
        let bytes = parts.bytes();
        if let Some(window) = self.find(read_id) {
            window.parts = Some(parts);
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, read_id: &ReadId) -> Option<Window> {
        let index = self.open.iter().position(|window| window.read.read_id == *read_id)?;
        Some(self.remove_at(index))
    }

    /// Takes out the oldest window if there are at least `most`.
    pub(super) fn make_room(&mut self, most: usize) -> Option<Window> {
        (!self.open.is_empty() && self.open.len() >= most).then(|| self.remove_at(0))
    }

    /// Takes out a window that has been open for too long: by the stream's own clock, or the oldest one when all
    /// together hold too much.
    pub(super) fn expire(&mut self, max_bytes: usize, max_age_ms: i64, now: Option<i64>) -> Option<Window> {
        if self.bytes > max_bytes && !self.open.is_empty() {
            return Some(self.remove_at(0));
        }
        let (opened_at, now) = (self.opened_at?, now?);
        let is_over = |opened_at: i64| now.saturating_sub(opened_at) > max_age_ms;
        if !is_over(opened_at) {
            return None;
        }
        let index = self.open.iter().position(|window| window.opened_at.is_some_and(is_over))?;
        Some(self.remove_at(index))
    }

    /// Voids all windows.
    pub(super) fn void_all(&mut self, rule: Rule, reason: &str) {
        self.open.iter_mut().for_each(|window| window.make_void(rule, reason));
        let tables: Vec<TableName> = self.changed.keys().cloned().collect();
        tables.iter().for_each(|table| self.prune(table));
    }

    /// Voids the windows of a table.
    pub(super) fn void_table(&mut self, table: &Arc<TableShape>, rule: Rule, reason: &str) {
        self.open
            .iter_mut()
            .filter(|window| window.read.table.name == table.name)
            .for_each(|window| window.make_void(rule, reason));
        self.prune(&table.name);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove_at(&mut self, index: usize) -> Window {
        let window = self.open.remove(index);
        self.bytes -= window.parts_bytes();
        self.opened_at = self.open.iter().filter_map(|window| window.opened_at).min();
        self.prune(&window.read.table.name);
        window
    }

    /// Forgets the changes that no window of `table` needs any more.
    fn prune(&mut self, table: &TableName) {
        let Entry::Occupied(mut entry) = self.changed.entry(table.clone()) else { return };
        let mut lows = self.open.iter().filter(|window| window.void.is_none() && window.read.table.name == *table);
        let changed = entry.get_mut();
        self.bytes -= changed.bytes;
        match lows.next().map(|window| window.low) {
            None => drop(entry.remove()),
            Some(oldest) => {
                changed.keys.retain(|_, last| *last > oldest);
                changed.bytes = changed.keys.keys().map(key_bytes).sum();
                self.bytes += changed.bytes;
            }
        }
    }
}

/// A key, its place, and about what the map needs beside.
fn key_bytes(key: &Key) -> usize {
    size_of::<(Key, Offset)>() + key.as_bytes().len() + 16
}

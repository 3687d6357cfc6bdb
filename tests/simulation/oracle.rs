//! The guarantee of DESIGN 7, from the source's true history.

use sink_api::{Difference, Key, RowChange, Rule, Verdict};
use sink_repair::{
    decode::Snapshot,
    statement::{RecentKeys, Statement},
};

use super::{
    history::History,
    reads::{Form, Read},
    report::Report,
    script::Stream,
    sink::Content,
    source::{KEYS, Pos, What},
    wire::{Wire, key, read_id},
};

pub struct Oracle<'a> {
    pub stream: &'a Stream,
    pub wire: &'a Wire,
    pub history: History,
    /// The offset of the first record that a lane applies.
    pub first_offset: usize,
}

impl Oracle<'_> {
    /// Notes how far in the log the events lie that were applied. Rows of incremental snapshots have no place there.
    pub fn note_applied(&self, content: &mut Content, changes: &[RowChange]) {
        for change in changes {
            let record = &self.stream.topic[change.offset.0 as usize];
            if record.entry.what.row().is_some() {
                let table = self.wire.table_of(&change.table.name);
                let applied = content.applied.entry((table, change.key.clone())).or_default();
                *applied = (*applied).max(record.pos);
            }
        }
    }

    /// Checks a statement at its barrier, before anything is removed.
    pub fn check(
        &self,
        content: &Content,
        statement: &Statement,
        difference: &Difference,
        verdict: &Verdict,
        recent: &RecentKeys,
        report: &mut Report,
    ) -> Result<(), String> {
        let place = Place::of(self, statement)?;
        let table = place.read.plan.table;
        for id in 0..KEYS {
            let encoded = key(id);
            let held = content.tables[table].contains_key(&encoded);
            let is_orphan = difference.orphans.contains(encoded.as_bytes());
            let is_spared = statement.spared.contains(encoded.as_bytes());
            let live = self.history.is_live(table, id, place.pos);
            let later = content.applied.get(&(table, encoded.clone())).is_some_and(|pos| *pos > place.pos);
            let blame = || format!("{} (closed at {} of the log): key {id} of t{table}", statement.read_id, place.pos);
            if *verdict == Verdict::Applied && is_orphan && live {
                return Err(format!("{} is live and was removed", blame()));
            }
            if *verdict == Verdict::Applied && is_orphan && later {
                return Err(format!("{} was removed after a later event was applied", blame()));
            }
            if is_spared && place.read.plan.covers(id) && !place.is_doubtful(self, table, id) {
                return Err(format!("{} was spared without reason", blame()));
            }
            let stays = held && !is_orphan && place.read.plan.covers(id);
            if stays && !live && !place.is_doubtful(self, table, id) {
                return Err(format!("{} is an orphan and stayed", blame()));
            }
            if held && is_spared && !place.selects(id, statement) && place.read.plan.covers(id) && (live || later) {
                self.credit(&place, table, &encoded, id, recent, report);
            }
        }
        Ok(())
    }

    /// Counts a key that only the rules saved, for the rule that saved it.
    fn credit(
        &self,
        place: &Place<'_>,
        table: usize,
        encoded: &Key,
        id: i64,
        recent: &RecentKeys,
        report: &mut Report,
    ) {
        let in_window = place.is_in_window(self, table, id);
        let Some(seen) = &place.read.seen else { return };
        let snapshot = Snapshot { xmin: seen.xmin, xmax: seen.xmax, running: seen.xip.clone() };
        let remembered = recent.unseen(self.wire.name_of(table), &snapshot).any(|key| key == encoded);
        match (in_window, remembered) {
            (true, false) => report.window_alone += 1,
            (false, true) => report.visibility_alone += 1,
            (true, true) => report.both += 1,
            (false, false) => {}
        }
    }

    /// Checks the sink when every record is applied and a pass ran with nothing lost.
    pub fn check_end(&self, content: &Content, report: &mut Report) -> Result<(), String> {
        for (number, read) in self.stream.reads.iter().enumerate().skip(self.stream.final_pass) {
            let verdict = content.verdicts.get(&read_id(number));
            if verdict != Some(&Verdict::Applied) {
                return Err(format!("read-{number} of the final pass is {verdict:?}"));
            }
            let table = read.plan.table;
            let row = |(id, row): (&i64, &super::source::Row)| {
                let values = [*id, row.version, row.large].map(sink_api::Value::Int).to_vec();
                (key(*id), values)
            };
            let expected: Vec<(Key, Vec<sink_api::Value>)> =
                self.stream.source.visible[table].iter().map(row).collect();
            let found: Vec<(Key, Vec<sink_api::Value>)> =
                content.tables[table].iter().map(|(key, row)| (key.clone(), row.clone())).collect();
            if found != expected {
                return Err(format!("t{table} ends as {found:?}, not {expected:?}"));
            }
        }
        report.cases += 1;
        Ok(())
    }

    /// Checks that no read that settled was refused but for a truncate in its window.
    pub fn check_calm(&self, content: &Content) -> Result<(), String> {
        for (number, read) in self.stream.reads.iter().enumerate() {
            let verdict = content.verdicts.get(&read_id(number));
            if let Some(Verdict::Refused { rule, reason, .. }) = verdict
                && read.settled
                && read.plan.form.has_low()
                && *rule != Rule::TableChange
            {
                return Err(format!("read-{number} settled and was refused by {rule}: {reason}"));
            }
        }
        Ok(())
    }

    /// Checks that every statement that was delivered in full got a verdict.
    pub fn check_verdicts(&self, content: &Content) -> Result<(), String> {
        for record in &self.stream.topic[self.first_offset..] {
            let What::Part { read, part, parts, .. } = &record.entry.what else { continue };
            let name = read_id(*read).0;
            let is_named = |id: &str| id == name || id.starts_with(&format!("{name}#"));
            if part == parts && !content.verdicts.keys().any(|id| is_named(&id.0)) {
                return Err(format!("{name} got no verdict"));
            }
        }
        Ok(())
    }
}

/// Where a statement stands.
struct Place<'a> {
    read: &'a Read,
    offset: usize,
    pos: Pos,
    /// Where its low marker stood first.
    low: usize,
}

impl<'a> Place<'a> {
    fn of(oracle: &Oracle<'a>, statement: &Statement) -> Result<Place<'a>, String> {
        let offset = usize::try_from(statement.offset.0).map_err(|err| err.to_string())?;
        let record = &oracle.stream.topic[offset];
        let What::Part { read: number, .. } = &record.entry.what else {
            return Err(format!("{} stands where no part is", statement.read_id));
        };
        let is_low = |what: &What| matches!(what, What::Low { read } if read == number);
        let low = oracle.stream.topic.iter().position(|record| is_low(&record.entry.what)).unwrap_or(offset);
        Ok(Place { read: &oracle.stream.reads[*number], offset, pos: record.pos, low })
    }

    fn selects(&self, id: i64, statement: &Statement) -> bool {
        let mut cursor = statement.selected.cursor();
        while let Some(selected) = cursor.key() {
            if selected == key(id).as_bytes() {
                return true;
            }
            cursor.advance();
        }
        false
    }

    fn is_in_window(&self, oracle: &Oracle<'_>, table: usize, id: i64) -> bool {
        let mut window = oracle.stream.topic[self.low..self.offset].iter();
        let listed = matches!(self.read.plan.form, Form::Info | Form::PlainInfo)
            && oracle.stream.source.log[self.read.low..self.pos].iter().any(|entry| touches(&entry.what, table, id));
        listed || window.any(|record| touches(&record.entry.what, table, id))
    }

    /// Whether the statement may say nothing about the key: it changed in the window, or in a transaction that the
    /// read did not see.
    fn is_doubtful(&self, oracle: &Oracle<'_>, table: usize, id: i64) -> bool {
        let Some(seen) = &self.read.seen else { return true };
        let mut before = oracle.stream.topic[..self.offset].iter();
        self.is_in_window(oracle, table, id)
            || before.any(|record| !seen.saw(record.entry.xid) && touches(&record.entry.what, table, id))
            || (self.read.plan.form == Form::PlainInfo
                && oracle.stream.source.log[..self.pos]
                    .iter()
                    .any(|entry| !seen.saw(entry.xid) && touches(&entry.what, table, id)))
    }
}

fn touches(what: &What, table: usize, id: i64) -> bool {
    match what {
        What::Put { table: changed, key, from: other, .. } | What::Delete { table: changed, key, to: other } => {
            *changed == table && (*key == id || *other == Some(id))
        }
        What::Copy { table: copied, key, .. } => *copied == table && *key == id,
        _ => false,
    }
}

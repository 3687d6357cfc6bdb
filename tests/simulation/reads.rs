//! Bracketed reads of the source (DESIGN 8, steps 1 to 3), and the other ways to make a statement.

use super::source::{KEYS, Pos, Seen, Source, What};

/// The form in which a read's statement travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `low` and `chunk` markers.
    Chunk,
    /// `low` and `keys` markers.
    Keys,
    /// A chunk info record of a connector, with the read's snapshot: visibility is left to the worker.
    Info,
    /// A chunk info record without snapshot: the connector lists the keys of transactions that its read did not see.
    PlainInfo,
    /// An absence event, read and written under a lock that keeps writers out.
    Absence,
}

impl Form {
    /// Whether the read has a low marker of its own in the stream.
    pub fn has_low(self) -> bool {
        matches!(self, Form::Chunk | Form::Keys)
    }

    /// Whether the statement says what its read saw.
    pub fn has_snapshot(self) -> bool {
        matches!(self, Form::Chunk | Form::Keys | Form::Info)
    }
}

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub table: usize,
    pub form: Form,
    /// Exclusive; `None` is open.
    pub lower: Option<i64>,
    /// Inclusive; `None` is open.
    pub upper: Option<i64>,
    /// How many steps to wait for all transactions before the low marker to become visible; `None`: not at all.
    pub settle: Option<u8>,
    pub parts: usize,
    pub confirmed: Option<u64>,
}

/// A read, as its markers name it.
#[derive(Clone, Debug)]
pub struct Read {
    pub plan: Plan,
    pub seen: Option<Seen>,
    pub settled: bool,
    /// Where in the log the read began.
    pub low: Pos,
    waiting_for: Option<u64>,
    patience: u8,
    selected: Vec<i64>,
    asked: Vec<i64>,
    pub done: bool,
}

impl Plan {
    /// Whether the read is about `key`.
    pub fn covers(&self, key: i64) -> bool {
        match self.form {
            Form::Keys => self.asked().contains(&key),
            Form::Absence => self.asked()[0] == key,
            _ => self.lower.is_none_or(|lower| key > lower) && self.upper.is_none_or(|upper| key <= upper),
        }
    }

    fn asked(&self) -> Vec<i64> {
        let (from, step) = (self.lower.unwrap_or(0), self.upper.unwrap_or(3).max(1));
        // Not ascending: asked keys come in any order.
        (0..KEYS).map(|at| (from + at * step) % KEYS).take(4).fold(Vec::new(), |mut keys, key| {
            if !keys.contains(&key) {
                keys.push(key);
            }
            keys
        })
    }
}

impl Read {
    /// Steps 1 and 2: emits the low marker and begins to wait.
    pub fn open(number: usize, plan: Plan, source: &mut Source) -> Read {
        let low = source.log.len();
        if plan.form.has_low() {
            source.emit(vec![What::Low { read: number }]);
        }
        Read {
            plan,
            seen: None,
            settled: false,
            low,
            // A newly assigned id of a transaction that begins after the low marker's commit has returned.
            waiting_for: plan.settle.map(|_| source.assign()),
            patience: plan.settle.unwrap_or(0),
            selected: Vec::new(),
            asked: Vec::new(),
            done: false,
        }
    }

    /// Whether the read holds a lock that keeps TRUNCATE out.
    pub fn holds_lock(&self) -> bool {
        self.seen.is_some() && !self.done
    }

    /// Ends a read that was not closed.
    pub fn give_up(&mut self, source: &mut Source) {
        if let (None, Some(bound)) = (&self.seen, self.waiting_for) {
            source.end(bound);
        }
        self.done = true;
    }

    /// Goes on to the next step: settle and read, then close.
    pub fn advance(&mut self, number: usize, source: &mut Source) {
        match (self.done, &self.seen) {
            (true, _) => {}
            (false, None) => self.read(number, source),
            (false, Some(_)) => self.close(number, source),
        }
    }

    fn read(&mut self, number: usize, source: &mut Source) {
        let locked = match self.plan.form {
            Form::Absence => !source.is_quiet(self.plan.table),
            _ => !source.is_readable(self.plan.table),
        };
        if locked {
            return;
        }
        if let Some(bound) = self.waiting_for {
            self.settled = source.snapshot().xmin >= bound;
            if !self.settled && self.patience > 0 {
                self.patience -= 1;
                return;
            }
            source.end(bound);
        }
        let rows = source.visible[self.plan.table].keys().copied();
        self.selected = rows.filter(|key| self.plan.covers(*key)).collect();
        self.asked = match self.plan.form {
            Form::Keys => self.plan.asked(),
            Form::Absence => self.plan.asked()[..1].to_vec(),
            _ => Vec::new(),
        };
        self.seen = Some(source.snapshot());
        if self.plan.form == Form::Absence {
            self.close(number, source);
        }
    }

    fn close(&mut self, number: usize, source: &mut Source) {
        self.done = true;
        if self.plan.form == Form::Absence && !self.selected.is_empty() {
            return;
        }
        let changed = self.changed(source);
        let parts = match self.plan.form {
            Form::Chunk | Form::Keys => self.plan.parts.max(1),
            _ => 1,
        };
        let events = (1..=parts)
            .map(|part| What::Part {
                read: number,
                part,
                parts,
                asked: slice(&self.asked, part, parts),
                selected: slice(&self.selected, part, parts),
                changed: slice(&changed, part, parts),
            })
            .collect();
        source.emit(events);
    }

    /// Returns what a connector that makes chunk info records lists as changed.
    fn changed(&self, source: &Source) -> Vec<i64> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let mut changed = match self.plan.form {
            Form::Info | Form::PlainInfo => source.changed_since(self.plan.table, self.low),
            _ => return Vec::new(),
        };
        if self.plan.form == Form::PlainInfo {
            let unseen = source.log.iter().filter(|entry| !seen.saw(entry.xid)).filter_map(|entry| entry.what.row());
            changed.extend(unseen.filter(|row| row.0 == self.plan.table).map(|row| row.1));
        }
        changed.retain(|key| self.plan.covers(*key));
        changed.into_iter().collect()
    }
}

/// Returns the consecutive slice of `keys` that part `part` of `parts` carries.
fn slice(keys: &[i64], part: usize, parts: usize) -> Vec<i64> {
    let bound = |part: usize| keys.len() * part / parts;
    keys[bound(part - 1)..bound(part)].to_vec()
}

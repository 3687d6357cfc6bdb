//! A worker on the pure core: one lane, its crashes, restarts and successors.

use proptest::prelude::*;
use sink_api::{LaneState, Offset, RemovalBudget, Rule, Verdict};
use sink_repair::{
    decode::{Event, EventXid},
    statement::{Caps, OrphanPolicy, RecentKeys, judge},
    stream::{Limits, Sequencer, Start, Step as Stepped, Unit, UnitBuilder, UnitLimits, Work, merge},
};

use super::{
    connector::LATEST_DUPLICATE,
    oracle::Oracle,
    report::Report,
    script::Stream,
    sink::{Committed, Content, Sink},
    wire::Wire,
};

/// How the worker is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub recent_bytes: usize,
    pub window_bytes: usize,
    pub window_age_ms: i64,
    pub windows: usize,
    pub unit_rows: usize,
    pub unit_statements: usize,
    /// Where the lane starts without a stored state, in percent of the topic's part before the final pass.
    pub start_percent: usize,
    pub max_removals: u64,
    /// Whether every other life has narrower limits.
    pub varies: bool,
    /// Whether records that could not be decoded can be after the first restart.
    pub mends: bool,
    /// How many records before the frontier the topic still holds when a worker starts.
    pub retention: Option<usize>,
    /// Whether nothing befalls the worker during the final pass.
    pub ends_calmly: bool,
}

/// What befalls the worker after it has taken some records.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub records: u8,
    pub then: Then,
}

#[derive(Clone, Copy, Debug)]
pub enum Then {
    Flush,
    /// The unit in hand is lost.
    CrashBeforeCommit,
    /// The unit in hand is committed, and the worker dies before it knows.
    CrashAfterCommit,
    /// The reply to the commit is lost; the stored state tells.
    OutcomeUnknown {
        committed: bool,
    },
    /// Another worker takes the lane over while this one still has a unit in hand.
    Rebalance,
}

pub fn settings() -> impl Strategy<Value = Settings> {
    (
        prop_oneof![Just(0_usize), Just(150), Just(500), Just(1 << 20)],
        prop_oneof![1 => Just(300_usize), 4 => Just(1 << 20)],
        prop_oneof![1 => Just(15_i64), 4 => Just(1 << 20)],
        prop_oneof![1 => Just(2_usize), 4 => Just(100)],
        prop_oneof![Just(1_usize), Just(4), Just(1_000)],
        prop_oneof![Just(1_usize), Just(3)],
        prop_oneof![3 => Just(0_usize), 2 => 0..100_usize],
        prop_oneof![1 => Just(2_u64), 3 => Just(1_000)],
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(
                recent_bytes,
                window_bytes,
                window_age_ms,
                windows,
                unit_rows,
                unit_statements,
                start_percent,
                max_removals,
                (varies, mends),
            )| Settings {
                recent_bytes,
                window_bytes,
                window_age_ms,
                windows,
                unit_rows,
                unit_statements,
                start_percent,
                max_removals,
                varies,
                mends,
                retention: None,
                ends_calmly: false,
            },
        )
}

pub fn step() -> impl Strategy<Value = Step> {
    let then = prop_oneof![
        2 => Just(Then::Flush),
        2 => Just(Then::CrashBeforeCommit),
        2 => Just(Then::CrashAfterCommit),
        1 => any::<bool>().prop_map(|committed| Then::OutcomeUnknown { committed }),
        2 => Just(Then::Rebalance),
    ];
    (0..40_u8, then).prop_map(|(records, then)| Step { records, then })
}

/// How far before its start a lane without a stored state reads to fill its memory.
const LOOK_BACK: usize = LATEST_DUPLICATE + 5;

/// Everything that a lane works with.
pub struct World<'a> {
    pub stream: &'a Stream,
    pub wire: &'a Wire,
    pub settings: Settings,
    pub oracle: &'a Oracle<'a>,
}

struct Lane {
    epoch: u64,
    stored: Option<LaneState>,
    sequencer: Sequencer,
    builder: UnitBuilder,
    /// The same memory of recent transactions as the sequencer's.
    recent: RecentKeys,
    frontier: i64,
    next: usize,
    given: Vec<String>,
}

/// Runs the worker over the whole topic.
pub fn run(world: &World<'_>, sink: &mut Sink, steps: &[Step], report: &mut Report) -> Result<(), String> {
    let mut lane = Lane::start(world, sink);
    let mut steps = steps.iter();
    let mut step = steps.next();
    let mut records = 0;
    while lane.next < world.stream.topic.len() {
        if let Some(Step { records: due, then }) = step
            && records >= usize::from(*due)
            && !(world.settings.ends_calmly && lane.next >= world.stream.calm_offset())
        {
            lane = lane.meet(*then, world, sink, report)?;
            (step, records) = (steps.next(), 0);
            continue;
        }
        records += 1;
        lane.take(world)?;
        let limits =
            UnitLimits { rows: world.settings.unit_rows, bytes: 1 << 20, statements: world.settings.unit_statements };
        if lane.builder.is_full(&limits) {
            lane.flush(world, sink, report)?;
        }
    }
    lane.flush(world, sink, report)
}

impl Lane {
    fn start(world: &World<'_>, sink: &mut Sink) -> Lane {
        let epoch = sink.claim();
        let stored = sink.content.state.clone();
        let first = world.oracle.first_offset as i64;
        let begin = first.saturating_sub_unsigned(LOOK_BACK as u64).max(0);
        let fresh = LaneState {
            next_offset: Offset(first),
            memory_offset: Offset(begin),
            highest_xid: None,
            unknown_past: begin > 0,
            partition_count: 1,
        };
        let state = stored.clone().unwrap_or(fresh);
        let settings = world.settings;
        let log_start = settings.retention.map_or(0, |kept| state.next_offset.0.saturating_sub_unsigned(kept as u64));
        let (start, begin) = Start::resume(&state, Offset(log_start), 1);
        let narrow = settings.varies && epoch.is_multiple_of(2);
        let limits = Limits {
            recent_bytes: if narrow { 150 } else { settings.recent_bytes },
            window_bytes: settings.window_bytes,
            window_age_ms: settings.window_age_ms,
            windows: if narrow { 2 } else { settings.windows },
            // The simulation heals by copies that come at once, also after late duplicates of old changes.
            copies: 0,
        };
        Lane {
            epoch,
            stored,
            sequencer: Sequencer::new(start, limits),
            builder: UnitBuilder::default(),
            recent: RecentKeys::new(limits.recent_bytes, start.highest_xid, start.unknown_past),
            frontier: state.next_offset.0,
            next: usize::try_from(begin.0).expect("offsets are not negative"),
            given: Vec::new(),
        }
    }

    /// Takes one record.
    fn take(&mut self, world: &World<'_>) -> Result<(), String> {
        let (at, record) = (self.next, &world.stream.topic[self.next]);
        let offset = Offset(at as i64);
        self.next += 1;
        let mut steps = Vec::new();
        match world.wire.decode(at, record, &world.stream.reads, world.settings.mends && self.epoch > 1) {
            Ok(event) => {
                self.remember(offset, &event);
                self.sequencer.push(offset, Some(record.timestamp), event, &mut steps);
            }
            Err(bad) => {
                self.sequencer.push_bad(offset, Some(record.timestamp), &bad, &mut steps);
                if offset.0 >= self.frontier {
                    self.builder.park(offset, bad);
                }
            }
        }
        for step in steps {
            if let Stepped::Statement(_) | Stepped::Refusal(_) = &step {
                self.give(&step)?;
            }
            self.builder.push(step);
        }
        if offset.0 >= self.frontier {
            self.builder.record(Some(record.timestamp));
        }
        Ok(())
    }

    fn give(&mut self, step: &Stepped) -> Result<(), String> {
        let read_id = match step {
            Stepped::Statement(statement) => statement.read_id.0.clone(),
            Stepped::Refusal(row) => row.read_id.0.clone(),
            _ => return Ok(()),
        };
        if self.given.contains(&read_id) {
            return Err(format!("{read_id} got two verdicts in one life"));
        }
        self.given.push(read_id);
        Ok(())
    }

    fn remember(&mut self, offset: Offset, event: &Event) {
        if let Event::Row(row) = event
            && let EventXid::Known(xid) = row.xid
        {
            for key in std::iter::once(&row.key).chain(&row.other_key) {
                self.recent.push(offset, xid, &row.table, key);
            }
        }
    }

    fn meet(mut self, then: Then, world: &World<'_>, sink: &mut Sink, report: &mut Report) -> Result<Lane, String> {
        match then {
            Then::Flush => self.flush(world, sink, report)?,
            Then::CrashBeforeCommit => return Ok(Lane::start(world, sink)),
            Then::CrashAfterCommit => {
                self.flush(world, sink, report)?;
                return Ok(Lane::start(world, sink));
            }
            Then::OutcomeUnknown { committed } => {
                if committed {
                    let unit = self.flush_and_forget(world, sink, report)?;
                    if let Some(end) = unit {
                        if sink.content.state.as_ref() != Some(&end) {
                            return Err("the stored state does not tell that a commit took place".into());
                        }
                        self.stored = Some(end);
                    }
                } else {
                    return Ok(Lane::start(world, sink));
                }
            }
            Then::Rebalance => {
                let successor = Lane::start(world, sink);
                if !self.builder.is_empty() {
                    let (unit, content) = self.unit(world, sink, &mut Report::default())?;
                    if sink.commit(self.epoch, self.stored.as_ref(), content) != Committed::Fenced {
                        return Err(format!("a worker that lost the lane committed up to {:?}", unit.end.next_offset));
                    }
                }
                return Ok(successor);
            }
        }
        Ok(self)
    }

    fn flush(&mut self, world: &World<'_>, sink: &mut Sink, report: &mut Report) -> Result<(), String> {
        if let Some(end) = self.flush_and_forget(world, sink, report)? {
            self.stored = Some(end);
        }
        Ok(())
    }

    fn flush_and_forget(
        &mut self,
        world: &World<'_>,
        sink: &mut Sink,
        report: &mut Report,
    ) -> Result<Option<LaneState>, String> {
        if self.builder.is_empty() {
            return Ok(None);
        }
        let mut seen = Report::default();
        let (unit, content) = self.unit(world, sink, &mut seen)?;
        if sink.commit(self.epoch, self.stored.as_ref(), content) != Committed::Done {
            return Err("the owner of the lane was fenced off".into());
        }
        report.add(&seen);
        Ok(Some(unit.end))
    }

    /// Ends the unit in hand and carries it out on a copy of the sink.
    fn unit(&mut self, world: &World<'_>, sink: &Sink, report: &mut Report) -> Result<(Unit, Content), String> {
        let unit = self.builder.finish(self.sequencer.state());
        let mut content = sink.content.clone();
        for work in &unit.work {
            match work {
                Work::Rows(changes) => {
                    content.write(&merge(changes), world.wire);
                    world.oracle.note_applied(&mut content, changes);
                }
                Work::Truncate(table) => content.tables[world.wire.table_of(&table.name)].clear(),
                Work::Refusal(row) => {
                    if let std::collections::btree_map::Entry::Vacant(entry) =
                        content.verdicts.entry(row.read_id.clone())
                    {
                        entry.insert(row.verdict.clone());
                        report.verdict(&row.verdict);
                    }
                }
                Work::Statement(statement) => {
                    if !content.verdicts.contains_key(&statement.read_id) {
                        self.evaluate(world, statement, &mut content, report)?;
                    }
                }
            }
        }
        content.state = Some(unit.end.clone());
        Ok((unit, content))
    }

    fn evaluate(
        &self,
        world: &World<'_>,
        statement: &sink_repair::statement::Statement,
        content: &mut Content,
        report: &mut Report,
    ) -> Result<(), String> {
        let table = world.wire.table_of(&statement.table.name);
        let difference = content.difference(table, statement);
        let budget = RemovalBudget { rows: content.tables[table].len() as u64, ..RemovalBudget::default() };
        let caps = Caps { rows: world.settings.max_removals, ..Caps::default() };
        let verdict = judge(statement, &difference, &budget, &caps, OrphanPolicy::Remove);
        world.oracle.check(content, statement, &difference, &verdict, &self.recent, report)?;
        if verdict == Verdict::Applied {
            let removed = content.remove(table, statement, &difference.orphans);
            if removed != difference.orphan_count {
                return Err(format!("{} removed {removed} of {} orphans", statement.read_id, difference.orphan_count));
            }
        }
        if let Verdict::Refused { rule: Rule::Cascade, .. } = verdict {
            return Err("no table here has cascades".into());
        }
        report.verdict(&verdict);
        content.verdicts.insert(statement.read_id.clone(), verdict);
        Ok(())
    }
}

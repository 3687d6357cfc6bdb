//! A case: what the source does, what the connector does and what befalls the worker, as lists that shrink well.

use proptest::prelude::*;

use super::{
    connector::{self, Record},
    reads::{Form, Plan, Read},
    source::{KEYS, Source, What},
    worker::{self, Settings},
};

/// What happens at the source.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write {
        slot: u8,
        table: u8,
        key: u8,
        how: u8,
    },
    Commit {
        slot: u8,
        gap: Gap,
    },
    Abort {
        slot: u8,
    },
    Wait,
    Burn(u64),
    Truncate {
        table: u8,
        gap: Gap,
    },
    /// An incremental snapshot of a table reads its rows, or publishes what it has read.
    Copy {
        table: u8,
    },
    /// Opens a read in this slot, or goes on with the one that is open.
    Read {
        slot: u8,
        plan: Plan,
    },
}

/// How long a commit stands in the log before it is visible.
#[derive(Clone, Copy, Debug)]
pub enum Gap {
    Ticks(u8),
    /// A synchronous standby does not answer.
    Never,
}

impl Gap {
    fn ticks(self) -> Option<u64> {
        match self {
            Gap::Ticks(ticks) => Some(u64::from(ticks)),
            Gap::Never => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Case {
    pub first_xid: u64,
    /// Rows that the source has from the start, a bit a key.
    pub source_rows: Vec<u16>,
    /// Rows that the sink has from the start.
    pub sink_rows: Vec<u16>,
    pub ops: Vec<Op>,
    pub connector: Vec<connector::Step>,
    pub settings: Settings,
    pub worker: Vec<worker::Step>,
    /// Up to where in the topic, in percent, row changes carry no transaction id.
    pub without_id_percent: usize,
}

/// What the source and the connector made of a case.
pub struct Stream {
    pub source: Source,
    pub reads: Vec<Read>,
    pub topic: Vec<Record>,
    /// The first read of the final pass.
    pub final_pass: usize,
    calm: usize,
}

impl Stream {
    /// Returns the offset from which on nothing goes wrong.
    pub fn calm_offset(&self) -> usize {
        self.topic.iter().position(|record| record.pos >= self.calm).unwrap_or(self.topic.len())
    }
}

pub const TABLES: usize = 2;

impl Case {
    pub fn stream(&self) -> Stream {
        let mut source = Source::new(self.first_xid, &self.source_rows);
        let mut reads: Vec<Read> = Vec::new();
        let mut slots: [Option<usize>; 3] = [None; 3];
        let mut copies: Vec<Option<(usize, Vec<What>)>> = vec![None; TABLES];
        for op in &self.ops {
            source.tick();
            match *op {
                Op::Write { slot, table, key, how } => {
                    source.write(usize::from(slot), usize::from(table), i64::from(key), how);
                }
                Op::Commit { slot, gap } => source.commit(usize::from(slot), gap.ticks()),
                Op::Abort { slot } => source.abort(usize::from(slot)),
                Op::Wait => {}
                Op::Burn(count) => source.burn(count),
                Op::Truncate { table, gap } => {
                    let table = usize::from(table);
                    if !reads.iter().any(|read| read.plan.table == table && read.holds_lock()) {
                        source.truncate(table, gap.ticks());
                    }
                }
                Op::Copy { table } => copy(&mut source, usize::from(table), &mut copies),
                Op::Read { slot, plan } => match slots[usize::from(slot)].filter(|read| !reads[*read].done) {
                    Some(read) => {
                        let mut open = reads[read].clone();
                        open.advance(read, &mut source);
                        reads[read] = open;
                    }
                    None => {
                        slots[usize::from(slot)] = Some(reads.len());
                        reads.push(Read::open(reads.len(), plan, &mut source));
                    }
                },
            }
        }
        reads.iter_mut().for_each(|read| read.give_up(&mut source));
        source.calm_down();
        let (final_pass, calm) = (reads.len(), source.log.len());
        for table in 0..TABLES {
            source.write(0, table, 0, 0);
            source.commit(0, Some(0));
        }
        for table in 0..TABLES {
            final_read(&mut source, &mut reads, table);
        }
        let topic = connector::publish(&source, &reads, &self.connector, calm);
        Stream { source, reads, topic, final_pass, calm }
    }
}

/// Reads the rows of a table for an incremental snapshot, or publishes those read that did not change since.
fn copy(source: &mut Source, table: usize, copies: &mut [Option<(usize, Vec<What>)>]) {
    match copies[table].take() {
        None => {
            let row = |(key, row): (&i64, &_)| What::Copy { table, key: *key, row: *row };
            copies[table] = Some((source.log.len(), source.visible[table].iter().map(row).collect()));
        }
        Some((from, rows)) => {
            let changed = source.changed_since(table, from);
            let unchanged = |what: &What| matches!(what, What::Copy { key, .. } if !changed.contains(key));
            source.publish(rows.into_iter().filter(unchanged).collect());
        }
    }
}

fn final_read(source: &mut Source, reads: &mut Vec<Read>, table: usize) {
    let rows: Vec<What> =
        source.visible[table].iter().map(|(key, row)| What::Copy { table, key: *key, row: *row }).collect();
    source.publish(rows);
    let number = reads.len();
    let plan = Plan {
        table,
        form: Form::Chunk,
        lower: None,
        upper: None,
        settle: Some(0),
        parts: 2,
        confirmed: Some(u64::MAX),
    };
    let mut read = Read::open(number, plan, source);
    read.advance(number, source);
    read.advance(number, source);
    reads.push(read);
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![6 => Just(Gap::Ticks(0)), 5 => (1..12_u8).prop_map(Gap::Ticks), 1 => Just(Gap::Never)]
}

fn plan() -> impl Strategy<Value = Plan> {
    let form = prop_oneof![
        8 => Just(Form::Chunk),
        2 => Just(Form::Keys),
        2 => Just(Form::Info),
        1 => Just(Form::PlainInfo),
        1 => Just(Form::Absence),
    ];
    let bound = || proptest::option::weighted(0.3, 0..KEYS);
    let settle = prop_oneof![1 => Just(None), 3 => (0..4_u8).prop_map(Some)];
    let confirmed = proptest::option::weighted(0.3, 0..20_u64);
    (0..TABLES, form, bound(), bound(), settle, 1..4_usize, confirmed).prop_map(
        |(table, form, lower, upper, settle, parts, confirmed)| {
            let (lower, upper) = match (lower, upper) {
                (Some(lower), Some(upper)) if lower > upper => (Some(upper), Some(lower)),
                bounds => bounds,
            };
            Plan { table, form, lower, upper, settle, parts, confirmed }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let table = || 0..TABLES as u8;
    prop_oneof![
        30 => (0..4_u8, table(), 0..KEYS as u8, any::<u8>())
            .prop_map(|(slot, table, key, how)| Op::Write { slot, table, key, how }),
        20 => (0..4_u8, gap()).prop_map(|(slot, gap)| Op::Commit { slot, gap }),
        2 => (0..4_u8).prop_map(|slot| Op::Abort { slot }),
        2 => Just(Op::Wait),
        1 => prop_oneof![(1..100_u64), (1_u64 << 28..1 << 30)].prop_map(Op::Burn),
        1 => (table(), gap()).prop_map(|(table, gap)| Op::Truncate { table, gap }),
        2 => table().prop_map(|table| Op::Copy { table }),
        35 => (0..3_u8, plan()).prop_map(|(slot, plan)| Op::Read { slot, plan }),
    ]
}

fn connector_step() -> impl Strategy<Value = connector::Step> {
    use connector::Step;
    prop_oneof![
        8 => (1..20_u8).prop_map(Step::Forward),
        4 => (1..40_u8).prop_map(Step::Back),
        4 => (0..20_u8).prop_map(Step::Again),
        1 => Just(Step::LoseMarker),
        1 => any::<bool>().prop_map(Step::Spoil),
        1 => Just(Step::Twist),
    ]
}

fn first_xid() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(1_000),
        (0..40_u64).prop_map(|before| (1 << 32) - before),
        (0..40_u64).prop_map(|before| (5 << 32) - before),
        (0..40_u64).prop_map(|before| (1 << 31) - before),
        (3..1_u64 << 40),
    ]
}

/// A connector that delivers once and in order, and a worker with room: only crashes, restarts and small memories.
pub fn calm_case() -> impl Strategy<Value = Case> {
    case().prop_map(|mut case| {
        case.connector.clear();
        let settings = case.settings;
        case.settings = Settings {
            window_bytes: 1 << 20,
            window_age_ms: 1 << 20,
            windows: 100,
            start_percent: 0,
            varies: false,
            ..settings
        };
        case
    })
}

/// A connector that loses no marker, a lane that saw the stream from its start, and a past that is lost: the topic does
/// not keep what rebuilds the memory, or a stretch of the stream carries no transaction ids.
pub fn lost_past_case() -> impl Strategy<Value = Case> {
    let lost = (0..100_usize, proptest::option::of(0..20_usize));
    (case(), lost).prop_map(|(mut case, (without_id_percent, retention))| {
        case.connector.retain(|step| !matches!(step, connector::Step::LoseMarker));
        case.without_id_percent = without_id_percent;
        case.settings.retention = retention;
        case.settings.ends_calmly = true;
        case.settings.start_percent = 0;
        case
    })
}

pub fn case() -> impl Strategy<Value = Case> {
    let rows = || proptest::collection::vec(0..1_u16 << KEYS, TABLES);
    (
        first_xid(),
        rows(),
        rows(),
        proptest::collection::vec(op(), 0..120),
        proptest::collection::vec(connector_step(), 0..16),
        worker::settings(),
        proptest::collection::vec(worker::step(), 0..12),
    )
        .prop_map(|(first_xid, source_rows, sink_rows, ops, connector, settings, worker)| Case {
            first_xid,
            source_rows,
            sink_rows,
            ops,
            connector,
            settings,
            worker,
            without_id_percent: 0,
        })
}

//! A failing case in words: the log, the topic, the reads.

use std::fmt::Write;

use super::{script::Case, source::What};

pub fn tell(case: &Case) -> String {
    let stream = case.stream();
    let mut text = format!("source rows {:?}, sink rows {:?}\n", case.source_rows, case.sink_rows);
    for (number, read) in stream.reads.iter().enumerate() {
        let snapshot = read.seen.as_ref().map(|seen| format!("{}:{}:{:?}", seen.xmin, seen.xmax, seen.xip));
        let _ = writeln!(text, "read-{number}: {:?}, settled {}, snapshot {snapshot:?}", read.plan, read.settled);
    }
    for (offset, record) in stream.topic.iter().enumerate() {
        let what = match &record.entry.what {
            What::Part { read, part, parts, asked, selected, changed } => {
                format!("part {part}/{parts} of read-{read}: asked {asked:?} selected {selected:?} changed {changed:?}")
            }
            What::Low { read } => format!("low of read-{read}"),
            what => format!("{what:?}"),
        };
        let _ =
            writeln!(text, "offset {offset}, log {}, xid {}, {:?}: {what}", record.pos, record.entry.xid, record.shape);
    }
    let _ = writeln!(text, "{:?}\n{:?}\n{:?}", case.settings, case.worker, case.connector);
    text
}

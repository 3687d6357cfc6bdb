//! The pure core against an adversary: a source with a gap between log and visibility, a connector that delivers at
//! least once, a worker that dies at any point, and an oracle that knows the source's true history.

#![allow(clippy::unwrap_used, missing_docs)]

mod connector;
mod history;
mod oracle;
mod reads;
mod report;
mod script;
mod sink;
mod source;
mod story;
mod wire;
mod worker;

use std::{cell::RefCell, io::Write};

use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestError, TestRunner};

use history::History;
use oracle::Oracle;
use report::Report;
use script::{Case, TABLES};
use sink::Sink;
use sink_api::{Offset, Value};
use wire::Wire;

fn run(case: &Case) -> Result<Report, String> {
    let stream = case.stream();
    let wire = Wire::new(TABLES, 0);
    let oracle = Oracle {
        stream: &stream,
        wire: &wire,
        history: History::new(&stream.source),
        first_offset: stream.calm_offset() * case.settings.start_percent / 100,
    };
    let mut sink = Sink::default();
    sink.content.tables = case
        .sink_rows
        .iter()
        .map(|bits| {
            (0..source::KEYS)
                .filter(|key| bits >> key & 1 == 1)
                .map(|key| (wire::key(key), [key, 0, 0].map(Value::Int).to_vec()))
                .collect()
        })
        .collect();
    let mut report = Report::default();
    let world = worker::World { stream: &stream, wire: &wire, settings: case.settings, oracle: &oracle };
    worker::run(&world, &mut sink, &case.worker, &mut report)?;
    if sink.content.state.as_ref().map(|state| state.next_offset) != Some(Offset(stream.topic.len() as i64)) {
        return Err("the frontier is not at the end of the topic".into());
    }
    let mut removed = sink.content.removed.clone();
    removed.sort();
    removed.dedup();
    if removed.len() != sink.content.removed.len() {
        return Err("a read removed a key twice".into());
    }
    report.removed += removed.len() as u64;
    oracle.check_verdicts(&sink.content)?;
    oracle.check_end(&sink.content, &mut report)?;
    Ok(report)
}

#[test]
fn no_statement_removes_a_live_key_or_one_with_a_later_event() {
    let config = Config {
        cases: std::env::var("SIMULATION_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/simulation/regressions"))),
        max_shrink_iters: 20_000,
        // Generating the cases is most of the work, and needs no cipher.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    };
    let total = RefCell::new(Report::default());

    let outcome = TestRunner::new(config).run(&script::case(), |case| {
        let report = run(&case).map_err(proptest::test_runner::TestCaseError::fail)?;
        total.borrow_mut().add(&report);
        Ok(())
    });

    let total = total.into_inner();
    writeln!(std::io::stderr(), "{total}").unwrap();
    if let Err(TestError::Fail(reason, case)) = &outcome {
        panic!("{reason}\n{}", story::tell(case));
    }
    outcome.unwrap();
    assert_eq!(total.lacks(), None);
}

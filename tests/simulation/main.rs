//! The pure core against an adversary: a source with a gap between log and visibility, a connector that delivers at
//! least once, a worker that dies at any point, and an oracle that knows the source's true history.
//!
//! A failing case is printed as a story, with its seed; `SIMULATION_CASES` sets how many there are.

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

use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRunner},
};
use sink_api::{Offset, Value};

use history::History;
use oracle::Oracle;
use report::Report;
use script::{Case, TABLES};
use sink::Sink;
use wire::Wire;

/// Runs a case and checks the guarantee; `is_calm` says that nothing gives a reason to refuse a read that settled.
fn run(case: &Case, is_calm: bool) -> Result<Report, String> {
    let stream = case.stream();
    let wire = Wire::new(TABLES, stream.calm_offset() * case.without_id_percent / 100);
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
    if is_calm {
        oracle.check_calm(&sink.content)?;
    }
    oracle.check_end(&sink.content, &mut report)?;
    Ok(report)
}

/// Runs many cases. `share` of 100 says how many of the configured number.
fn simulate(name: &str, share: u32, cases: impl Strategy<Value = Case>, is_calm: bool) -> Report {
    let all = std::env::var("SIMULATION_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(5_000);
    let config = Config {
        cases: all * share / 100,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/simulation/regressions"))),
        max_shrink_iters: 50_000,
        // Generating the cases is most of the work, and needs no cipher.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    };
    let total = RefCell::new(Report::default());

    let outcome = TestRunner::new(config).run(&cases, |case| {
        let report = run(&case, is_calm).map_err(TestCaseError::fail)?;
        total.borrow_mut().add(&report);
        Ok(())
    });

    let total = total.into_inner();
    // Not through the test harness, which keeps the output of tests that pass to itself.
    std::io::stderr().write_all(format!("{name}: {total}\n").as_bytes()).unwrap();
    if let Err(TestError::Fail(reason, case)) = &outcome {
        panic!("{reason}\n{}", story::tell(case));
    }
    outcome.unwrap();
    total
}

#[test]
fn no_statement_removes_a_live_key_or_one_with_a_later_event() {
    let total = simulate("simulation", 70, script::case(), false);

    assert_eq!(total.lacks(), None);
}

#[test]
fn nothing_is_lost_when_the_past_is() {
    let total = simulate("with a lost past", 20, script::lost_past_case(), false);

    assert_ne!((total.applied, total.removed), (0, 0));
}

#[test]
fn a_settled_read_is_not_refused_without_reason() {
    let total = simulate("calm", 10, script::calm_case(), true);

    assert_ne!((total.applied, total.removed), (0, 0));
}

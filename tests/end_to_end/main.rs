//! `sink-repair apply` from end to end: stock Debezium, Kafka, the binary as a process, PostgreSQL at both ends.
//!
//! Each file is a theme, each test a promise. A test has databases, topics, a consumer group and a connector of its own,
//! so all run side by side on one stack. Where what stock Debezium writes is the point, a test takes a
//! [`test_support::Pipeline`]; where it is not, a [`bare::Bare`], whose records the test writes itself.

//!
//! The files `bad_input`, `bad_statements`, `flattened`, `missing_rows`, `places`, `schema_changes`, `tables` and `verdicts`
//! are not declared yet: 22 of their 46 tests fail, and it has not been told apart whether the test or the program is
//! wrong. Each is to be declared once it is mended.

#![allow(clippy::unwrap_used, missing_docs)]
// Helpers of the files that are still to be declared.
#![allow(dead_code)]

mod bad_input;
mod bad_statements;
mod bare;
mod flattened;
mod missing_rows;
mod places;
mod running_example;
mod schema_changes;
mod stopping;
mod tables;
mod values;
mod verdicts;
mod worker;

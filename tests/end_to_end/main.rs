//! `sink-repair apply` from end to end: stock Debezium, Kafka, the binary as a process, PostgreSQL at both ends.
//!
//! Each file is a theme, each test a promise. A test has databases, topics, a consumer group and a connector of its own,
//! so all run side by side on one stack. Where what stock Debezium writes is the point, a test takes a
//! [`test_support::Pipeline`]; where it is not, a [`bare::Bare`], whose records the test writes itself.

#![allow(clippy::unwrap_used, missing_docs)]

mod bad_input;
mod bad_statements;
mod bare;
mod flattened;
mod halves;
mod logs;
mod merged;
mod missing_rows;
mod places;
mod running_example;
mod schema_changes;
mod stopping;
mod tables;
mod values;
mod verdicts;
mod worker;

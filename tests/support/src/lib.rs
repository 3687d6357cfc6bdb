//! What tests on real servers are written with.
//!
//! `tests/stack/stack.sh` brings up Kafka, Kafka Connect with stock Debezium, a source and a sink PostgreSQL, and tells
//! tests by environment variables where they are ([`Stack`]). A test takes a [`Pipeline`] (source tables, publication,
//! connector, all under a name of its own), writes with plain SQL ([`Database`]), starts the program ([`Worker`]), makes
//! statements of absence by hand ([`markers`]) and compares tables in full ([`compare`]). Tests share the servers and
//! nothing else, so they run side by side.
//!
//! Every function returns an error that says what was awaited or asked; a test returns `anyhow::Result<()>`.

pub mod compare;
pub mod kafka;
pub mod markers;
mod names;
mod pipeline;
mod postgres;
mod stack;
mod wait;
mod worker;

pub use names::unique;
pub use pipeline::{Builder, Pipeline, Route};
pub use postgres::Database;
pub use stack::{Part, Stack};
pub use wait::until;
pub use worker::{Signal, Worker, run};

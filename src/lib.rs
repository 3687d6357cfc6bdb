//! `sink-repair` repairs CDC sinks in place while the stream keeps flowing.
//!
//! Debezium reads a database's log, Kafka carries it, a sink holds the result. Sinks drift, and what no re-snapshot
//! removes are **orphans**: rows that the sink holds and the source does not. A *statement of absence*, made from a
//! bracketed read of the source, proves which keys of a range are absent *at a position of the stream*. The worker next
//! to the sink applies all earlier records, removes exactly those keys, and goes on.
//!
//! # The line that data follows
//!
//! ```text
//! Kafka -> consumer -> decode -> sequencer -> unit -> sink -> commit
//!          Record      Event     Step                 one transaction
//!                                 |
//!                                 +- Step::Statement: a barrier. Earlier changes are written; the sink's keys in the
//!                                    range are merged with the statement; orphans are removed, held or reported
//! ```
//!
//! One lane per partition owns its stages by value and calls them in this order, in one loop: `apply::lane`. Between
//! Kafka and the sink everything is pure: [`decode`], [`stream`], [`statement`], the key encoding and the merge
//! ([`sink_api`]). No I/O, no clock, no async, no logging: all hard rules live there and are tested by the million. Only
//! Kafka (`kafka`) and the sinks do I/O, each behind a trait with a test double.
//!
//! # The guarantee
//!
//! No statement removes a key that is live at the statement's position in the source's log, nor one for which the lane
//! has already applied an event that is later in the log than that position. Once every delivered record is applied, the
//! sink equals the source on the keys that statements have covered. Each unit of work (changes, removals, copies of the
//! removed rows, verdicts and the lane's frontier) is one transaction of the sink.
//!
//! # Rooms
//!
//! | room | what it does |
//! |---|---|
//! | [`decode`] | pure: from a record to an event |
//! | [`stream`] | pure: windows, memory, order; from events to units of work |
//! | [`statement`] | pure: every rule that decides whether a row may go |
//! | [`apply`] | the lane, its writer, barriers, repair requests; the command `apply` |
//! | `kafka` | the only place that names librdkafka |
//! | `cli`, `config` | flags, environment and file, into typed settings |
//! | `status`, `metrics`, `http` | what operators see |
//! | `sink_api` | what a sink is, and the words that both sides share |
//! | `sink_postgres` | the PostgreSQL sink; the only place that names sqlx |

pub mod apply;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod dead_letter;
pub mod decode;
pub mod http;
pub mod kafka;
pub mod logging;
pub mod metrics;
pub mod operate;
pub mod partitioner;
pub mod record;
pub mod retry;
pub mod statement;
pub mod status;
pub mod stop;
pub mod stream;
pub mod terminal;

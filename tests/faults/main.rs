//! The worker under faults, on the real servers: kills at random moments, workers that stand still, come and go, a sink
//! and a broker that are away, commits whose outcome nobody told.
//!
//! What holds afterwards is asked of those who know: the source's own log (read by PostgreSQL's `test_decoding`, not by
//! Debezium), triggers in the sink that write down every step of the frontier and every version of a row, and a full
//! comparison of both tables.
//!
//! `SINK_REPAIR_FAULTS_SCALE=full` asks for the full numbers (`make faults`); without it a run stays within minutes.

#![allow(clippy::unwrap_used, missing_docs)]

mod audit;
mod away;
mod broker;
mod counters;
mod kills;
mod load;
mod passes;
mod proxy;
mod rig;
mod scaling;
mod side_writer;
mod source_log;
mod standing_still;
mod violence;

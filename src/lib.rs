//! `sink-repair` repairs CDC sinks in place while the stream keeps flowing.

pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod decode;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod record;
pub mod retry;
pub mod status;
pub mod stop;
pub mod terminal;

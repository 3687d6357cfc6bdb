//! `sink-repair` repairs CDC sinks in place while the stream keeps flowing.

pub mod cli;
pub mod clock;
pub mod config;
pub mod decode;
pub mod record;
pub mod retry;

//! `sink-repair` repairs CDC sinks in place while the stream keeps flowing.

pub mod decode;
pub mod record;
pub mod statement;
pub mod stream;

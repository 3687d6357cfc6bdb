//! `sink-repair` repairs CDC sinks in place while the stream keeps flowing.

pub mod dead_letter;
pub mod decode;
pub mod kafka;
pub mod record;

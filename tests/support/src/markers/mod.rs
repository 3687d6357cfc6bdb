//! Statements of absence by plain SQL: what `certify` does at a source, one step at a time.
//!
//! A [`Bracket`] is one connection to the source that makes bracketed reads of one table. Its steps are those of a
//! bracketed read, in order, so that a test can write between any two of them:
//!
//! ```text
//! look    the table's identity and key columns
//! low     the low marker, committed by itself
//! settle  wait until every transaction that the log holds before the low marker is visible
//! read    lock, look again, snapshot, keys of one range; the transaction stays open
//! close   emit the chunk marker in it and commit: the statement's place in the log
//! ```
//!
//! [`Bracket::pass`] does a whole table in chunks. A [`Marker`] is a payload with public fields: a test that wants a
//! damaged one changes it before [`Bracket::close`] or emits it by [`Post::emit`].

mod bracket;
mod marker;
mod partition;
mod post;

pub use bracket::{Bracket, Read};
pub use marker::{Bound, Marker, Range};
pub use partition::{partition_of, prefix_reaching};
pub use post::Post;

//! Test doubles and the contract that every sink must keep.
//!
//! [`MemorySink`] is a sink in memory that keeps every promise of [`crate::sink`] and fails where it is told to;
//! [`assert_contract`] is those promises, one named assertion each, to be run on every sink. Nothing here needs a
//! runtime: the contract is a plain future for the caller's executor, and the in-memory sink never waits, so
//! [`ready`] drives it.

mod contract;
mod fault;
mod lane;
mod memory;
mod store;
mod unit;

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

pub use contract::{Fixture, ITEMS, LINES, Recorded, assert_contract};
pub use fault::Fault;
pub use lane::MemoryLane;
pub use memory::MemorySink;
pub use store::{RecordedStatement, RemovedRow, row_key};
pub use unit::MemoryUnit;

/// Returns the output of a future that never waits, such as those of [`MemorySink`].
///
/// # Panics
/// When the future waits for something.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something outside the test"),
    }
}

#[cfg(test)]
mod tests;

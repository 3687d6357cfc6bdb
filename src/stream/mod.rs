//! Pure: from events to the work of a lane.
//!
//! ```text
//! Event -> Sequencer -> Step -> UnitBuilder -> Unit -> (the sink, in one transaction)
//! ```
//!
//! The [`Sequencer`] keeps what a lane must know of its stream: open windows, the keys of recent transactions, reads
//! that have their verdict. It turns each event into steps, in stream order. The [`UnitBuilder`] gathers steps into
//! units of work. No I/O, no clock, no async: the same records give the same units.

mod close;
mod closed;
mod copies;
mod merge;
mod sequencer;
mod split;
mod step;
#[cfg(test)]
mod tests;
mod unit;
mod window;

pub(crate) use close::statement_id;
pub use merge::merge;
pub use sequencer::{Limits, Sequencer, Start};
pub use step::Step;
pub use unit::{Unit, UnitBuilder, UnitLimits, Work};

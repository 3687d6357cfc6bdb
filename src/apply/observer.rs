//! What a lane tells the outside of its work.

use sink_api::Offset;

use super::{
    ports::Request,
    writer::{Report, Wait},
};
use crate::stream::{Sequencer, Unit};

/// Is told what a lane does: feeds metrics, status and log. Never waits, never fails.
pub trait Observer: Send + Sync + 'static {
    /// Records were sequenced.
    fn sequenced(&self, sequencer: &Sequencer);

    /// A unit is being written.
    fn began(&self, unit: &Unit);

    /// A unit is durable.
    fn committed(&self, report: &Report, next_offset: Offset, records: u64, earliest: Option<i64>);

    /// The lane waits for the sink, or waits no longer.
    fn waiting(&self, wait: Option<&Wait>);

    /// A repair request was sent, or could not be.
    fn requested(&self, request: &Request, result: &Result<(), String>);
}

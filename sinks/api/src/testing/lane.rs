//! A lane of the in-memory sink.

use super::{Fault, MemorySink, MemoryUnit};
use crate::{LaneId, LaneState, SinkError, SinkLane};

/// The write side of one lane of a [`MemorySink`].
#[derive(Debug)]
pub struct MemoryLane {
    pub(super) sink: MemorySink,
    pub(super) id: LaneId,
    pub(super) epoch: u64,
}

impl MemoryLane {
    pub(super) fn new(sink: MemorySink, id: LaneId, epoch: u64) -> MemoryLane {
        MemoryLane { sink, id, epoch }
    }
}

impl SinkLane for MemoryLane {
    type Unit<'a> = MemoryUnit<'a>;

    async fn begin(&mut self, expected: Option<&LaneState>) -> Result<MemoryUnit<'_>, SinkError> {
        {
            let mut store = self.sink.store();
            store.reach("begin")?;
            store.faults.check(Fault::Begin, "begin")?;
            store.fence(&self.id, self.epoch)?;
        }
        Ok(MemoryUnit::new(self, expected.cloned()))
    }

    async fn committed(&mut self) -> Result<Option<LaneState>, SinkError> {
        let mut store = self.sink.store();
        store.reach("read the frontier")?;
        store.faults.check(Fault::Committed, "read the frontier")?;
        store.fence(&self.id, self.epoch)?;
        Ok(store.state(&self.id).cloned())
    }
}

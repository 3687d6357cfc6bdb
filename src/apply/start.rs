//! Where a lane starts.
//!
//! The sink's frontier decides; without one Kafka's committed offset, without that `--start`. A lane that has a frontier
//! first reads the stretch from its oldest open window, to know what it knew; a lane without one reads a stretch before
//! its start, to fill the memory of recent transactions. Nothing of either stretch is applied.

use sink_api::{LaneState, Offset};

use crate::stream::Start;

/// What is known of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// The offset of its first record.
    pub start: Offset,
    /// The offset after its last one.
    pub end: Offset,
}

/// Where to start reading, and where applying begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first record to read.
    pub read_from: Offset,
    /// The sequencer's start.
    pub start: Start,
    /// Whether open windows were lost, since the log no longer holds their low markers.
    pub windows_lost: bool,
}

/// Why a lane cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotStart {
    /// The log begins after the frontier: records were removed before they were applied.
    #[error("records from offset {frontier} up to {log_start} are gone, the log starts at {log_start} now")]
    RecordsLost {
        /// The next record that is needed.
        frontier: Offset,
        /// The first record that is there.
        log_start: Offset,
    },
    /// The log ends before the frontier: it is not the log that the frontier is about.
    #[error("the sink's frontier is offset {frontier}, beyond the log's end at {log_end}")]
    BeyondEnd {
        /// The next record that is needed.
        frontier: Offset,
        /// The offset after the last record that is there.
        log_end: Offset,
    },
}

/// How far before its frontier a lane reads at least: a tombstone's table is known by the delete right before it.
pub const REMEMBERED: i64 = 100;

/// How many records a lane without a frontier reads before its start.
pub const STRETCH: i64 = 10_000;

/// Plans the start of a lane that has committed before.
///
/// # Errors
/// When the log does not hold what comes next.
pub fn resume(state: &LaneState, partition_count: i32, log: LogBounds) -> Result<Plan, CannotStart> {
    within(state.next_offset, log)?;
    let windows_lost = state.memory_offset < log.start;
    let read_from = state.memory_offset.min(Offset(state.next_offset.0.saturating_sub(REMEMBERED)));
    Ok(Plan {
        read_from: read_from.max(log.start),
        start: Start {
            frontier: state.next_offset,
            highest_xid: state.highest_xid,
            // The lost stretch may hold transactions that the stored id does not cover.
            unknown_past: state.unknown_past || windows_lost,
            first_partition_count: state.partition_count,
            partition_count,
        },
        windows_lost,
    })
}

/// Plans the start of a lane that has never committed, at `from`.
///
/// # Errors
/// When the log does not hold what comes next.
pub fn begin(from: Offset, partition_count: i32, log: LogBounds) -> Result<Plan, CannotStart> {
    within(from, log)?;
    let read_from = Offset(from.0.saturating_sub(STRETCH)).max(log.start);
    Ok(Plan {
        read_from,
        start: Start {
            frontier: from,
            highest_xid: None,
            unknown_past: read_from > Offset(0),
            first_partition_count: partition_count,
            partition_count,
        },
        windows_lost: false,
    })
}

fn within(frontier: Offset, log: LogBounds) -> Result<(), CannotStart> {
    if frontier < log.start {
        Err(CannotStart::RecordsLost { frontier, log_start: log.start })
    } else if frontier > log.end {
        Err(CannotStart::BeyondEnd { frontier, log_end: log.end })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sink_api::Xid;

    use super::*;

    const LOG: LogBounds = LogBounds { start: Offset(100), end: Offset(50_000) };

    fn state(next: i64, memory: i64) -> LaneState {
        LaneState {
            next_offset: Offset(next),
            memory_offset: Offset(memory),
            highest_xid: Some(Xid(7)),
            unknown_past: false,
            partition_count: 1,
        }
    }

    #[test]
    fn a_lane_reads_from_its_oldest_open_window() {
        let plan = resume(&state(400, 150), 1, LOG).expect("the log holds both offsets");

        assert_eq!((plan.read_from, plan.start.frontier, plan.windows_lost), (Offset(150), Offset(400), false));
        assert_eq!((plan.start.highest_xid, plan.start.unknown_past), (Some(Xid(7)), false));
    }

    #[test]
    fn a_lane_without_open_windows_reads_the_records_right_before_its_frontier() {
        let from = |next: i64| resume(&state(next, next), 1, LOG).map(|plan| (plan.read_from, plan.windows_lost));

        assert_eq!(from(400), Ok((Offset(300), false)));
        assert_eq!(from(150), Ok((Offset(100), false)));
    }

    #[test]
    fn a_window_whose_low_is_gone_makes_the_past_unknown() {
        let plan = resume(&state(200, 50), 1, LOG).expect("the log holds the frontier");

        assert_eq!((plan.read_from, plan.windows_lost, plan.start.unknown_past), (Offset(100), true, true));
    }

    #[test]
    fn lost_records_are_never_skipped() {
        assert_eq!(
            resume(&state(99, 99), 1, LOG),
            Err(CannotStart::RecordsLost { frontier: Offset(99), log_start: Offset(100) })
        );
    }

    #[test]
    fn a_frontier_beyond_the_end_is_of_another_log() {
        assert_eq!(
            resume(&state(50_001, 50_001), 1, LOG),
            Err(CannotStart::BeyondEnd { frontier: Offset(50_001), log_end: Offset(50_000) })
        );
    }

    #[test]
    fn a_new_lane_reads_a_stretch_before_its_start() {
        let plan = begin(Offset(20_000), 1, LOG).expect("the log holds the start");

        assert_eq!(
            (plan.read_from, plan.start.frontier, plan.start.unknown_past),
            (Offset(10_000), Offset(20_000), true)
        );
    }

    #[test]
    fn a_lane_at_the_log_s_very_beginning_knows_its_past() {
        let log = LogBounds { start: Offset(0), end: Offset(5) };

        assert!(!begin(Offset(0), 1, log).expect("the log holds the start").start.unknown_past);
    }
}

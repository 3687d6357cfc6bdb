//! When PostgreSQL itself says that a row was committed.

use anyhow::Result;
use test_support::{Part, Stack};

/// The commit of the transaction that wrote a row `i`, in microseconds since 1970-01-01 UTC. PostgreSQL takes the time
/// as it commits, just before it flushes its log.
pub const COMMITTED_US: &str = "(extract(epoch FROM pg_xact_commit_timestamp(i.xmin)) * 1000000)::bigint";

/// Has the sink keep the times of its commits; it must be started again for that.
pub async fn keep_times(stack: &Stack) -> Result<()> {
    let mut sink = stack.sink().await?;
    if sink.value("SELECT current_setting('track_commit_timestamp')").await?.as_deref() == Some("on") {
        return Ok(());
    }
    sink.run("ALTER SYSTEM SET track_commit_timestamp = on").await?;
    drop(sink);
    stack.stop(Part::Sink).await?;
    stack.start(Part::Sink).await
}

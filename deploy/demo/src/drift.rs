//! The drift: what goes wrong with sinks in practice, done on purpose.

use anyhow::Result;
use test_support::Database;

/// What was planted.
#[derive(Clone, Copy, Debug)]
pub struct Drift {
    /// Rows that only the sink holds.
    pub orphans: u64,
    /// Rows that the sink lost.
    pub lost: u64,
}

/// Rows between the source's keys, below the lowest, above the highest, and a side writer's; and one large group in one
/// place, which a cap has to stop.
const ORPHANS: [(&str, u64); 5] = [
    (
        "SELECT 'order-' || lpad((g * 150)::text, 6, '0') || '-ghost', -1, 0, 'deleted while the log was cut off', now() FROM generate_series(1, 600) g",
        600,
    ),
    ("SELECT 'aaa-' || lpad(g::text, 4, '0'), -1, 0, 'below', now() FROM generate_series(1, 40) g", 40),
    ("SELECT 'zzz-' || lpad(g::text, 4, '0'), -1, 0, 'above', now() FROM generate_series(1, 40) g", 40),
    ("SELECT 'side-writer-' || g, -1, 0, 'written by a script', now() FROM generate_series(1, 120) g", 120),
    (
        "SELECT 'order-055000-' || lpad(g::text, 5, '0'), -1, 0, 'restored from a backup', now() FROM generate_series(1, 3000) g",
        3_000,
    ),
];

/// One row of the sink in 200 is lost.
const LOST: (&str, u64) =
    ("DELETE FROM inventory.orders WHERE right(code, 6) ~ '^[0-9]+$' AND right(code, 6)::int % 200 = 7", 500);

/// Drifts the sink.
pub async fn plant(sink: &mut Database) -> Result<Drift> {
    sink.run(LOST.0).await?;
    for (rows, _) in ORPHANS {
        sink.run(format!("INSERT INTO inventory.orders {rows}")).await?;
    }
    Ok(Drift { orphans: ORPHANS.iter().map(|(_, rows)| rows).sum(), lost: LOST.1 })
}

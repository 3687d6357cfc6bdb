//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Asks again and again until the answer is something, and returns it.
///
/// An error of `ask` ends the wait at once. When `limit` has passed, the error names `what`.
pub async fn until<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await.with_context(|| format!("wait until {what}"))? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {:.1} s in vain until {what}", start.elapsed().as_secs_f64());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

//! SIGTERM and SIGINT: the first asks the program to end in order, a second ends it at once.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What shells report for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Returns a token that is cancelled by the first signal. Needs a runtime.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn on_signal() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("listen to SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen to SIGINT")?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let signal = either(&mut terminate, &mut interrupt).await;
        info!(signal, "stopping");
        asked.cancel();

        let signal = either(&mut terminate, &mut interrupt).await;
        warn!(signal, "ended at once; the work in hand is rolled back and done again after the start");
        std::process::exit(INTERRUPTED);
    });
    Ok(stop)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        // The order decides only the word in the log.
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

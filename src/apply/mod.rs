//! The command `apply`: applies a change stream and its statements of absence to a sink.
mod asked;
mod barrier;
mod command;
pub(crate) mod connect;
mod feeds;
mod gaps;
mod hints;
mod isolate;
mod kafka_port;
mod known;
mod lane;
mod observer;
mod ports;
mod report;
mod requests;
mod run;
mod scope;
mod signal_text;
mod start;
mod take;
#[cfg(test)]
mod tests;
mod writer;

use crate::{retry::Backoff, status::Awaited};
use observer::Observer;
use sink_api::{ErrorClass, SinkError};

pub use barrier::Rules;
pub use command::apply;
pub(crate) use command::client;

use writer::Wait;

/// Asks the sink until it answers: transient errors are waited out, visibly.
///
/// # Errors
/// Any other error.
async fn patiently<T, F: Future<Output = Result<T, SinkError>>>(
    observer: &mut Observer,
    mut ask: impl FnMut() -> F,
) -> Result<T, SinkError> {
    let mut backoff = Backoff::default();
    loop {
        match ask().await {
            Err(error) if error.class == ErrorClass::Transient => {
                let delay = backoff.next(rand::random(), error.retry_after);
                let (attempts, delay_ms) = (backoff.failures(), delay.as_millis() as u64);
                tracing::warn!(error = %error, attempts, delay_ms, "waiting");
                observer.waiting(Some(&Wait {
                    on: Awaited::Sink,
                    error: error.to_string(),
                    hint: error.hint,
                    code: error.code,
                    attempts: backoff.failures(),
                }));
                tokio::time::sleep(delay).await;
            }
            answer => {
                if backoff.failures() > 0 {
                    observer.waiting(None);
                }
                return answer;
            }
        }
    }
}

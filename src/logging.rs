//! Log lines on standard error, as text for people or one JSON object a line for collectors.
//!
//! A layer beside the writer counts warnings and errors that pass the filter, so that an alert can stand on a metric
//! where nobody reads the log.

use std::io::{self, IsTerminal};

use anyhow::Context;
use prometheus::IntCounter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, fmt,
    layer::{self, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::config::{LogFormat, LogSettings};

/// Counters of log lines by severity.
#[derive(Clone, Debug)]
pub struct LogCounters {
    /// Warnings.
    pub warn: IntCounter,
    /// Errors.
    pub error: IntCounter,
}

/// Starts logging, once in the life of the process.
///
/// # Errors
/// When logging was started before.
pub fn start(settings: &LogSettings, counters: LogCounters) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.level).context("read the log level")?;
    let lines = lines(settings.format, io::stderr().is_terminal(), io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).with(counters).try_init().context("start logging")
}

fn lines<S, W>(format: LogFormat, colours: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    match format {
        LogFormat::Text => fmt::layer().with_ansi(colours).with_writer(writer).boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(writer)
            .boxed(),
    }
}

impl<S: Subscriber> Layer<S> for LogCounters {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        match *event.metadata().level() {
            Level::ERROR => self.error.inc(),
            Level::WARN => self.warn.inc(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::Metrics;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, counters: LogCounters) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::registry()
            .with(EnvFilter::new("info"))
            .with(lines(format, false, move || writer.clone()))
            .with(counters);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(removed = 2, read_id = "snap-01", "statement applied");
            tracing::warn!("reconnected");
            tracing::error!("stopped");
            tracing::debug!("not logged");
        });
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_json_line_is_one_flat_object() {
        let text = logged(LogFormat::Json, Metrics::new().log_counters());

        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0]["timestamp"].take().is_string());
        assert_eq!(
            lines[0],
            json!({"timestamp": null, "level": "INFO", "message": "statement applied", "removed": 2,
                   "read_id": "snap-01", "target": "sink_repair::logging::tests"})
        );
    }

    #[test]
    fn warnings_and_errors_are_counted() {
        let counters = Metrics::new().log_counters();

        let text = logged(LogFormat::Text, counters.clone());

        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!((counters.warn.get(), counters.error.get()), (1, 1));
    }
}

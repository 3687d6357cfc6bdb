//! Every default of `apply`, as `--help` shows it, with its reason. (Settings without a default here have none.)

/// A new consumer group has no offsets; skipping what Kafka still holds would lose it in silence.
pub(crate) const START: &str = "earliest";

/// A sink that keeps the source's names needs no mapping.
pub(crate) const SINK_TABLE: &str = "{schema}.{table}";

/// A truncate has no key: it may have come from a table that shares the topic.
pub(crate) const TRUNCATE: &str = "stop";

/// An operator sees what would go before anything goes.
pub(crate) const ORPHANS: &str = "report";

/// Longer than any holiday during which a wrong removal may go unnoticed.
pub(crate) const KEEP_REMOVED: &str = "30d";

/// Drift is mostly small; a statement that finds more is looked at by a person first.
pub(crate) const MAX_REMOVALS: &str = "1000";

/// Of the lane's rows in the range; below 20 rows the share says nothing and is not asked.
pub(crate) const MAX_REMOVALS_PERCENT: &str = "5";

/// A bracketed read lasts seconds, and its window holds the keys changed meanwhile: some hundred thousand fit.
pub(crate) const WINDOW_MAX_BYTES: &str = "16MiB";

/// The source's longest transactions delay a read's close by minutes; a low marker without a close after an hour is lost.
pub(crate) const WINDOW_MAX_AGE: &str = "1h";

/// PostgreSQL takes most rows a second at 2,000 a statement; more gains nothing and costs memory and latency.
pub(crate) const BATCH_ROWS: &str = "2000";

/// Short against the 150 ms that a change may take, long against a transaction's fixed cost of about 1 ms.
pub(crate) const BATCH_DELAY: &str = "20ms";

/// Records waiting in all lanes; together with the client's own buffers the process stays under 64 MB.
pub(crate) const MEMORY: &str = "16MiB";

/// Only this machine: the pages have no login.
pub(crate) const LISTEN: &str = "127.0.0.1:9464";

/// People look first; collectors say `json`.
pub(crate) const LOG: &str = "text";

/// Changes of state, not records.
pub(crate) const LOG_LEVEL: &str = "info";

// What the PostgreSQL connector does when its property is not set.

/// `decimal.handling.mode`
pub(crate) const DECIMAL_HANDLING_MODE: &str = "precise";
/// `time.precision.mode`
pub(crate) const TIME_PRECISION_MODE: &str = "adaptive";
/// `binary.handling.mode`
pub(crate) const BINARY_HANDLING_MODE: &str = "bytes";
/// `interval.handling.mode`
pub(crate) const INTERVAL_HANDLING_MODE: &str = "numeric";
/// `hstore.handling.mode`
pub(crate) const HSTORE_HANDLING_MODE: &str = "json";
/// `unavailable.value.placeholder`
pub(crate) const UNAVAILABLE_VALUE_PLACEHOLDER: &str = "__debezium_unavailable_value";

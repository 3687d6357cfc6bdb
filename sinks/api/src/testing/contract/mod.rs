//! The contract of a sink, as assertions.
//!
//! [`assert_contract`] keeps every promise of [`crate::sink`] to account on any sink. The sink's own test brings a
//! [`Fixture`]: the sink, over two tables that the fixture makes and empties, and the few looks and pushes that the
//! contract needs from outside.
//!
//! In PostgreSQL's words, the two tables are:
//!
//! ```sql
//! CREATE TABLE contract.items (
//!     id bigint PRIMARY KEY,
//!     name text,
//!     state text NOT NULL DEFAULT 'new',
//!     body text
//! );
//! CREATE TABLE contract.lines (
//!     quantity bigint,
//!     line bigint,
//!     code text COLLATE "C",
//!     PRIMARY KEY (code, line)
//! );
//! ```
//!
//! The key of `lines` is not in table order, on purpose. Keys are of the types `Int` and (`Text`, `Int`).

mod claims;
mod differences;
mod fences;
mod removals;
mod rig;
mod statements;
mod writes;

use std::{future::Future, time::Duration};

use crate::{ReadId, Row, Sink, TableName};

/// Name of the table with an integer key, in schema `contract`.
pub const ITEMS: &str = "items";

/// Name of the table with a key of text and an integer, in schema `contract`.
pub const LINES: &str = "lines";

/// A sink to hold to the contract.
pub trait Fixture {
    /// The sink.
    type Sink: Sink;

    /// Returns the sink.
    fn sink(&self) -> &Self::Sink;

    /// Returns the committed rows of a table in key order, each with its values in table order: `Int`, `Text`, `Null`.
    /// Read past the sink, on a connection of its own.
    fn rows(&self, table: &TableName) -> impl Future<Output = Vec<Row>>;

    /// Returns what was written down of the statements of a read, of all lanes.
    fn recorded(&self, read_id: &ReadId) -> impl Future<Output = Vec<Recorded>>;

    /// Makes every kept copy of a removed row, and its removal, older.
    fn age(&self, by: Duration) -> impl Future<Output = ()>;
}

/// What a sink has written down of one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The verdict's name.
    pub verdict: String,
    /// The rule of a verdict that has one.
    pub rule: Option<String>,
    /// How many orphans it counts.
    pub orphans: u64,
    /// How many removed rows it counts.
    pub removed: u64,
    /// How many missing keys it counts.
    pub missing: u64,
    /// How many spared keys it counts.
    pub spared: u64,
    /// How many rows in range it counts.
    pub in_range: u64,
    /// How many orphans it names.
    pub named_orphans: u64,
}

/// Names the promise at hand when its assertion fails.
struct Promise(&'static str);

impl Drop for Promise {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[allow(clippy::print_stderr)] // A test's message: the panic itself says only the line.
            {
                eprintln!("the sink does not keep its promise: {}", self.0);
            }
        }
    }
}

macro_rules! promises {
    ($make:ident: $($part:ident { $($promise:ident,)* })*) => {
        $($({
            let fixture = $make().await;
            let promise = Promise(stringify!($promise));
            $part::$promise(&fixture).await;
            drop(promise);
        })*)*
    };
}

/// Asserts that a sink keeps every promise of [`crate::sink`].
///
/// `make` returns a fixture with empty tables and a sink that remembers nothing; it is called once for each promise,
/// after the fixture before was dropped.
///
/// # Panics
/// At the first promise that the sink does not keep; standard error names it.
pub async fn assert_contract<F: Fixture>(make: impl AsyncFn() -> F) {
    promises! { make:
        claims {
            a_table_is_described_with_its_columns_and_its_key_in_key_order,
            a_table_that_is_not_there_is_a_configuration_error,
            a_lane_that_never_committed_has_no_state,
            a_claim_returns_the_state_committed_last,
            lanes_of_other_partitions_topics_and_workers_are_apart,
            the_state_of_another_incarnation_is_reported_and_not_used,
            a_table_belongs_to_the_stream_that_claimed_it_first,
            the_budget_names_all_streams_of_a_table_that_another_one_feeds,
        }
        fences {
            a_commit_replaces_only_the_state_that_it_expects,
            a_lane_taken_over_before_its_unit_writes_nothing,
            a_lane_taken_over_during_its_unit_writes_nothing,
            a_claim_does_not_wait_for_the_earlier_owner_s_unit,
            a_lane_learns_which_state_is_committed,
            a_late_lane_is_fenced_when_it_asks_what_is_committed,
            a_dropped_unit_leaves_nothing_and_the_lane_goes_on,
            an_empty_unit_moves_the_frontier,
        }
        writes {
            an_upsert_makes_and_changes_rows,
            an_upsert_keeps_old_values_that_it_does_not_have,
            a_new_row_takes_the_default_of_an_absent_column,
            a_replace_keeps_nothing_of_the_old_row,
            a_row_that_lacks_its_old_value_is_not_made_but_missing,
            a_delete_takes_its_row_and_needs_none,
            one_unit_writes_several_tables,
            writes_of_a_unit_build_on_each_other,
            a_batch_written_again_changes_nothing,
            a_bad_row_is_a_data_error_and_kills_the_whole_unit,
            a_truncate_empties_its_table_with_the_unit,
        }
        differences {
            a_range_has_bounds_of_every_kind,
            a_range_of_composite_keys_is_in_byte_order,
            a_difference_over_listed_keys_looks_at_no_others,
            spared_keys_are_neither_orphans_nor_missing,
            a_difference_counts_all_and_names_the_first,
            a_difference_sees_the_unit_s_own_writes,
            a_difference_goes_on_over_many_rows,
            keys_close_together_are_compared_as_any_others,
        }
        removals {
            a_removal_takes_the_rows_that_are_there_and_counts_them,
            a_removal_and_its_copies_are_one_unit,
            an_undo_by_read_brings_whole_rows_back_once,
            an_undo_by_table_brings_back_what_was_removed_since,
            an_undo_never_writes_over_a_row,
            an_undo_brings_back_the_newest_of_several_copies,
            copies_are_forgotten_when_they_are_old,
            the_budget_counts_removals_of_a_day_and_of_the_unit,
            the_budget_is_of_the_rows_that_a_truncate_left,
        }
        statements {
            a_verdict_is_final,
            a_verdict_counts_in_its_own_lane_and_incarnation_only,
            what_became_of_a_statement_can_be_read,
            held_statements_wait_until_a_later_one_of_their_range_is_applied,
        }
    }
}

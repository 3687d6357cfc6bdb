//! The sink on a real PostgreSQL. Tests are named after the rule that they prove.

#![allow(clippy::unwrap_used, missing_docs)]

mod changed_tables;
mod contract;
mod exactly_once;
mod failures;
mod fixture;
mod ranges;
mod removals;
mod rows;
mod table_shapes;
mod values;

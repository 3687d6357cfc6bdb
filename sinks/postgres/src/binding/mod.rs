//! From values to parameters.
//!
//! A batch travels as one array per column, built in PostgreSQL's binary form without an allocation per value. Types
//! whose binary form is plain travel as themselves (the [`Carrier`]); all others travel as text and are cast **per row,
//! to the base type without its modifier**: a cast to `varchar(2)` would truncate in silence, where the assignment to
//! the column raises an error. What even an assignment rounds or strips in silence is found beforehand, in [`fit`].

mod carrier;
mod column_buffer;
mod fit;
mod key_values;
mod numeric;
mod text_form;

pub(crate) use carrier::Carrier;
pub(crate) use column_buffer::{ColumnBuffer, Raw, ValueError, postgres_micros};
pub(crate) use key_values::{KeyBuffers, KeyFault, append_key_page, key_json, key_values, scalar_parameters};

//! missing_rows

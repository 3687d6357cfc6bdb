//! bad_statements

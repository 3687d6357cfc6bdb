//! schema_changes

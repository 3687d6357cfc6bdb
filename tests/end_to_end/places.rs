//! places

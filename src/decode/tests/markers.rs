//! markers

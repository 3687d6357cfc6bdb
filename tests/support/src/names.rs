//! Names that no other test has.

use rand::Rng;

/// Returns `stem_` and eight random hexadecimal digits: good as a connector, topic prefix, slot, publication or schema
/// when `stem` is of small letters, digits and underscores.
///
/// Random and not counted, since test binaries share the servers and run at the same time.
pub fn unique(stem: &str) -> String {
    format!("{stem}_{:08x}", rand::rng().random::<u32>())
}

//! Debezium's signal table: its rows travel like any other's and are not meant for a sink.
//!
//! The operator may name the table. Else it is known by the rows that Debezium itself writes into it around each chunk
//! of an incremental snapshot, or by a command with its data; a table of the user that happens to have the same three
//! columns is a table like any other.

use serde_json::value::RawValue;

use super::json::{self, Broken, Kind};

/// Whether a row is one of a signal table.
pub(super) fn is_signal_row(row: &str) -> bool {
    let (mut id, mut kind, mut data, mut others) = (None, None, None, 0);
    let walked = json::object::<Broken>(row, |name, raw| {
        match &*name {
            "id" => id = Some(raw),
            "type" => kind = Some(raw),
            "data" => data = Some(raw),
            name if name.starts_with("__") => {}
            _ => others += 1,
        }
        Ok(())
    });
    let (Ok(()), 0, Some(id), Some(kind), Some(data)) = (walked, others, id, kind, data) else { return false };
    let Some(kind) = json::string(kind) else { return false };
    match &*kind {
        // The row that a delete leaves has the key alone.
        "" => Kind::of(data) == Kind::Null && is_window_id(id),
        "snapshot-window-open" | "snapshot-window-close" => is_window_id(id),
        "execute-snapshot" | "stop-snapshot" | "pause-snapshot" | "resume-snapshot" | "verify-keys-absent" => {
            json::string(data).is_some_and(|data| data.contains("\"data-collections\""))
        }
        _ => false,
    }
}

/// Whether a key is of a row that Debezium writes around a chunk.
pub(super) fn is_window_key(key: &str) -> bool {
    let (mut found, mut fields) = (false, 0);
    let walked = json::object::<Broken>(key, |name, raw| {
        fields += 1;
        found = name == "id" && is_window_id(raw);
        Ok(())
    });
    walked.is_ok() && fields == 1 && found
}

/// Whether an id is a UUID with `-open` or `-close`.
fn is_window_id(raw: &RawValue) -> bool {
    json::string(raw).is_some_and(|id| {
        let uuid = id.strip_suffix("-open").or_else(|| id.strip_suffix("-close"));
        uuid.is_some_and(|uuid| {
            uuid.len() == 36
                && uuid.bytes().enumerate().all(|(at, byte)| match at {
                    8 | 13 | 18 | 23 => byte == b'-',
                    _ => byte.is_ascii_hexdigit(),
                })
        })
    })
}

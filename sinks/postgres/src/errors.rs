//! From PostgreSQL's errors to the classes that the lane acts on.
//!
//! The class comes from the SQLSTATE (PostgreSQL documentation, appendix A). What the operator reads is made of the
//! primary message and the names that the server sends along. DETAIL is left out, since it quotes rows; so are the
//! quoted parts of messages about values, and the texts of exceptions that triggers raise.

use sink_api::{ErrorClass, SinkError};
use sqlx::postgres::PgDatabaseError;

/// Returns the class of an SQLSTATE.
pub fn class_of(code: &str) -> ErrorClass {
    use ErrorClass::{Configuration, Data, Transient};

    match code {
        // The server's plan of a statement outlived a change of the table; the next connection makes a new one.
        "26000" | "42P05" => Transient,
        // A statement in a transaction that has already failed: the first failure has been told.
        "25P02" => Transient,
        // A standby, or a primary on its way to becoming one.
        "25006" => Transient,
        // Locked or in use by another session.
        "55P03" | "55006" => Transient,
        "XX001" | "XX002" => Configuration,
        "54000" | "54001" | "21000" => Data,
        _ => match code.get(..2).unwrap_or_default() {
            "08" | "40" | "53" | "57" | "58" | "XX" => Transient,
            "25" if code == "25P03" || code == "25P04" => Transient,
            "22" | "23" | "44" | "P0" | "38" | "39" => Data,
            _ => Configuration,
        },
    }
}

/// Makes the sink's error of what happened while doing `what` (a verb phrase in the present).
pub(crate) fn classify(what: &str, error: &sqlx::Error) -> SinkError {
    match error {
        sqlx::Error::Database(database) => match database.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => from_server(what, error),
            None => SinkError::new(ErrorClass::Transient, format!("{what}: the server reported an error")),
        },
        sqlx::Error::Io(error) => SinkError::new(ErrorClass::Transient, format!("{what}: {error}")),
        sqlx::Error::Tls(error) => SinkError::new(ErrorClass::Configuration, format!("{what}: TLS: {error}"))
            .hint("check sslmode and sslrootcert in the sink's URL against the server's certificate"),
        sqlx::Error::Configuration(_) => {
            SinkError::new(ErrorClass::Configuration, format!("{what}: the sink's URL is not valid"))
                .hint("write it as postgres://USER@HOST:PORT/DATABASE, with special characters percent-encoded")
        }
        sqlx::Error::Protocol(message) => SinkError::new(ErrorClass::Transient, format!("{what}: protocol: {message}")),
        sqlx::Error::RowNotFound => SinkError::new(ErrorClass::Transient, format!("{what}: the server sent no row")),
        // Encoding and decoding: the values may be in the message.
        _ => {
            SinkError::new(ErrorClass::Configuration, format!("{what}: the server sent an answer of unexpected types"))
        }
    }
}

fn from_server(what: &str, error: &PgDatabaseError) -> SinkError {
    let code = error.code();
    let mut class = class_of(code);
    let mut hint = hint_for(code, error);
    let mut message = safe_message(error);
    if matches!(code, "42P01" | "3F000") && names_own_schema(&message) {
        hint = Some(OWN_SCHEMA_GONE.to_owned());
    }
    if code == "23514" && error.constraint().is_none() {
        // The one check without a name is that a partition for the row exists.
        class = ErrorClass::Configuration;
        hint = Some("create the missing partition, or a DEFAULT partition".to_owned());
    }
    if code == "0A000" && error.routine() == Some("RevalidateCachedQuery") {
        class = ErrorClass::Transient;
    }
    if matches!(code, "23505" | "23P01")
        && let (Some(constraint), Some(table)) = (error.constraint(), error.table())
    {
        let schema = error.schema().unwrap_or_default();
        message =
            format!("another row of {schema}.{table} holds a value that constraint \"{constraint}\" keeps unique");
    }
    let mut sink_error = SinkError::new(class, format!("{what}: {message}")).code(code);
    sink_error.hint = hint;
    sink_error
}

const OWN_SCHEMA_GONE: &str = "the worker's own tables are gone, and with them its frontiers, all verdicts and the copies of removed rows: stop the \
     workers of this sink, then restore the schema sink_repair together with the tables, or begin anew (docs/operations.md, \
     \"The schema sink_repair is gone\")";

/// Whether a message is about the schema `sink_repair` or a table in it, in whatever language.
fn names_own_schema(message: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    message.match_indices("sink_repair").any(|(at, name)| {
        !message[..at].ends_with(|before: char| is_name(before) || before == '.')
            && !message[at + name.len()..].starts_with(is_name)
    })
}

/// Returns the primary message without what may be row data.
fn safe_message(error: &PgDatabaseError) -> String {
    let message = error.message();
    match error.code().get(..2).unwrap_or_default() {
        "P0" | "38" | "39" => {
            let place = error
                .r#where()
                .and_then(|context| context.lines().next())
                .filter(|line| line.starts_with("PL/pgSQL function "))
                .map(|line| format!(" ({line})"))
                .unwrap_or_default();
            format!("a trigger or function raised an exception{place}")
        }
        "22" => {
            let mut safe = match (message.find('"'), message.rfind('"')) {
                (Some(first), Some(last)) if first < last => {
                    format!("{}\"…\"{}", &message[..first], &message[last + 1..])
                }
                _ => message.to_owned(),
            };
            if let Some(column) = error.column() {
                safe.push_str(&format!(" (column \"{column}\")"));
            }
            safe
        }
        _ => message.to_owned(),
    }
}

fn hint_for(code: &str, error: &PgDatabaseError) -> Option<String> {
    let hint = match code {
        "23505" | "23P01" => {
            "the other row may be an orphan: look for it by the constraint's columns (the key in question is in the \
             server's log), and remove it or have its key verified at the source; values that rows exchange within \
             one transaction need the constraint to be DEFERRABLE INITIALLY IMMEDIATE where rows of this table may \
             not be deleted"
        }
        "23503" => {
            "a foreign key of the sink stands in the way: the stream may carry the rows of its two tables in any \
             order, so drop it, or declare it DEFERRABLE INITIALLY DEFERRED where one lane writes both tables"
        }
        "23502" => {
            "give the column a default or let it be null: the stream carries no value for it, or null (then a default does not help)"
        }
        "25006" => "the server is read-only: a standby, or default_transaction_read_only is on",
        "28000" | "28P01" => "check user and password of the sink's URL and the server's pg_hba.conf",
        "3D000" => "create the database, or correct its name in the sink's URL",
        "42501" => "grant the sink's role what it lacks on the object",
        "42P01" | "42703" => "the sink's table has changed, or was dropped",
        "53300" => "raise max_connections, or run fewer lanes",
        "53100" => "free space on the server's disk",
        "55P03" => "another session holds a lock: look for it with pg_blocking_pids()",
        "57014" => {
            "the statement ran into statement_timeout (60 s): look for what blocks or slows it in pg_stat_activity, \
             for triggers and for foreign keys without an index"
        }
        "22021" | "22P05" => "PostgreSQL cannot store the character U+0000 in text",
        _ => return error.hint().filter(|_| !code.starts_with("22") && !code.starts_with("P0")).map(str::to_owned),
    };
    Some(hint.to_owned())
}

/// Returns the SQLSTATE of an error of the server.
pub(crate) fn code(error: &sqlx::Error) -> Option<&str> {
    match error {
        sqlx::Error::Database(database) => database.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::code),
        _ => None,
    }
}

/// Makes the error of a value that the sink's column cannot hold exactly.
pub(crate) fn value_error(what: &str, column: &str, reason: impl std::fmt::Display) -> SinkError {
    SinkError::new(ErrorClass::Data, format!("{what}: column \"{column}\": {reason}"))
        .hint("a value is never truncated or rounded: widen the column")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_schema_is_told_from_others() {
        for own in [
            "relation \"sink_repair.frontier\" does not exist",
            "schema \"sink_repair\" does not exist",
            "Relation »sink_repair.stream« existiert nicht",
        ] {
            assert!(names_own_schema(own), "{own}");
        }
        for other in [
            "relation \"public.t\" does not exist",
            "relation \"my_sink_repair.t\" does not exist",
            "relation \"a.sink_repair\" does not exist",
        ] {
            assert!(!names_own_schema(other), "{other}");
        }
    }

    #[test]
    fn every_class_of_sqlstate_is_sorted() {
        let sorted = |codes: &[&str]| codes.iter().map(|code| class_of(code)).collect::<Vec<_>>();

        let transient =
            sorted(&["08006", "40001", "40P01", "53300", "55P03", "57014", "57P01", "25006", "25P03", "26000"]);
        let data = sorted(&["22001", "22P02", "23502", "23505", "P0001", "44000", "54000", "21000"]);
        let configuration =
            sorted(&["28P01", "3D000", "42P01", "42703", "42501", "428C9", "42P10", "0A000", "55000", "XX002"]);

        assert_eq!(transient, vec![ErrorClass::Transient; 10]);
        assert_eq!(data, vec![ErrorClass::Data; 8]);
        assert_eq!(configuration, vec![ErrorClass::Configuration; 10]);
    }
}

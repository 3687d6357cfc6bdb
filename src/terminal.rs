//! What commands say to the person who ran them: answers on standard output, errors on standard error.
//!
//! A reader that has gone away (`sink-repair status | head`) is no error.

use std::io::{self, Write};

use sink_api::SinkError;

use crate::config::Usage;

/// Writes `text` to standard output.
///
/// # Errors
/// When it cannot be written, except for a reader that has gone away.
pub fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes an error to standard error, in two lines when it says what to do.
pub fn complain(err: &anyhow::Error) {
    // Nothing is left to tell when standard error itself is gone.
    let _ = io::stderr().lock().write_all(two_lines(err).as_bytes());
}

fn two_lines(err: &anyhow::Error) -> String {
    let hint = err.chain().find_map(|cause| {
        let of_sink = cause.downcast_ref::<SinkError>().and_then(|err| err.hint.as_deref());
        of_sink.or_else(|| cause.downcast_ref::<Usage>().and_then(|usage| usage.hint.as_deref()))
    });
    let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    format!("error: {err:#}\n{hint}")
}

/// Quotes a word for a shell, where it must be: names come from records and topics, and operators copy commands.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@%+-".contains(&byte);
    if !word.is_empty() && !word.starts_with('-') && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use sink_api::ErrorClass;

    use super::*;

    #[test]
    fn an_error_says_what_and_what_to_do() {
        let err = SinkError::new(ErrorClass::Configuration, "table public.orders is not there").hint("create it");

        let err = anyhow::Error::new(err).context("describe public.orders");

        assert_eq!(
            two_lines(&err),
            "error: describe public.orders: table public.orders is not there\nhint: create it\n"
        );
        assert_eq!(two_lines(&anyhow::anyhow!("no hint")), "error: no hint\n");
    }

    #[test]
    fn a_read_id_cannot_break_out_of_the_command_that_is_suggested() {
        assert_eq!(shell_word("snap-01-chunk-07"), "snap-01-chunk-07");
        assert_eq!(shell_word("a; rm -rf ~"), "'a; rm -rf ~'");
        assert_eq!(shell_word("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(shell_word("--up-to"), "'--up-to'");
    }
}

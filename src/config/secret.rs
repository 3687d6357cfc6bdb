//! Values that are never printed.

use std::{fmt, fs, path::Path};

use super::Usage;

/// A signature key shorter than this can be guessed; `openssl rand -hex 16` gives 32 characters.
const SHORTEST_MARKER_KEY: usize = 16;

/// A secret: `Debug` hides it, and nothing displays it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// Wraps a secret.
    pub fn new(secret: T) -> Secret<T> {
        Secret(secret)
    }

    /// Returns the secret, for the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Reads a password from a file; one line ending after it does not count, as editors and `echo` add it.
pub(crate) fn read_password(path: &Path) -> Result<Secret, Usage> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Usage::new(format!("{} is not UTF-8 text", path.display())).hint("write the password as UTF-8"))?;
    match text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text)) {
        "" => Err(Usage::new(format!("{} is empty", path.display())).hint("write the password into it")),
        password => Ok(Secret(password.to_owned())),
    }
}

/// Reads the key of the markers' signatures from a file, without the line ending.
pub(crate) fn read_marker_key(path: &Path) -> Result<Secret<Vec<u8>>, Usage> {
    let mut key = read(path)?;
    while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        key.pop();
    }
    if key.len() < SHORTEST_MARKER_KEY {
        return Err(Usage::new(format!("the key in {} has fewer than {SHORTEST_MARKER_KEY} bytes", path.display()))
            .hint("make one with: openssl rand -hex 32"));
    }
    Ok(Secret(key))
}

fn read(path: &Path) -> Result<Vec<u8>, Usage> {
    fs::read(path).map_err(|err| {
        Usage::new(format!("read {}: {err}", path.display())).hint("check the path and the worker's rights on the file")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn one_line_ending_after_a_password_does_not_count() {
        let read = |content: &[u8]| read_password(file(content).path()).map(|secret| secret.expose().clone());

        assert_eq!(read(b"p w\n"), Ok("p w".to_owned()));
        assert_eq!(read(b"p w\r\n"), Ok("p w".to_owned()));
        assert_eq!(read(b"p\n\n"), Ok("p\n".to_owned()));
        assert!(read(b"\n").is_err());
        assert!(read(b"\xff").is_err());
    }

    #[test]
    fn a_marker_key_that_can_be_guessed_is_refused() {
        let error = read_marker_key(file(b"short\n").path()).unwrap_err();

        assert!(error.message.ends_with("has fewer than 16 bytes"), "{error}");
        let key = read_marker_key(file(b"0123456789abcdef\n").path()).unwrap();
        assert_eq!(key.expose(), b"0123456789abcdef");
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(***)");
    }
}

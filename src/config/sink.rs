//! Where the sink is and how to log in to it, with the password kept apart from the address.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Secret, Usage};

/// A sink's address without its password, so that it can be printed anywhere.
#[derive(Clone, PartialEq, Eq)]
pub struct SinkAddress(Url);

/// A sink's address as it was written, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenSink {
    /// The address, without a password.
    pub address: SinkAddress,
    /// The password that stood in it.
    pub password: Option<Secret>,
}

/// Where the sink is and how to log in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// The address, without a password.
    pub address: SinkAddress,
    /// The password, if there is one.
    pub password: Option<Secret>,
}

impl SinkAddress {
    /// Returns the address as a URL without a password.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for SinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl fmt::Debug for SinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Reads `postgres://USER@HOST/DB`. No error repeats the text, since it may hold a password.
pub(crate) fn sink(text: &str) -> Result<GivenSink, Usage> {
    let mut url = Url::parse(text).map_err(|err| {
        Usage::new(format!("it is not a URL: {err}")).hint(
            "write postgres://USER@HOST/DB; a password with special characters belongs in SINK_REPAIR_SINK_PASSWORD",
        )
    })?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(Usage::new(format!("`{}` is not a kind of sink", url.scheme()))
            .hint("write postgres://USER@HOST/DB: this version writes to PostgreSQL"));
    }

    // sqlx takes a password in both places; the one in the query wins there, and so here.
    let in_query = url.query_pairs().find(|(name, _)| name == "password").map(|(_, value)| value.into_owned());
    if in_query.is_some() {
        let others: Vec<(String, String)> =
            url.query_pairs().into_owned().filter(|(name, _)| name != "password").collect();
        url.set_query(None);
        if !others.is_empty() {
            url.query_pairs_mut().extend_pairs(others);
        }
    }
    let in_front = match url.password().map(|password| percent_decode_str(password).decode_utf8()) {
        None => None,
        Some(Ok(password)) => Some(password.into_owned()),
        Some(Err(_)) => return Err(Usage::new("the password in it is not UTF-8")),
    };
    if in_front.is_some() && url.set_password(None).is_err() {
        return Err(Usage::new("it has a password but no host").hint("write postgres://USER@HOST/DB"));
    }
    Ok(GivenSink { address: SinkAddress(url), password: in_query.or(in_front).map(Secret::new) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    #[test]
    fn the_password_is_lifted_out_of_the_address() {
        for (text, address, password) in [
            ("postgres://app@db/shop", "postgres://app@db/shop", None),
            (
                "postgres://app:p%40ss%2F@db:5433/shop?sslmode=require",
                "postgres://app@db:5433/shop?sslmode=require",
                Some("p@ss/"),
            ),
            (
                "postgresql://app@db/shop?password=q&sslmode=require",
                "postgresql://app@db/shop?sslmode=require",
                Some("q"),
            ),
            ("postgres://app:a@db/shop?password=q", "postgres://app@db/shop", Some("q")),
            ("postgres:///shop?host=/var/run/postgresql", "postgres:///shop?host=/var/run/postgresql", None),
        ] {
            let given = sink(text).unwrap();

            assert_eq!(given.address.to_string(), address);
            assert_eq!(given.password, password.map(|password| Secret::new(password.to_owned())));
            assert!(!format!("{given:?}").contains("p@ss"));
        }
    }

    #[test]
    fn an_address_that_cannot_be_read_is_not_repeated() {
        for text in ["app:hunter2@db/shop", "postgres://app:hunter2#@db/shop", "mysql://app:hunter2@db/shop", "hunter2"]
        {
            let error = sink(text).unwrap_err();

            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}

//! The sink of the settings, once it is there.

use std::time::Duration;

use sink_api::ErrorClass;
use sink_postgres::{PostgresConfig, PostgresSink};
use tracing::{info, warn};

use crate::{config::SinkSettings, retry::Backoff};

/// Connects to PostgreSQL; a server that is away is waited for.
///
/// # Errors
/// When the server refuses the set-up.
pub(crate) async fn postgres(settings: &SinkSettings, name: &str) -> anyhow::Result<PostgresSink> {
    let config = PostgresConfig {
        application_name: format!("sink-repair {name}"),
        owner: owner(),
        ..PostgresConfig::new(url(settings))
    };
    let mut backoff = Backoff::default();
    loop {
        match PostgresSink::connect(&config).await {
            Ok(sink) => {
                if backoff.failures() > 0 {
                    info!(sink = %settings.address, "connected");
                }
                return Ok(sink);
            }
            Err(error) if error.class == ErrorClass::Transient => {
                let delay: Duration = backoff.next(rand::random(), error.retry_after);
                warn!(sink = %settings.address, error = %error, attempts = backoff.failures(), "sink is away, waiting");
                tokio::time::sleep(delay).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Puts the password into the address; it goes to the client library only.
fn url(settings: &SinkSettings) -> String {
    let address = settings.address.as_str();
    let Some(password) = &settings.password else { return address.to_owned() };
    let with_password = url::Url::parse(address).ok().and_then(|mut url| {
        url.set_password(Some(password.expose())).ok()?;
        Some(String::from(url))
    });
    with_password.unwrap_or_else(|| address.to_owned())
}

/// Names this process for the one that takes a lane over.
fn owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} pid {}", host.trim(), std::process::id())
}

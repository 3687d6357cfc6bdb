//! The command `status`: asks a running worker and shows the answer.

use std::{io::Read, time::Duration};

use anyhow::Context;

use super::{Status, text};
use crate::{
    config::{OutputFormat, StatusSettings, Usage},
    terminal,
};

/// A worker answers from memory within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A status of hundreds of lanes has some hundred kB.
const LONGEST_ANSWER: u64 = 16 << 20;

/// Asks the worker and shows its answer. Returns whether a person must look at something.
///
/// # Errors
/// When the worker cannot be reached or does not answer as one.
pub fn run(settings: &StatusSettings) -> anyhow::Result<bool> {
    let body = fetch(&settings.url)?;
    let status: Status = serde_json::from_str(&body).with_context(|| format!("read the answer of {}", settings.url))?;
    let shown = match settings.format {
        OutputFormat::Text => text::render(&status),
        OutputFormat::Json => body,
    };
    terminal::say(shown.trim_end()).and_then(|()| terminal::say("\n")).context("write the status")?;
    Ok(!status.attention.is_empty())
}

fn fetch(url: &str) -> anyhow::Result<String> {
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build());
    let answer = agent.get(format!("{url}/status")).call().map_err(|err| {
        Usage::new(format!("ask the worker at {url}: {err}"))
            .hint("is it running? its log says where it listens; give that with --listen or --url")
    })?;
    let mut body = String::new();
    answer.into_body().into_reader().take(LONGEST_ANSWER).read_to_string(&mut body).context("read the answer")?;
    Ok(body)
}

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
    let (answer, attention) = ask(settings)?;
    terminal::say(&answer).context("write the status")?;
    Ok(attention)
}

/// Returns the worker's answer in the format asked for, and whether a person must look at something.
fn ask(settings: &StatusSettings) -> anyhow::Result<(String, bool)> {
    let body = fetch(&settings.url)?;
    let status: Status = serde_json::from_str(&body).with_context(|| format!("read the answer of {}", settings.url))?;
    let answer = match settings.format {
        OutputFormat::Text => text::render(&status),
        OutputFormat::Json => format!("{}\n", body.trim_end()),
    };
    Ok((answer, !status.attention.is_empty()))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use std::sync::Arc;

    use sink_api::Partition;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        clock::UnixMillis,
        http::{Heartbeat, Pages, Server},
        metrics::Metrics,
        status::{LaneState, StatusBoard},
    };

    #[tokio::test]
    async fn a_running_worker_is_asked_over_http() {
        let metrics = Arc::new(Metrics::new());
        let board = StatusBoard::new("orders", "g", "postgres://app@db/shop", metrics.clone());
        let pages = Pages { metrics, board: board.clone(), heartbeat: Heartbeat::default() };
        let stop = CancellationToken::new();
        let server = Server::start("127.0.0.1:0".parse().unwrap(), pages, stop.clone()).await.unwrap();
        let url = format!("http://{}", server.address());
        let ask = |format| {
            let settings = StatusSettings { url: url.clone(), format };
            tokio::task::spawn_blocking(move || super::ask(&settings))
        };

        let (text, attention) = ask(OutputFormat::Text).await.unwrap().unwrap();
        assert!(text.starts_with("worker  orders ") && !attention, "{text}");

        let lane = board.lane("t", Partition(0));
        lane.state(LaneState::Stopped { since: UnixMillis(0), what: "records were lost".into(), hint: None });
        let (json, attention) = ask(OutputFormat::Json).await.unwrap().unwrap();
        let status: Status = serde_json::from_str(&json).unwrap();
        assert_eq!((status.attention[0].what.as_str(), attention), ("records were lost", true));

        stop.cancel();
        server.stopped().await;
        let error = ask(OutputFormat::Text).await.unwrap().unwrap_err();
        assert!(error.downcast_ref::<Usage>().unwrap().hint.is_some(), "{error:#}");
    }
}

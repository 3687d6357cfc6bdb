//! What the worker serves over HTTP: `/metrics`, `/healthz`, `/readyz`, `/status`.
//!
//! *Healthy* asks whether a restart would help: the process answers and its poll thread turns. A sink that is down is
//! no reason to restart. *Ready* asks whether the stream flows: the worker is in its group and every lane runs.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    config::Usage,
    metrics::Metrics,
    status::{GroupState, LaneState, Status, StatusBoard},
};

/// The poll thread turns at least once a second; well below the five minutes after which its group gives it up.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// A scrape takes milliseconds; a client that keeps its connection open does not hold up the worker's end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The sign of life of the poll thread: it beats once a turn.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Default for Heartbeat {
    fn default() -> Heartbeat {
        Heartbeat { start: Instant::now(), last_ms: Arc::default() }
    }
}

impl Heartbeat {
    /// Gives a sign of life.
    pub fn beat(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns how long ago the last sign was given (or the heartbeat made).
    pub fn age(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// What the pages are made of.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The live state.
    pub board: StatusBoard,
    /// The poll thread's sign of life.
    pub heartbeat: Heartbeat,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on `listen` and serves `pages` until `stop` is cancelled.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn start(listen: SocketAddr, pages: Pages, stop: CancellationToken) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(listen).await.map_err(|error| cannot_listen(listen, &error))?;
        let address = listener.local_addr().context("read the bound address")?;
        info!(%address, "listening");
        let task = tokio::spawn(async move {
            let serving = axum::serve(listener, router(pages)).with_graceful_shutdown(stop.cancelled_owned());
            if let Err(err) = serving.await {
                error!(error = %err, "metrics and status are not served any more");
            }
        });
        Ok(Server { address, task })
    }

    /// Returns the address that the server is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the last answers are out, after `stop` was cancelled; not for long.
    pub async fn stopped(mut self) {
        if tokio::time::timeout(LAST_ANSWERS, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn cannot_listen(listen: SocketAddr, error: &io::Error) -> Usage {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another worker or another program has the port: give another --listen, or port 0 for a free one"
        }
        io::ErrorKind::AddrNotAvailable => "give an address of this machine with --listen, or 0.0.0.0 for all of them",
        io::ErrorKind::PermissionDenied => "give a --listen with a port of 1024 or above",
        _ => "give another --listen",
    };
    Usage::new(format!("listen on {listen}: {error}")).hint(hint)
}

fn router(pages: Pages) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .with_state(pages)
}

async fn metrics(State(pages): State<Pages>) -> Response {
    let text = pages.metrics.render(&pages.board.status());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn healthz(State(pages): State<Pages>) -> Response {
    let age = pages.heartbeat.age();
    if age < SILENT_AFTER {
        return "ok\n".into_response();
    }
    let why = format!("the poll thread has given no sign of life for {} s\n", age.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

async fn readyz(State(pages): State<Pages>) -> Response {
    let reasons = not_ready(&pages.board.status());
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n").into_response()
}

async fn status(State(pages): State<Pages>) -> Json<Status> {
    Json(pages.board.status())
}

/// Returns why the stream does not flow, a line each.
fn not_ready(status: &Status) -> Vec<String> {
    let group = match status.group.state {
        GroupState::Joined => None,
        GroupState::Joining => Some(format!("group {}: joining", status.group.name)),
        GroupState::Left => Some(format!("group {}: left", status.group.name)),
    };
    let lanes = status.lanes.iter().filter_map(|lane| {
        let why = match &lane.state {
            LaneState::Running | LaneState::CaughtUp => return None,
            LaneState::Starting | LaneState::ReadingMemory => String::new(),
            LaneState::Waiting { on, why, hint: Some(hint), .. } => format!(" for {}: {why} ({hint})", on.name()),
            LaneState::Waiting { on, why, .. } => format!(" for {}: {why}", on.name()),
            LaneState::Stopped { what, .. } => format!(": {what}"),
        };
        Some(format!("{}-{}: {}{why}", lane.topic, lane.partition, lane.state.name()))
    });
    group.into_iter().chain(lanes).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use sink_api::Partition;

    use super::*;
    use crate::{clock::UnixMillis, status::Awaited};

    struct Worker {
        pages: Pages,
        server: Server,
        stop: CancellationToken,
    }

    async fn worker() -> Worker {
        let metrics = Arc::new(Metrics::new());
        let board = StatusBoard::new("w", "g", "postgres://app@db/shop", metrics.clone());
        let pages = Pages { metrics, board, heartbeat: Heartbeat::default() };
        let stop = CancellationToken::new();
        let server = Server::start("127.0.0.1:0".parse().unwrap(), pages.clone(), stop.clone()).await.unwrap();
        Worker { pages, server, stop }
    }

    impl Worker {
        async fn get(&self, path: &str) -> (u16, String) {
            let url = format!("http://{}{path}", self.server.address());
            let ask = move || {
                let config = ureq::Agent::config_builder().http_status_as_error(false).build();
                let mut answer = ureq::Agent::new_with_config(config).get(url).call().unwrap();
                (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
            };
            tokio::task::spawn_blocking(ask).await.unwrap()
        }
    }

    #[tokio::test]
    async fn a_worker_is_ready_when_it_is_in_its_group_and_every_lane_runs() {
        let worker = worker().await;
        let board = &worker.pages.board;
        assert_eq!(worker.get("/readyz").await, (503, "group g: joining\n".to_owned()));

        board.group(GroupState::Joined, UnixMillis(0));
        assert_eq!(worker.get("/readyz").await, (200, "ok\n".to_owned()));

        let (running, waiting) = (board.lane("t", Partition(0)), board.lane("t", Partition(1)));
        running.state(LaneState::Running);
        assert_eq!(worker.get("/readyz").await, (503, "t-1: starting\n".to_owned()));

        let why = "write public.orders: connection refused".to_owned();
        waiting.state(LaneState::Waiting { on: Awaited::Sink, since: UnixMillis(0), why, hint: None, attempts: 3 });
        let answer = "t-1: waiting for the sink: write public.orders: connection refused\n";
        assert_eq!(worker.get("/readyz").await, (503, answer.to_owned()));

        waiting.state(LaneState::CaughtUp);
        assert_eq!(worker.get("/readyz").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn a_worker_is_healthy_while_its_poll_thread_turns() {
        let mut worker = worker().await;
        assert_eq!(worker.get("/healthz").await, (200, "ok\n".to_owned()));

        worker.stop.cancel();
        worker.pages.heartbeat.start = Instant::now() - Duration::from_secs(40);
        let pages = worker.pages.clone();
        worker.server = Server::start("127.0.0.1:0".parse().unwrap(), pages, CancellationToken::new()).await.unwrap();
        let silent = "the poll thread has given no sign of life for 40 s\n";
        assert_eq!(worker.get("/healthz").await, (503, silent.to_owned()));

        worker.pages.heartbeat.beat();
        assert_eq!(worker.get("/healthz").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn metrics_and_status_are_served() {
        let worker = worker().await;
        let _lane = worker.pages.board.lane("shop.orders", Partition(2));

        let (code, metrics) = worker.get("/metrics").await;
        assert_eq!(code, 200);
        assert!(metrics.contains("\nsink_repair_lanes{state=\"starting\"} 1\n"), "{metrics}");

        let (code, status) = worker.get("/status").await;
        let status: Status = serde_json::from_str(&status).unwrap();
        assert_eq!((code, status.lanes.len(), status.lanes[0].topic.as_str()), (200, 1, "shop.orders"));
    }

    #[tokio::test]
    async fn a_server_that_is_stopped_lets_its_port_go() {
        let worker = worker().await;
        let address = worker.server.address();
        worker.get("/healthz").await;

        worker.stop.cancel();
        worker.server.stopped().await;

        TcpListener::bind(address).await.unwrap();
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_what_to_do() {
        let taken = worker().await;
        let address = taken.server.address();

        let error = Server::start(address, taken.pages.clone(), CancellationToken::new()).await.unwrap_err();

        let usage = error.downcast_ref::<Usage>().unwrap();
        assert_eq!(usage.message, format!("listen on {address}: Address already in use (os error 98)"));
        assert!(usage.hint.as_ref().is_some_and(|hint| hint.contains("--listen")), "{usage:?}");
    }
}

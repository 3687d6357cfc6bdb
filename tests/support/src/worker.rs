//! The program under test, as a process.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::until;

/// What can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end.
    Term,
    /// Ends it at once.
    Kill,
    /// Halts it.
    Stop,
    /// Lets it go on.
    Cont,
}

/// A running `sink-repair`. What it prints, on both outputs, goes to a file; dropped, it is killed, and the end of its log
/// is printed, which the test's harness shows when the test fails. `SINK_REPAIR_TEST_LOGS=folder` keeps all logs there, by
/// process id.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    log: PathBuf,
    hushed: bool,
    // Held for its end.
    _folder: TempDir,
}

impl Worker {
    /// Starts `binary` (a test passes `env!("CARGO_BIN_EXE_sink-repair")`) with these arguments.
    pub fn start<A: AsRef<OsStr>>(binary: &str, arguments: impl IntoIterator<Item = A>) -> Result<Worker> {
        let folder = TempDir::new().context("make a folder for the log")?;
        let log = folder.path().join("log");
        let file = File::create(&log).context("make the log")?;
        let child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share the log")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {binary}"))?;
        Ok(Worker { child, log, hushed: false, _folder: folder })
    }

    /// Returns all that it has printed.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until a line of the log holds `text`, and returns that line.
    pub async fn logged(&mut self, text: &str, limit: Duration) -> Result<String> {
        until(&format!("the worker logs {text:?}"), limit, async || {
            let line = self.log().lines().find(|line| line.contains(text)).map(str::to_owned);
            if line.is_none()
                && let Some(status) = self.child.try_wait()?
            {
                bail!("the worker ended ({status}):\n{}", self.log());
            }
            Ok(line)
        })
        .await
    }

    /// Returns where it serves HTTP: the address in the first line of the log that speaks of listening. Start it with
    /// `--listen 127.0.0.1:0`.
    pub async fn address(&mut self, limit: Duration) -> Result<SocketAddr> {
        let line = self.logged("listening", limit).await?;
        let from = line.find("127.0.0.1:").with_context(|| format!("no address in {line:?}"))?;
        let address: String =
            line[from..].chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect();
        address.parse().with_context(|| format!("read the address in {line:?}"))
    }

    /// Asks it for a page and returns status and body.
    pub async fn get(&mut self, path: &str) -> Result<(u16, String)> {
        let address = self.address(Duration::from_secs(10)).await?;
        let url = format!("http://{address}{path}");
        tokio::task::spawn_blocking(move || {
            let agent = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(Duration::from_secs(10)))
                .build()
                .new_agent();
            let mut answer = agent.get(&url).call().with_context(|| format!("get {url}"))?;
            Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
        })
        .await?
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Cont => rustix::process::Signal::CONT,
        };
        rustix::process::kill_process(pid, signal).context("signal the worker")
    }

    /// Returns its exit status when it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it has ended by itself.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = until("the worker ends", limit, async || self.ended()).await;
        ended.map_err(|error| anyhow!("{error}; its log:\n{}", self.log()))
    }

    /// Asks it to end and waits for that; an exit code other than 0 is an error.
    pub async fn stop(&mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::Term)?;
        let status = self.wait(limit).await?;
        if !status.success() {
            bail!("the worker ended with {status}:\n{}", self.log());
        }
        Ok(())
    }
}

impl Worker {
    /// Keeps the end of its log from being printed when it is dropped.
    pub fn hush(&mut self) {
        self.hushed = true;
    }
}

impl Drop for Worker {
    #[allow(clippy::print_stderr)] // the test's own output
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = std::env::var_os("SINK_REPAIR_TEST_LOGS") {
            let _ = std::fs::copy(&self.log, PathBuf::from(folder).join(format!("{}.log", self.child.id())));
        }
        if self.hushed {
            return;
        }
        // A test that returns an error is not panicking; what a passing test prints is not shown anyway.
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        eprintln!("the worker's log ends with:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    }
}

/// Runs `binary` to its end and returns what it printed and its exit status.
pub async fn run<A: AsRef<OsStr>>(binary: &str, arguments: impl IntoIterator<Item = A>) -> Result<Output> {
    tokio::process::Command::new(binary)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("run {binary}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_worker_is_found_by_its_log_halted_and_ended() {
        let script = "echo '{\"message\":\"listening\",\"address\":\"127.0.0.1:4711\"}'; trap 'exit 3' TERM; \
                      while :; do sleep 0.01; done";
        let mut worker = Worker::start("/bin/sh", ["-c", script]).unwrap();
        let state = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status
                .lines()
                .find(|line| line.starts_with("State:"))
                .unwrap()
                .split_whitespace()
                .nth(1)
                .unwrap()
                .to_owned()
        };

        assert_eq!(worker.address(LIMIT).await.unwrap(), "127.0.0.1:4711".parse().unwrap());
        worker.signal(Signal::Stop).unwrap();
        until("it is halted", LIMIT, async || Ok((state(worker.id()) == "T").then_some(()))).await.unwrap();
        worker.signal(Signal::Cont).unwrap();
        worker.signal(Signal::Term).unwrap();
        assert_eq!(worker.wait(LIMIT).await.unwrap().code(), Some(3));
        let gone = worker.logged("no such line", LIMIT).await.unwrap_err();
        assert!(format!("{gone:#}").contains("the worker ended"), "{gone:#}");
    }
}

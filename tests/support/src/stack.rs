//! Where the servers are, and how to stop, kill and start them.

use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result, anyhow, bail};
use tokio::process::Command;

use crate::Database;

/// The servers of `tests/stack/stack.sh`.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Kafka's bootstrap server, `host:port`.
    pub kafka: String,
    /// The Connect worker's REST interface, `http://host:port`.
    pub connect: String,
    /// The source database as superuser, `postgres://...`. Roles `debezium` and `certify` may log in and read.
    pub source: String,
    /// The sink database as superuser, `postgres://...`.
    pub sink: String,
    script: PathBuf,
}

/// A server of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The broker.
    Kafka,
    /// The Connect worker.
    Connect,
    /// The source PostgreSQL.
    Source,
    /// The sink PostgreSQL.
    Sink,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Kafka => "kafka",
            Part::Connect => "connect",
            Part::Source => "source",
            Part::Sink => "sink",
        }
    }
}

impl Stack {
    /// Reads the environment that `stack.sh env` prints; the error has the command that starts the servers.
    pub fn from_env() -> Result<Stack> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                anyhow!(
                    "{name} is not set: this test needs the real servers\n\
                     hint: tests/stack/stack.sh up && eval \"$(tests/stack/stack.sh env)\", or make integration"
                )
            })
        };
        Ok(Stack {
            kafka: variable("SINK_REPAIR_TEST_KAFKA")?,
            connect: variable("SINK_REPAIR_TEST_CONNECT")?,
            source: variable("SINK_REPAIR_TEST_SOURCE")?,
            sink: variable("SINK_REPAIR_TEST_SINK")?,
            script: variable("SINK_REPAIR_TEST_STACK")?.into(),
        })
    }

    /// Starts a part that is stopped; returns when it answers.
    pub async fn start(&self, part: Part) -> Result<()> {
        self.stack(&["start", part.name()]).await
    }

    /// Stops a part cleanly; its data stays.
    pub async fn stop(&self, part: Part) -> Result<()> {
        self.stack(&["stop", part.name()]).await
    }

    /// Kills a part with SIGKILL, a PostgreSQL with all its backends.
    pub async fn kill9(&self, part: Part) -> Result<()> {
        self.stack(&["kill9", part.name()]).await
    }

    /// Runs `connector.sh` and returns what it printed.
    pub async fn connector(&self, arguments: &[&str]) -> Result<String> {
        output(Command::new(self.connector_script()).args(arguments).output().await, arguments)
    }

    /// Connects to the source as superuser.
    pub async fn source(&self) -> Result<Database> {
        Database::connect(&self.source).await
    }

    /// Connects to the sink as superuser.
    pub async fn sink(&self) -> Result<Database> {
        Database::connect(&self.sink).await
    }

    async fn stack(&self, arguments: &[&str]) -> Result<()> {
        output(Command::new(&self.script).args(arguments).output().await, arguments).map(drop)
    }

    pub(crate) fn connector_script(&self) -> PathBuf {
        self.script.with_file_name("connector.sh")
    }

    pub(crate) fn stack_script(&self) -> &PathBuf {
        &self.script
    }
}

fn output(result: std::io::Result<Output>, arguments: &[&str]) -> Result<String> {
    let output = result.with_context(|| format!("run the stack's script with {arguments:?}"))?;
    if !output.status.success() {
        bail!("{}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

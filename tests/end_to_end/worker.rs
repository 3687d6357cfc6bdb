//! The program under test: how it is started and what it is asked.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use test_support::compare::{self, Difference};
use test_support::{Database, Pipeline, Stack, Worker, run, until};

/// The program.
pub const BINARY: &str = env!("CARGO_BIN_EXE_sink-repair");

/// Long enough for a machine that builds and tests other things meanwhile.
pub const LIMIT: Duration = Duration::from_secs(25);

/// Long enough for missing rows to come, also when they have to be asked for twice: Debezium drops a request now and then.
pub const COMES: Duration = Duration::from_secs(75);

/// The arguments of a worker; those of a test are added to them.
#[derive(Clone, Debug)]
pub struct Apply {
    stack: Stack,
    /// The worker's name.
    pub name: String,
    arguments: Vec<String>,
}

/// How a worker that ran to its end did so.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub log: String,
}

impl Apply {
    /// A worker that reads these topics into the sink database at `sink`, and removes orphans.
    pub fn new(stack: &Stack, name: &str, topics: &[String], sink: &str) -> Apply {
        let apply = Apply { stack: stack.clone(), name: name.to_owned(), arguments: Vec::new() };
        apply.with(&[
            "--name",
            name,
            "--bootstrap-servers",
            &stack.kafka,
            "--topics",
            &topics.join(","),
            "--sink",
            sink,
            "--listen",
            "127.0.0.1:0",
            "--orphans",
            "remove",
        ])
    }

    /// A worker for these tables of a pipeline.
    pub fn of(stack: &Stack, pipeline: &Pipeline, tables: &[&str]) -> Apply {
        let topics: Vec<String> = tables.iter().map(|table| pipeline.topic(table)).collect();
        Apply::new(stack, &pipeline.name, &topics, &pipeline.sink_url())
    }

    /// The same with these flags added, each with its value; one that is there already is replaced.
    pub fn with(&self, flags: &[&str]) -> Apply {
        let mut apply = self.clone();
        let mut rest = flags.iter().peekable();
        while let Some(flag) = rest.next() {
            let value = rest.next_if(|next| !next.starts_with("--"));
            if let Some(at) = apply.arguments.iter().position(|known| known == flag) {
                apply.arguments.drain(at..at + 2);
            }
            apply.arguments.extend([flag].into_iter().chain(value).map(|&text| text.to_owned()));
        }
        apply
    }

    /// Starts it.
    pub fn start(&self) -> Result<Worker> {
        Worker::start(BINARY, std::iter::once("apply".to_owned()).chain(self.arguments.clone()))
    }

    /// Runs it until it has done all that its topics held when it started, or has failed.
    pub async fn to_end(&self) -> Result<Ended> {
        let mut worker = self.with(&["--until-caught-up"]).start()?;
        let status = worker.wait(LIMIT).await?;
        Ok(Ended { code: status.code().context("the worker was killed")?, log: worker.log() })
    }

    /// The same where success is expected.
    pub async fn catches_up(&self) -> Result<String> {
        let ended = self.to_end().await?;
        ensure!(ended.code == 0, "the worker ended with {}:\n{}", ended.code, ended.log);
        Ok(ended.log)
    }

    /// The same where it must stop for a person; what is said is returned.
    pub async fn stops(&self) -> Result<String> {
        let ended = self.to_end().await?;
        ensure!(ended.code == 1, "the worker ended with {}, not 1:\n{}", ended.code, ended.log);
        Ok(ended.log)
    }

    /// Runs another command on the same sink (`undo`, `reset`, `confirm`); its code and what it printed.
    pub async fn operate(&self, sink: &str, arguments: &[&str]) -> Result<Ended> {
        let mut all: Vec<&str> = arguments.to_vec();
        all.extend(["--sink", sink]);
        if matches!(arguments[0], "reset" | "confirm") {
            all.extend(["--bootstrap-servers", &self.stack.kafka]);
        }
        printed(&all).await
    }
}

/// Runs the binary to its end.
pub async fn printed(arguments: &[&str]) -> Result<Ended> {
    let output = run(BINARY, arguments).await?;
    let log = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok(Ended { code: output.status.code().context("it was killed")?, log })
}

/// Asks a running worker as `sink-repair status` does.
pub async fn status(worker: &mut Worker) -> Result<Ended> {
    let address = worker.address(LIMIT).await?;
    printed(&["status", "--url", &format!("http://{address}")]).await
}

/// What the sink wrote down of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub verdict: String,
    pub rule: String,
    pub reason: String,
    pub orphans: i64,
    pub removed: i64,
    pub missing: i64,
    pub spared: i64,
    pub in_range: i64,
}

impl Verdict {
    /// Verdict and rule, as `held cap`.
    pub fn named(&self) -> String {
        format!("{} {}", self.verdict, self.rule).trim().to_owned()
    }
}

/// Waits until a read has its verdict at the sink.
pub async fn verdict(sink: &mut Database, read_id: &str) -> Result<Verdict> {
    until(&format!("read {read_id} has a verdict"), LIMIT, async || recorded(sink, read_id).await).await
}

/// Returns the verdict on a read, if it has one.
pub async fn recorded(sink: &mut Database, read_id: &str) -> Result<Option<Verdict>> {
    if sink.value("SELECT to_regclass('sink_repair.statement')::text").await?.is_none() {
        return Ok(None);
    }
    let line = sink
        .column(format!(
            "SELECT unnest(ARRAY[verdict, coalesce(rule, ''), coalesce(reason, ''), orphans::text, removed::text, \
             missing::text, spared::text, in_range::text]) FROM sink_repair.statement WHERE read_id = '{read_id}'"
        ))
        .await?;
    let Some(texts) = line.into_iter().collect::<Option<Vec<String>>>().filter(|texts| !texts.is_empty()) else {
        return Ok(None);
    };
    let number = |place: usize| texts[place].parse::<i64>().context("read a count");
    Ok(Some(Verdict {
        verdict: texts[0].clone(),
        rule: texts[1].clone(),
        reason: texts[2].clone(),
        orphans: number(3)?,
        removed: number(4)?,
        missing: number(5)?,
        spared: number(6)?,
        in_range: number(7)?,
    }))
}

/// Waits until a query's first column is this list.
pub async fn holds(database: &mut Database, query: &str, expected: &[&str]) -> Result<()> {
    let mut seen = Vec::new();
    let waited = until(&format!("{query} is {expected:?}"), LIMIT, async || {
        seen = texts(database, query).await?;
        Ok((seen == expected).then_some(()))
    })
    .await;
    waited.with_context(|| format!("it was {seen:?}"))
}

/// Returns a query's first column; NULL is `(null)`.
pub async fn texts(database: &mut Database, query: &str) -> Result<Vec<String>> {
    let column = database.column(query).await?;
    Ok(column.into_iter().map(|value| value.unwrap_or_else(|| "(null)".to_owned())).collect())
}

/// Fails unless the text holds each of these.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not said in:\n{text}");
    }
}

/// Waits until two tables are equal; returns how many rows they have.
pub async fn equal_soon(source: &mut Database, sink: &mut Database, table: &str) -> Result<u64> {
    equal_tables_soon(source, table, sink, table).await
}

/// The same for a sink table of another name.
pub async fn equal_tables_soon(
    source: &mut Database,
    source_table: &str,
    sink: &mut Database,
    sink_table: &str,
) -> Result<u64> {
    equal_tables_within(LIMIT, source, source_table, sink, sink_table).await
}

/// The same with a limit of its own.
pub async fn equal_tables_within(
    limit: Duration,
    source: &mut Database,
    source_table: &str,
    sink: &mut Database,
    sink_table: &str,
) -> Result<u64> {
    let mut seen = Difference::default();
    let waited = until(&format!("{source_table} is equal on both sides"), limit, async || {
        seen = compare::difference(source, source_table, sink, sink_table).await?;
        Ok((seen.only_source + seen.only_sink == 0).then_some(seen.equal))
    })
    .await;
    waited.with_context(|| format!("they differ: {seen:?}"))
}

/// Waits until a query's number is this.
pub async fn counts(database: &mut Database, query: &str, expected: i64) -> Result<()> {
    until(&format!("{query} is {expected}"), LIMIT, async || {
        Ok((database.number(query).await? == expected).then_some(()))
    })
    .await
}

/// Returns one metric of a worker by its name and labels, as they stand in the page.
pub async fn metric(worker: &mut Worker, name: &str) -> Result<f64> {
    let (_, page) = worker.get("/metrics").await?;
    let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let value = line.with_context(|| format!("no {name} in:\n{page}"))?.rsplit(' ').next().unwrap_or_default();
    value.parse().with_context(|| format!("read {name}"))
}

//! Kafka's own accidents: a broker that restarts, a topic that is made anew, transactions that are aborted or open.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use test_support::kafka::{self, New};
use test_support::{Database, Part, Pipeline, Stack, unique, until};

use crate::audit;
use crate::counters::{self, Counting};
use crate::rig::{self, LIMIT, say};

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_or_restarts_while_it_is_read_costs_no_record() -> Result<()> {
    let _servers = rig::alone().await;
    let stack = Stack::from_env()?;
    let pipeline =
        Pipeline::builder(&stack, "broker").table("counters", counters::COUNTERS).seed(counters::SEED).start().await?;
    pipeline.make_sink_tables().await?;
    audit::install(&pipeline).await?;
    let topic = pipeline.topic("counters");
    let mut worker = rig::start(&rig::arguments(&stack, &pipeline.name, &topic, &pipeline.sink_url()))?;
    worker.logged("lane started", LIMIT).await?;
    let load = Counting::start(&pipeline, 2, Duration::from_millis(40), rig::seed()?).await?;

    tokio::time::sleep(Duration::from_secs(2)).await;
    if rig::full_scale() {
        // With clients that hold on to it a broker of one node may take half a minute to stop.
        stack.stop(Part::Kafka).await?;
        stack.start(Part::Kafka).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    stack.kill9(Part::Kafka).await?;
    stack.start(Part::Kafka).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    load.stop().await?;

    let rows = rig::until_equal(&pipeline, "counters", LIMIT).await?;
    let (claims, steps) = audit::frontier_only_rises(&mut pipeline.sink().await?).await?;
    say(format!("broker killed: {rows} rows equal, {claims} claims, {steps} steps"));
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_anew_stops_its_lane() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let place = Place::make(&stack, "anew").await?;
    let topic = &place.name;
    kafka::create_topic(&stack, topic, 1, &[]).await?;
    kafka::write(&stack, topic, (0..100).map(|id| record(id, 1)).collect()).await?;
    let arguments = rig::arguments(&stack, &place.name, topic, &place.sink);
    let mut worker = rig::start(&arguments)?;
    place.until_sum(100).await?;

    kafka::delete_topic(&stack, topic).await?;
    kafka::create_topic(&stack, topic, 1, &[]).await?;
    // Longer than the old one, so that its offsets alone look as if nothing had happened.
    kafka::write(&stack, topic, (0..200).map(|id| record(id, 7)).collect()).await?;

    let status = worker.wait(LIMIT).await?;
    let log = worker.log();
    ensure!(status.code() == Some(1), "the worker ended with {status}:\n{log}");
    ensure!(log.contains("was deleted and made again"), "the worker does not say what happened:\n{log}");
    ensure!(place.sum().await? == 100, "records of the new topic were applied over the old one's");
    // Nor does a restart take the new topic for the old one.
    let mut again = rig::start(&arguments)?;
    let status = again.wait(LIMIT).await?;
    ensure!(status.code() == Some(1) && again.log().contains("was deleted and made again"), "{}", again.log());
    let reset = format!("sink-repair reset --name {} --topic {topic} --to earliest", place.name);
    ensure!(again.log().contains(&reset), "it does not say what to do:\n{}", again.log());
    ensure!(place.sum().await? == 100, "records of the new topic were applied over the old one's");
    place.clean_up(&stack).await
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_aborted_transactions_never_happened() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let place = Place::make(&stack, "aborted").await?;
    let topic = &place.name;
    kafka::create_topic(&stack, topic, 1, &[]).await?;
    let mut worker = rig::start(&rig::arguments(&stack, &place.name, topic, &place.sink))?;
    worker.logged("lane started", LIMIT).await?;
    let producer = Transactions::begin(&stack, topic).await?;

    // Each round gives every row 1 more; an aborted one would give it 1,000.
    let rounds = 20;
    for round in 1..=rounds {
        producer.send(round, 10, Outcome::Commit).await?;
        producer.send(1_000, 10, Outcome::Abort).await?;
    }

    place.until_sum(rounds * 10).await?;
    let mut sink = place.connect().await?;
    let most = sink.number("SELECT max(v) FROM public.counters").await?;
    ensure!(most == rounds, "a version {most} was applied that no transaction committed");
    let end = kafka::end_offsets(&stack, topic).await?[0];
    say(format!("{rounds} transactions committed and as many aborted, up to offset {end}"));
    worker.stop(LIMIT).await?;
    place.clean_up(&stack).await
}

#[tokio::test(flavor = "multi_thread")]
async fn until_caught_up_ends_behind_control_records_and_before_an_open_transaction() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let place = Place::make(&stack, "caughtup").await?;
    let topic = &place.name;
    kafka::create_topic(&stack, topic, 1, &[]).await?;
    let arguments = rig::with(rig::arguments(&stack, &place.name, topic, &place.sink), &["--until-caught-up"]);
    let producer = Transactions::begin(&stack, topic).await?;
    let caught_up = async |what: &str, sum: i64| -> Result<()> {
        let mut worker = rig::start(&arguments)?;
        let status = worker.wait(Duration::from_secs(30)).await.with_context(|| format!("behind {what}"))?;
        ensure!(status.success(), "behind {what} it ended with {status}:\n{}", worker.log());
        ensure!(place.sum().await? == sum, "behind {what} the sum is {}, not {sum}", place.sum().await?);
        Ok(())
    };

    producer.send(1, 10, Outcome::Commit).await?;
    caught_up("a committed transaction", 10).await?;
    caught_up("nothing new", 10).await?;
    producer.send(1_000, 10, Outcome::Abort).await?;
    caught_up("an aborted transaction", 10).await?;
    producer.send(2, 10, Outcome::Open).await?;
    caught_up("an open transaction", 10).await?;
    producer.end(Outcome::Commit).await?;
    caught_up("what was open", 20).await?;

    place.clean_up(&stack).await
}

/// A sink database with a table, and a name for topic and worker.
struct Place {
    name: String,
    sink: String,
}

impl Place {
    async fn make(stack: &Stack, stem: &str) -> Result<Place> {
        let name = unique(stem);
        stack.sink().await?.run(format!("CREATE DATABASE {name}")).await?;
        let server = stack.sink.rsplit_once('/').context("no database in the sink's URL")?.0;
        let place = Place { sink: format!("{server}/{name}"), name };
        let table = format!("CREATE TABLE public.counters ({})", counters::COUNTERS);
        place.connect().await?.run(table).await?;
        Ok(place)
    }

    async fn connect(&self) -> Result<Database> {
        Database::connect(&self.sink).await
    }

    async fn sum(&self) -> Result<i64> {
        self.connect().await?.number("SELECT coalesce(sum(v), 0)::bigint FROM public.counters").await
    }

    async fn until_sum(&self, sum: i64) -> Result<()> {
        until(&format!("the versions add up to {sum}"), LIMIT, async || Ok((self.sum().await? == sum).then_some(())))
            .await
    }

    async fn clean_up(&self, stack: &Stack) -> Result<()> {
        stack.sink().await?.run(format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }
}

/// A change as Debezium writes it.
fn record(id: i64, v: i64) -> New {
    let value = serde_json::json!({
        "before": null,
        "after": {"id": id, "v": v},
        "source": {
            "version": "3.6.1.Final", "connector": "postgresql", "name": "hand", "ts_ms": 1_700_000_000_000_i64,
            "snapshot": "false", "db": "source", "schema": "public", "table": "counters", "txId": 700 + v, "lsn": 1_000 + v
        },
        "op": "u",
        "ts_ms": 1_700_000_000_000_i64
    });
    New::text(&format!(r#"{{"id":{id}}}"#), &value.to_string())
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Commit,
    Abort,
    Open,
}

/// A producer of transactions.
#[derive(Clone)]
struct Transactions {
    producer: Arc<BaseProducer>,
    topic: String,
}

impl Transactions {
    async fn begin(stack: &Stack, topic: &str) -> Result<Transactions> {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &stack.kafka)
            .set("transactional.id", unique("transactions"))
            .create()
            .context("make a producer of transactions")?;
        let made = Transactions { producer: Arc::new(producer), topic: topic.to_owned() };
        made.blocking(|made| Ok(made.producer.init_transactions(LIMIT)?)).await?;
        Ok(made)
    }

    /// Writes version `v` of `rows` rows in a transaction.
    async fn send(&self, v: i64, rows: i64, outcome: Outcome) -> Result<()> {
        self.blocking(move |made| {
            made.producer.begin_transaction()?;
            for id in 0..rows {
                let New { key, value, .. } = record(id, v);
                let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
                let record = BaseRecord::<[u8], [u8]>::to(&made.topic).partition(0).key(&key).payload(&value);
                made.producer.send(record).map_err(|(error, _)| error)?;
            }
            made.producer.flush(LIMIT)?;
            made.finish(outcome)
        })
        .await
    }

    /// Ends an open one.
    async fn end(&self, outcome: Outcome) -> Result<()> {
        self.blocking(move |made| made.finish(outcome)).await
    }

    fn finish(&self, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Commit => Ok(self.producer.commit_transaction(LIMIT)?),
            Outcome::Abort => Ok(self.producer.abort_transaction(LIMIT)?),
            Outcome::Open => Ok(()),
        }
    }

    async fn blocking(&self, work: impl FnOnce(&Transactions) -> Result<()> + Send + 'static) -> Result<()> {
        let made = self.clone();
        tokio::task::spawn_blocking(move || work(&made)).await.context("the producer panicked")?
    }
}

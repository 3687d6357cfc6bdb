//! Where a lane starts, and when it must not.

use anyhow::Result;
use test_support::kafka;
use test_support::{Signal, Worker, until};

use crate::bare::Bare;
use crate::worker::{Apply, LIMIT, assert_says, counts, holds, status, texts};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";
const IDS: &str = "SELECT id::text FROM orders ORDER BY orders.id";

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_without_a_place_starts_where_it_is_told() -> Result<()> {
    let bare = Bare::new("start", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v"), bare.row(2, "v")]).await?;

    let mut worker = bare.apply().with(&["--start", "latest"]).start()?;
    worker.logged("lane started", LIMIT).await?;
    bare.write(vec![bare.row(3, "v")]).await?;
    holds(&mut sink, IDS, &["3"]).await?;
    worker.stop(LIMIT).await?;

    // With a frontier the flag says nothing any more.
    bare.write(vec![bare.row(4, "v")]).await?;
    bare.apply().with(&["--start", "earliest"]).catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["3", "4"]);

    let other = bare.apply().with(&["--name", &format!("{}_other", bare.name), "--start", "earliest"]);
    other.catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "2", "3", "4"]);
    Ok(())
}

/// Taking over from a sink connector: its group says how far it came.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_lane_goes_on_at_the_group_s_committed_offset() -> Result<()> {
    let bare = Bare::new("takeover", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v"), bare.row(2, "v")]).await?;
    // Committed by someone else: another worker, another sink memory, the same group.
    let group = format!("connect-{}", bare.name);
    bare.apply().with(&["--name", &format!("{}_before", bare.name), "--group", &group]).catches_up().await?;
    sink.run("DELETE FROM orders").await?;
    bare.write(vec![bare.row(3, "v")]).await?;

    bare.apply().with(&["--group", &group, "--start", "earliest"]).catches_up().await?;

    assert_eq!(texts(&mut sink, IDS).await?, ["3"]);
    Ok(())
}

/// Only what the lane has committed at the sink counts, whatever Kafka's own offset says.
#[tokio::test(flavor = "multi_thread")]
async fn the_sink_s_frontier_wins_over_the_group_s_offset() -> Result<()> {
    let bare = Bare::new("frontier", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v"), bare.row(2, "v"), bare.row(3, "v")]).await?;
    bare.apply().catches_up().await?;
    sink.run("DELETE FROM orders; UPDATE sink_repair.frontier SET next_offset = 1, memory_offset = 1").await?;

    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut sink, IDS).await?, ["2", "3"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_lost_to_retention_stop_the_lane_and_are_never_skipped() -> Result<()> {
    let bare = Bare::new("retention", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v")]).await?;
    bare.apply().catches_up().await?;
    bare.write((2..=5).map(|id| bare.row(id, "v")).collect()).await?;
    kafka::delete_records(&bare.stack, &bare.topic(), 0, 3).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0: records from offset 1 up to 3 are gone", bare.topic()),
            "the log starts at 3 now",
            &format!("sink-repair reset --name {} --topic {} --partition 0 --to earliest", bare.name, bare.topic()),
        ],
    );
    assert_eq!(texts(&mut sink, IDS).await?, ["1"]);

    let topic = bare.topic();
    let reset = ["reset", "--name", &bare.name, "--topic", &topic, "--partition", "0", "--to", "earliest"];
    let ended = bare.apply().operate(&bare.sink_url(), &reset).await?;
    assert_eq!(ended.code, 0, "{}", ended.log);
    bare.apply().catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "4", "5"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_beyond_the_log_s_end_stops_the_lane() -> Result<()> {
    let bare = Bare::new("beyond", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v"), bare.row(2, "v")]).await?;
    bare.apply().catches_up().await?;
    // As a sink whose Kafka was set back to an earlier time has it.
    sink.run("UPDATE sink_repair.frontier SET next_offset = 1000, memory_offset = 1000").await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0: the sink's frontier is offset 1000, beyond the log's end at 2", bare.topic()),
            &format!("sink-repair reset --name {} --topic {} --partition 0 --to earliest", bare.name, bare.topic()),
        ],
    );
    assert_eq!(texts(&mut sink, "SELECT next_offset::text FROM sink_repair.frontier").await?, ["1000"]);
    Ok(())
}

async fn make_anew(bare: &Bare) -> Result<()> {
    kafka::delete_topic(&bare.stack, &bare.topic()).await?;
    until("the topic can be made again", LIMIT, async || {
        Ok(kafka::create_topic(&bare.stack, &bare.topic(), 1, &[]).await.ok())
    })
    .await
}

/// The new topic is longer than the frontier: nothing but its id tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_again_stops_the_lane_until_it_is_reset() -> Result<()> {
    let bare = Bare::new("anew", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "old")]).await?;
    bare.apply().catches_up().await?;
    make_anew(&bare).await?;
    bare.write(vec![bare.row(10, "new"), bare.row(11, "new")]).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0: the topic was deleted and made again", bare.topic()),
            &format!("sink-repair reset --name {} --topic {} --to earliest", bare.name, bare.topic()),
        ],
    );
    assert_eq!(texts(&mut sink, IDS).await?, ["1"]);

    let topic = bare.topic();
    let reset = bare
        .apply()
        .operate(&bare.sink_url(), &["reset", "--name", &bare.name, "--topic", &topic, "--to", "earliest"])
        .await?;
    assert_eq!(reset.code, 0, "{}", reset.log);
    bare.apply().catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "10", "11"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_again_under_a_running_worker_stops_its_lane() -> Result<()> {
    let bare = Bare::new("under", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "old")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;

    make_anew(&bare).await?;
    bare.write(vec![bare.row(10, "new"), bare.row(11, "new"), bare.row(12, "new")]).await?;

    assert_eq!(worker.wait(LIMIT).await?.code(), Some(1));
    let topic = bare.topic();
    let reset = format!("sink-repair reset --name {} --topic {topic} --to earliest", bare.name);
    assert_says(&worker.log(), &[&topic, "was deleted and made again", "hint: ", &reset]);
    // The place of the old life means nothing in the new one: from there on it would be 11 and 12, and 10 never.
    assert_eq!(texts(&mut sink, IDS).await?, ["1"]);
    let ended = bare.apply().operate(&bare.sink_url(), &reset.split(' ').skip(1).collect::<Vec<_>>()).await?;
    assert_eq!(ended.code, 0, "{}", ended.log);
    bare.apply().catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "10", "11", "12"]);
    Ok(())
}

/// Kafka leaves it the partition, so nobody else takes over: in silence it would stand still for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_place_is_moved_under_it_ends_and_says_so() -> Result<()> {
    let bare = Bare::new("moved", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;
    let topic = bare.topic();
    let reset = ["reset", "--name", &bare.name, "--topic", &topic, "--to", "earliest"];
    let ended = bare.apply().operate(&bare.sink_url(), &reset).await?;
    assert_eq!(ended.code, 0, "{}", ended.log);

    bare.write(vec![bare.row(2, "v")]).await?;

    assert_eq!(worker.wait(LIMIT * 2).await?.code(), Some(1), "{}", worker.log());
    assert_says(
        &worker.log(),
        &[
            &format!("{topic}-0: "),
            "Kafka has not taken the partition from this worker",
            &format!(
                "hint: another worker named {} has claimed the lane, or someone ran `sink-repair reset`",
                bare.name
            ),
        ],
    );
    assert_eq!(texts(&mut sink, IDS).await?, ["1"]);
    bare.apply().catches_up().await?;
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "2"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_place_is_moved_is_shown_as_stopped_beside_those_that_go_on() -> Result<()> {
    let bare = Bare::new("beside", TABLE).await?;
    let mut sink = bare.sink().await?;
    let topic = format!("{}-two.inventory.orders", bare.name);
    kafka::create_topic(&bare.stack, &topic, 2, &[]).await?;
    let row = |partition, id| kafka::New { partition: Some(partition), ..bare.row(id, "v") };
    let mut worker = bare.apply().with(&["--topics", &topic]).start()?;
    kafka::write(&bare.stack, &topic, vec![row(0, 1), row(1, 2)]).await?;
    holds(&mut sink, IDS, &["1", "2"]).await?;
    let reset = ["reset", "--name", &bare.name, "--topic", &topic, "--partition", "0", "--to", "earliest"];
    let ended = bare.apply().operate(&bare.sink_url(), &reset).await?;
    assert_eq!(ended.code, 0, "{}", ended.log);

    kafka::write(&bare.stack, &topic, vec![row(0, 3), row(1, 4)]).await?;

    worker.logged("Kafka has not taken the partition", LIMIT * 2).await?;
    assert_eq!(worker.get("/readyz").await?.0, 503);
    let shown = status(&mut worker).await?;
    assert_says(&shown.log, &["stopped", "Kafka has not taken the partition", "see that no worker of the same --name"]);
    kafka::write(&bare.stack, &topic, vec![row(1, 5)]).await?;
    holds(&mut sink, IDS, &["1", "2", "4", "5"]).await?;
    worker.signal(Signal::Term)?;
    assert_eq!(worker.wait(LIMIT).await?.code(), Some(1));
    Ok(())
}

/// Kafka cannot know: each has all partitions of its own group.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_workers_of_one_name_in_two_groups_the_first_ends() -> Result<()> {
    let bare = Bare::new("groups", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut first = bare.apply().start()?;
    bare.write(vec![bare.row(1, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 1).await?;
    let mut second = bare.apply().with(&["--group", &format!("{}-other", bare.name)]).start()?;
    second.logged("lane started", LIMIT).await?;

    bare.write(vec![bare.row(2, "v")]).await?;

    assert_eq!(first.wait(LIMIT * 2).await?.code(), Some(1), "{}", first.log());
    assert_says(&first.log(), &["see that no worker of the same --name runs in another group"]);
    bare.write(vec![bare.row(3, "v")]).await?;
    holds(&mut sink, IDS, &["1", "2", "3"]).await?;
    second.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_later_is_waited_for() -> Result<()> {
    let bare = Bare::new("later", TABLE).await?;
    let topic = format!("{}-later.inventory.orders", bare.name);
    let apply = Apply::new(&bare.stack, &bare.name, std::slice::from_ref(&topic), &bare.sink_url());
    let mut worker: Worker = apply.start()?;
    let line = worker.logged("topics do not exist", LIMIT).await?;
    assert_says(&line, &[&topic]);
    // What lasts for ten seconds, a person wants to know.
    let what = format!("topics do not exist: {topic}");
    until(&what, LIMIT, async || Ok(status(&mut worker).await?.log.contains(&what).then_some(()))).await?;

    kafka::create_topic(&bare.stack, &topic, 1, &[]).await?;
    kafka::write(&bare.stack, &topic, vec![bare.row(1, "v")]).await?;

    holds(&mut bare.sink().await?, IDS, &["1"]).await?;
    worker.stop(LIMIT).await
}

/// Until the first record it would look for its place anew, and the end is elsewhere then.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_starts_at_the_end_keeps_that_place() -> Result<()> {
    let bare = Bare::new("latest", TABLE).await?;
    let mut sink = bare.sink().await?;
    let latest = bare.apply().with(&["--start", "latest"]);
    let mut worker = latest.start()?;
    worker.logged("lane started", LIMIT).await?;
    holds(&mut sink, "SELECT next_offset::text FROM sink_repair.frontier", &["0"]).await?;
    worker.stop(LIMIT).await?;

    bare.write(vec![bare.row(2, "meanwhile")]).await?;
    latest.catches_up().await?;

    assert_eq!(texts(&mut sink, IDS).await?, ["2"]);
    Ok(())
}

/// The records before the frontier are read again, and may be another stream's since.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_reset_stays_so_until_the_next_record() -> Result<()> {
    let bare = Bare::new("taken_back", TABLE).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![bare.row(1, "v")]).await?;
    bare.apply().catches_up().await?;
    let claims = "SELECT count(*)::text FROM sink_repair.stream WHERE released_at IS NULL";
    assert_eq!(texts(&mut sink, claims).await?, ["1"]);
    let reset = bare.apply().operate(&bare.sink_url(), &["reset", "--table", "inventory.orders"]).await?;
    assert_eq!(reset.code, 0, "{}", reset.log);

    bare.apply().catches_up().await?;
    assert_eq!(texts(&mut sink, claims).await?, ["0"]);
    bare.write(vec![bare.row(2, "v")]).await?;
    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut sink, claims).await?, ["1"]);
    Ok(())
}

//! Parts of the stack that are killed come back with what they had. In a test binary of its own: nothing else may run on
//! the servers meanwhile.

#![allow(clippy::unwrap_used, missing_docs)]

use anyhow::Result;
use test_support::{Part, Pipeline, Stack, kafka, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_goes_on_after_each_part_was_killed() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "killed").table("orders", "id int PRIMARY KEY").start().await?;
    let topic = pipeline.topic("orders");

    for (id, part) in [Part::Source, Part::Connect, Part::Kafka, Part::Sink].into_iter().enumerate() {
        stack.kill9(part).await?;
        stack.start(part).await?;
        pipeline.source().await?.run(format!("INSERT INTO orders VALUES ({id})")).await?;
        pipeline.sink().await?.run("SELECT 1").await?;
        if part == Part::Source {
            // Debezium's task fails when its server is gone for good; a restart is the operator's.
            stack.connector(&["restart", &pipeline.name]).await?;
        }
        until(&format!("row {id} is in the topic"), std::time::Duration::from_secs(60), async || {
            let keys: Vec<_> = kafka::read_all(&stack, &topic).await.unwrap_or_default();
            let wanted = format!("{{\"id\":{id}}}");
            Ok(keys.iter().any(|record| record.key_text().as_deref() == Some(&wanted)).then_some(()))
        })
        .await?;
    }
    Ok(())
}

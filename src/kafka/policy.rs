//! What a topic does with old records.

use std::time::Duration;

use rdkafka::{
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    config::FromClientConfigAndContext,
    error::RDKafkaErrorCode,
};

use super::{context::QuietContext, lookup::is_answer, settings::ClientSettings};

/// How long the broker may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Whether records may be missing from the middle of a topic's log: whether it is compacted (`cleanup.policy`). A worker
/// that may not look takes it to be.
///
/// # Errors
/// When there is no answer; asking again may help.
pub async fn may_be_compacted(settings: &ClientSettings, topic: &str) -> Result<bool, String> {
    let config = settings.client().map_err(|error| error.to_string())?;
    let admin = AdminClient::from_config_and_context(&config, QuietContext).map_err(|error| error.to_string())?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER_WITHIN));
    let answer = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await;
    // Dropping an admin client joins its thread.
    tokio::task::spawn_blocking(move || drop(admin));
    let answer = match answer {
        Err(error) if error.rdkafka_error_code().is_some_and(is_answer) => return Ok(true),
        answer => answer.map_err(|error| error.to_string())?,
    };
    match answer.into_iter().next() {
        Some(Ok(configs)) => {
            let policy = configs.get("cleanup.policy").and_then(|entry| entry.value.as_deref());
            Ok(policy.is_none_or(|policy| policy.contains("compact")))
        }
        // A broker that does not tell, for whatever reason, may well compact.
        Some(Err(code)) if is_answer(code) && code != RDKafkaErrorCode::UnknownTopicOrPartition => Ok(true),
        Some(Err(code)) => Err(code.to_string()),
        None => Err("the broker did not answer".to_owned()),
    }
}

//! Which topics a worker reads: named ones, or all that match.
//!
//! A pattern is matched here, against the cluster's list of topics, and the group subscribes to the names: librdkafka's own
//! patterns are POSIX ones, not anchored at the end, and mean something else again under the newer group protocol.

use regex::Regex;

use super::settings::SettingsError;

/// Which topics to read.
#[derive(Clone, Debug)]
pub enum TopicSelection {
    /// These. One that does not exist yet is waited for.
    Names(Vec<String>),
    /// All that match, now or later.
    Pattern(TopicPattern),
}

/// A regular expression that a topic's whole name must match.
#[derive(Clone, Debug)]
pub struct TopicPattern {
    regex: Regex,
    except: Vec<String>,
}

impl TopicPattern {
    /// Parses `pattern`. The topics `except` (the dead letter queue, the signal topic) and Kafka's own (`__*`) never
    /// match.
    ///
    /// # Errors
    /// When it is not a regular expression.
    pub fn new(pattern: &str, except: Vec<String>) -> Result<TopicPattern, SettingsError> {
        // Anchored at both ends, as Kafka Connect's `topics.regex`; `^` and `$` in the pattern do no harm.
        let regex = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|err| SettingsError(format!("topic pattern `{pattern}` is not a regular expression: {err}")))?;
        Ok(TopicPattern { regex, except })
    }

    /// Whether a topic is to be read.
    pub fn matches(&self, topic: &str) -> bool {
        !topic.starts_with("__") && self.regex.is_match(topic) && !self.except.iter().any(|name| name == topic)
    }
}

impl std::fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pattern_must_match_the_whole_name_and_never_matches_what_is_excepted() {
        let pattern = TopicPattern::new("inventory\\..*", vec!["inventory.dead".into()]).unwrap();

        let names = ["inventory.orders", "the.inventory.orders", "inventory.dead", "inventory"];
        assert_eq!(names.map(|name| pattern.matches(name)), [true, false, false, false]);
        assert!(!TopicPattern::new(".*", vec![]).unwrap().matches("__consumer_offsets"));
        assert!(TopicPattern::new("(", vec![]).is_err());
    }
}

//! Which topics are read, from which brokers, with which client properties.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::Usage;
use crate::kafka::{ClientSettings, TopicPattern};

/// Properties that the worker itself sets, with what to use instead: another value would lose or repeat records.
const OWNED: [(&str, &str); 10] = [
    ("bootstrap.servers", "use --bootstrap-servers"),
    ("metadata.broker.list", "use --bootstrap-servers"),
    ("group.id", "use --group"),
    ("auto.offset.reset", "use --start"),
    ("enable.auto.commit", "leave it out: offsets are committed after their effect is durable"),
    ("enable.auto.offset.store", "leave it out: offsets are committed after their effect is durable"),
    ("isolation.level", "leave it out: only committed records are read"),
    ("enable.partition.eof", "leave it out: the worker needs it"),
    ("partition.assignment.strategy", "leave it out: partitions move one by one (cooperative-sticky)"),
    ("log_level", "use --log-level librdkafka=debug"),
];

/// Parts of the names of properties whose values are secret.
const SECRET: [&str; 8] =
    ["password", "secret", ".pem", "token", "credential", "assertion", "oauthbearer.config", "extensions"];

/// Where to look for librdkafka's properties.
const PROPERTIES: &str =
    "the names and values are those of https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md";

/// How to reach Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `HOST:PORT,...`
    pub bootstrap_servers: String,
    /// Further librdkafka properties.
    pub properties: KafkaProperties,
}

/// librdkafka properties; `Debug` hides the secret ones.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaProperties(BTreeMap<String, String>);

/// One librdkafka property; `Debug` hides a secret value.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaProperty {
    name: String,
    value: String,
}

impl KafkaProperties {
    /// Returns the properties as names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<KafkaProperty> for KafkaProperties {
    /// The last of several values for one property wins.
    fn from_iter<I: IntoIterator<Item = KafkaProperty>>(properties: I) -> KafkaProperties {
        KafkaProperties(properties.into_iter().map(|KafkaProperty { name, value }| (name, value)).collect())
    }
}

impl KafkaProperty {
    /// Returns the property's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets librdkafka look at the property; what it does not take is not repeated, since it may be a secret.
    fn check(&self) -> Result<(), Usage> {
        let properties = vec![(self.name.clone(), self.value.clone())];
        let client = ClientSettings { bootstrap_servers: String::new(), properties };
        client.check().map_err(|error| Usage::new(error.to_string()).hint(PROPERTIES))
    }

    /// Returns whether the property's value must not be printed, nor stand on a command line.
    pub fn is_secret(name: &str) -> bool {
        SECRET.iter().any(|part| name.contains(part)) && !name.ends_with(".location")
    }
}

impl FromStr for KafkaProperty {
    type Err = Usage;

    fn from_str(text: &str) -> Result<KafkaProperty, Usage> {
        let Some((name, value)) = text.split_once('=') else {
            // The text may be a stray secret, so it is not repeated.
            return Err(Usage::new("a property has no `=`").hint("write KEY=VALUE, such as security.protocol=SSL"));
        };
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Err(Usage::new("what stands before `=` is not a property's name")
                .hint("write KEY=VALUE, such as security.protocol=SSL"));
        }
        if let Some((_, instead)) = OWNED.iter().find(|(owned, _)| *owned == name) {
            return Err(Usage::new(format!("`{name}` is set by the worker")).hint(*instead));
        }
        let property = KafkaProperty { name: name.to_owned(), value: value.trim().to_owned() };
        property.check()?;
        Ok(property)
    }
}

impl fmt::Debug for KafkaProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if KafkaProperty::is_secret(&self.name) { "***" } else { &self.value };
        write!(f, "{}={value}", self.name)
    }
}

impl fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let property = |(name, value): (&String, &String)| KafkaProperty { name: name.clone(), value: value.clone() };
        f.debug_list().entries(self.0.iter().map(property)).finish()
    }
}

/// The topics that the worker reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicSelection {
    /// These.
    Names(Vec<String>),
    /// All whose whole name matches this POSIX extended regular expression.
    Regex(String),
}

impl TopicSelection {
    /// Returns what to subscribe to, in librdkafka's form: a name that begins with `^` is a regular expression there.
    pub fn subscription(&self) -> Vec<String> {
        match self {
            TopicSelection::Names(names) => names.clone(),
            TopicSelection::Regex(regex) => {
                let inner = regex.strip_prefix('^').unwrap_or(regex);
                let inner = inner.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(inner);
                vec![format!("^({inner})$")]
            }
        }
    }

    /// Returns the one topic that is read, when it is certain that there is no second.
    pub fn only(&self) -> Option<&str> {
        match self {
            TopicSelection::Names(names) if names.len() == 1 => names.first().map(String::as_str),
            _ => None,
        }
    }

    /// Returns whether `topic` is named; `false` for regular expressions, which only the client can match.
    pub fn names(&self, topic: &str) -> bool {
        matches!(self, TopicSelection::Names(names) if names.iter().any(|name| name == topic))
    }
}

/// Reads topic names between commas.
pub(crate) fn topics(text: &str) -> Result<Vec<String>, Usage> {
    let mut names = Vec::new();
    for name in text.split(',').map(str::trim) {
        if names.iter().any(|earlier| earlier == name) {
            return Err(Usage::new(format!("`{name}` stands there twice")));
        }
        names.push(topic(name)?);
    }
    Ok(names)
}

/// Reads a regular expression for topics' names.
pub(crate) fn topics_regex(text: &str) -> Result<String, Usage> {
    if let Err(error) = TopicPattern::new(text, Vec::new()) {
        // The parser draws a picture over several lines; the last one says it in words.
        let error = error.to_string();
        let why = error.lines().last().and_then(|line| line.strip_prefix("error: ")).unwrap_or("it cannot be read");
        return Err(Usage::new(format!("`{text}` is not a regular expression: {why}"))
            .hint("write a pattern such as shop\\.inventory\\..*"));
    }
    Ok(text.to_owned())
}

/// Reads a topic's name by Kafka's rules (`org.apache.kafka.common.internals.Topic.validate`).
pub(crate) fn topic(name: &str) -> Result<String, Usage> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > 249 || matches!(name, "." | "..") || !name.bytes().all(legal) {
        return Err(Usage::new(format!("`{name}` cannot be a topic's name"))
            .hint("topics have names of 1 to 249 letters, digits, dots, underscores and hyphens; for several by pattern use --topics-regex"));
    }
    Ok(name.to_owned())
}

/// Reads `HOST:PORT,...`.
pub(crate) fn bootstrap_servers(text: &str) -> Result<String, Usage> {
    let mut servers = Vec::new();
    for server in text.split(',').map(str::trim) {
        let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(Usage::new(format!("`{server}` is not a broker's address")).hint("write HOST:PORT,HOST:PORT"));
        }
        servers.push(server);
    }
    Ok(servers.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    #[test]
    fn properties_that_the_worker_sets_are_refused() {
        for name in ["enable.auto.commit", "group.id", "isolation.level"] {
            let error = format!("{name}=x").parse::<KafkaProperty>().unwrap_err();
            assert_eq!(error.message, format!("`{name}` is set by the worker"));
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn secret_properties_are_not_printed() {
        let properties: KafkaProperties =
            ["sasl.password=hunter2", "ssl.key.pem=-----BEGIN", "sasl.username=app", "ssl.key.location=/etc/key.pem"]
                .iter()
                .map(|text| text.parse::<KafkaProperty>().unwrap())
                .collect();

        assert_eq!(
            format!("{properties:?}"),
            "[sasl.password=***, sasl.username=app, ssl.key.location=/etc/key.pem, ssl.key.pem=***]"
        );
        assert_eq!(properties.iter().find(|(name, _)| *name == "sasl.password"), Some(("sasl.password", "hunter2")));
    }

    #[test]
    fn a_property_without_a_name_is_refused_without_repeating_it() {
        for text in ["hunter2", "=hunter2", "my hunter2=x"] {
            assert!(!text.parse::<KafkaProperty>().unwrap_err().message.contains("hunter2"));
        }
    }

    #[test]
    fn a_regex_matches_whole_names() {
        let subscription = |regex: &str| TopicSelection::Regex(regex.to_owned()).subscription();

        assert_eq!(subscription("shop\\.(orders|items)"), ["^(shop\\.(orders|items))$"]);
        assert_eq!(subscription("^shop\\..*$"), ["^(shop\\..*)$"]);
        assert_eq!(subscription("a|b"), ["^(a|b)$"]);
    }

    #[test]
    fn topics_and_brokers_are_read() {
        assert_eq!(topics("a.b, c"), Ok(vec!["a.b".to_owned(), "c".to_owned()]));
        assert_eq!(topics("a,a").unwrap_err().message, "`a` stands there twice");
        assert_eq!(topics("a,,b").unwrap_err().message, "`` cannot be a topic's name");
        assert_eq!(topics("shop.*").unwrap_err().message, "`shop.*` cannot be a topic's name");
        assert_eq!(bootstrap_servers("k1:9092, k2:9093"), Ok("k1:9092,k2:9093".to_owned()));
        assert_eq!(bootstrap_servers("[::1]:9092"), Ok("[::1]:9092".to_owned()));
        for text in ["k1", "k1:", ":9092", "k1:port", "", "k1:9092,"] {
            assert!(bootstrap_servers(text).is_err(), "{text}");
        }
    }
}

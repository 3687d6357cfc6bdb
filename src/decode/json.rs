//! JSON as it stands in a record: borrowed, one level at a time.
//!
//! Numbers stay text until the column that takes them is known, since a number of a record may have more digits than any
//! machine type. `serde_json` finds where each value ends; what lies inside a value is looked at only when it is needed.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// What the first byte of a value says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// Returns the kind of a value that `serde_json` has found to be one.
    pub(super) fn of(raw: &RawValue) -> Kind {
        match raw.get().as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }
}

/// Why a text is not the JSON that it should be. Says nothing of what stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It ends early.
    CutOff,
    /// It is not JSON, from this column on.
    Syntax(usize),
    /// It is JSON of another kind than expected.
    Kind(&'static str),
    /// It is not UTF-8, from this byte on.
    Utf8(usize),
    /// An object has a field twice.
    Twice(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::CutOff => f.write_str("is cut off"),
            Broken::Syntax(column) => write!(f, "is not JSON at column {column}"),
            Broken::Kind(expected) => write!(f, "is not {expected}"),
            Broken::Utf8(at) => write!(f, "is not UTF-8 at byte {at}"),
            Broken::Twice(name) => write!(f, "has the field `{name}` twice"),
        }
    }
}

impl Broken {
    /// Takes only the category of an error: its text may quote the record.
    pub(super) fn from_serde(error: &serde_json::Error, expected: &'static str) -> Broken {
        match error.classify() {
            serde_json::error::Category::Eof => Broken::CutOff,
            serde_json::error::Category::Data => Broken::Kind(expected),
            _ => Broken::Syntax(error.column()),
        }
    }
}

/// Checks that a record's bytes are UTF-8.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Broken> {
    std::str::from_utf8(bytes).map_err(|error| Broken::Utf8(error.valid_up_to()))
}

/// Returns a text's one JSON value.
pub(super) fn value(text: &str) -> Result<&RawValue, Broken> {
    serde_json::from_str(text).map_err(|error| Broken::from_serde(&error, "a JSON value"))
}

/// Returns the content of a JSON string.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    if Kind::of(raw) != Kind::String {
        return None;
    }
    if !text.as_bytes().contains(&b'\\') {
        return text.get(1..text.len() - 1).map(Cow::Borrowed);
    }
    serde_json::from_str::<String>(text).ok().map(Cow::Owned)
}

/// Returns a JSON boolean.
pub(super) fn boolean(raw: &RawValue) -> Option<bool> {
    match raw.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns the text of a JSON number.
pub(super) fn number(raw: &RawValue) -> Option<&str> {
    (Kind::of(raw) == Kind::Number).then(|| raw.get())
}

/// Calls `each` for every field of an object, in the order of the text, until it fails.
pub(super) fn object<'a, E: From<Broken>>(
    text: &'a str,
    each: impl FnMut(Cow<'a, str>, &'a RawValue) -> Result<(), E>,
) -> Result<(), E> {
    let mut failed = None;
    let mut json = serde_json::Deserializer::from_str(text);
    let walked = json.deserialize_map(ObjectWalk { each, failed: &mut failed }).and_then(|()| json.end());
    match (failed, walked) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(E::from(Broken::from_serde(&error, "an object"))),
        (None, Ok(())) => Ok(()),
    }
}

/// Calls `each` for every element of an array, in order, until it fails.
pub(super) fn array<'a, E: From<Broken>>(
    text: &'a str,
    each: impl FnMut(&'a RawValue) -> Result<(), E>,
) -> Result<(), E> {
    let mut failed = None;
    let mut json = serde_json::Deserializer::from_str(text);
    let walked = json.deserialize_seq(ArrayWalk { each, failed: &mut failed }).and_then(|()| json.end());
    match (failed, walked) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(E::from(Broken::from_serde(&error, "an array"))),
        (None, Ok(())) => Ok(()),
    }
}

struct ObjectWalk<'f, F, E> {
    each: F,
    failed: &'f mut Option<E>,
}

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue) -> Result<(), E>, E> Visitor<'de> for ObjectWalk<'_, F, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name)? {
            let value = map.next_value::<&'de RawValue>()?;
            if let Err(error) = (self.each)(name, value) {
                *self.failed = Some(error);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

struct ArrayWalk<'f, F, E> {
    each: F,
    failed: &'f mut Option<E>,
}

impl<'de, F: FnMut(&'de RawValue) -> Result<(), E>, E> Visitor<'de> for ArrayWalk<'_, F, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(value) = seq.next_element::<&'de RawValue>()? {
            if let Err(error) = (self.each)(value) {
                *self.failed = Some(error);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// Reads a field's name, borrowed where it has no escapes.
#[derive(Clone, Copy)]
pub(super) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Reads a string, borrowed where it has no escapes; of any other value nothing.
#[derive(Clone, Copy)]
pub(super) struct TextOrNone;

impl<'de> DeserializeSeed<'de> for TextOrNone {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextOrNone {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

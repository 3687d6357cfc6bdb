//! The keys in a statement: bounds and lists.
//!
//! A key is the value of the one key column; of several columns an array in key order, or an object by column name.
//! Values stand as PostgreSQL's `to_json` writes them: numbers for integers; numbers or text for decimals, which are read
//! digit by digit; numbers or text for `oid`; `\x` and hexadecimal for `bytea`; ISO 8601 text for dates, times and timestamps; text for UUIDs and
//! text; `true` and `false`. Floating point is refused. A list is an array of keys; or `{"encoded": [...]}`, hexadecimal
//! of the canonical encoding; or, for one integer column, `{"intervals": [[first, last], ...]}`, both ends included.

use std::borrow::Cow;

use serde_json::value::RawValue;
use sink_api::{Column, ColumnType, Key, KeyBound, KeyList, KeyRange, KeySet, KeyType, KeyValue, Rule, Value};

use super::{
    json::{self, Broken, Kind},
    key::{KeyColumns, encode_value},
    row::explain,
    value::{self, Reading},
    wire::Wire,
};

/// More keys than any chunk has: an interval list costs nothing to write, and the time of a barrier grows with it.
const MOST_KEYS: u64 = 10_000_000;

/// What is wrong with a statement: the rule that it breaks and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) rule: Rule,
    pub(super) reason: String,
}

impl Damage {
    pub(super) fn new(rule: Rule, reason: impl Into<String>) -> Damage {
        Damage { rule, reason: reason.into() }
    }

    /// It is not there in full, or not in its form.
    pub(super) fn whole(reason: impl Into<String>) -> Damage {
        Damage::new(Rule::Whole, reason)
    }

    /// Says in which field, unless that is said.
    pub(super) fn within(self, field: &str) -> Damage {
        if self.reason.starts_with("field `") { self } else { self.in_field(field) }
    }

    /// Says in which field.
    fn in_field(self, field: &str) -> Damage {
        Damage { rule: self.rule, reason: format!("field `{field}`: {}", self.reason) }
    }
}

impl From<Broken> for Damage {
    fn from(broken: Broken) -> Damage {
        Damage::whole(format!("it {broken}"))
    }
}

/// Reads the bounds of a range.
pub(super) fn range(key: &KeyColumns, raw: &RawValue) -> Result<KeyRange, Damage> {
    let (mut lower, mut upper) = (None, None);
    json::object::<Damage>(raw.get(), |name, bound_raw| {
        let (bound, field) = match &*name {
            "lower" => (&mut lower, "range.lower"),
            "upper" => (&mut upper, "range.upper"),
            _ => return Err(Damage::whole(format!("it has the field `{name}`, which is not known"))),
        };
        let read = bound_of(key, bound_raw).map_err(|damage| damage.in_field(field))?;
        match bound.replace(read) {
            Some(_) => Err(Damage::from(Broken::Twice(name.into_owned()))),
            None => Ok(()),
        }
    })
    .map_err(|damage| damage.within("range"))?;
    let missing = |end: &str| Damage::whole(format!("field `range.{end}` is missing"));
    let range =
        KeyRange { lower: lower.ok_or_else(|| missing("lower"))?, upper: upper.ok_or_else(|| missing("upper"))? };
    if !range.is_ordered() {
        return Err(Damage::new(Rule::Order, "field `range`: the lower bound is above the upper bound"));
    }
    Ok(range)
}

fn bound_of(columns: &KeyColumns, raw: &RawValue) -> Result<KeyBound, Damage> {
    let (mut open, mut key, mut inclusive) = (None, None, None);
    json::object::<Damage>(raw.get(), |name, field| {
        let twice = match &*name {
            "open" => open.replace(json::boolean(field)).is_some(),
            "key" => key.replace(field).is_some(),
            "inclusive" => inclusive.replace(json::boolean(field)).is_some(),
            _ => return Err(Damage::whole(format!("it has the field `{name}`, which is not known"))),
        };
        if twice { Err(Damage::from(Broken::Twice(name.into_owned()))) } else { Ok(()) }
    })?;
    match (open, key, inclusive) {
        (Some(Some(true)), None, None) => Ok(KeyBound::Open),
        (None | Some(Some(false)), Some(raw), Some(Some(inclusive))) => {
            let mut bytes = Vec::new();
            append(columns, raw, &mut bytes)?;
            let key = Key::from_encoded(bytes);
            Ok(if inclusive { KeyBound::Inclusive(key) } else { KeyBound::Exclusive(key) })
        }
        _ => Err(Damage::whole("it is neither open nor a key with `inclusive`")),
    }
}

/// Reads a list whose order counts: strictly ascending, and inside the range.
pub(super) fn ascending(key: &KeyColumns, range: &KeyRange, field: &str, raw: &RawValue) -> Result<KeySet, Damage> {
    let set = set(key, field, raw)?;
    check_order(range, &set).map_err(|damage| damage.in_field(field))?;
    Ok(set)
}

/// Reads a list in any order; intervals are ascending.
pub(super) fn set(key: &KeyColumns, field: &str, raw: &RawValue) -> Result<KeySet, Damage> {
    read(key, raw).map_err(|damage| damage.in_field(field))
}

/// Reads a list that has no interval form.
pub(super) fn list(key: &KeyColumns, field: &str, raw: &RawValue) -> Result<KeyList, Damage> {
    match set(key, field, raw)? {
        KeySet::List(list) => Ok(list),
        KeySet::Intervals(_) => Err(Damage::whole("it lists intervals, not keys").in_field(field)),
    }
}

fn check_order(range: &KeyRange, set: &KeySet) -> Result<(), Damage> {
    let outside = |position: usize| Damage::new(Rule::Order, format!("position {position} lies outside the range"));
    match set {
        KeySet::List(list) => {
            if let Some((first, second)) = list.first_inversion() {
                let reason = format!("positions {} and {} are not in ascending order", first + 1, second + 1);
                return Err(Damage::new(Rule::Order, reason));
            }
            // Ascending: if the ends are inside, all are.
            for position in [0, list.len().wrapping_sub(1)] {
                if list.get(position).is_some_and(|key| !range.contains(key)) {
                    return Err(outside(position + 1));
                }
            }
        }
        KeySet::Intervals(intervals) => {
            for (index, (first, last)) in intervals.iter().enumerate() {
                if ![first, last].iter().all(|end| range.contains(&encoded(**end))) {
                    return Err(outside(index + 1));
                }
            }
        }
    }
    Ok(())
}

fn encoded(integer: i64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8);
    KeyValue::Int(integer).encode(KeyType::Int, &mut bytes).expect("an integer is a value of the integer key type");
    bytes
}

fn read(key: &KeyColumns, raw: &RawValue) -> Result<KeySet, Damage> {
    match Kind::of(raw) {
        Kind::Array => {
            let mut list = KeyList::new();
            each(raw.get(), |element| {
                append(key, element, list.buffer())?;
                list.end_key();
                Ok(())
            })?;
            Ok(KeySet::List(list))
        }
        Kind::Object => {
            let mut form: Option<(Cow<'_, str>, &RawValue)> = None;
            let mut fields = 0;
            json::object::<Broken>(raw.get(), |name, value| {
                fields += 1;
                form = Some((name, value));
                Ok(())
            })?;
            match form {
                Some((name, value)) if fields == 1 && name == "intervals" => intervals(key, value),
                Some((name, value)) if fields == 1 && name == "encoded" => encoded_list(key, value),
                _ => Err(Damage::whole("it is neither a list nor one of `intervals` and `encoded`")),
            }
        }
        _ => Err(Damage::whole("it is not a list")),
    }
}

/// Calls `read` for each element of an array; an error says at which position.
fn each<'a>(text: &'a str, mut read: impl FnMut(&'a RawValue) -> Result<(), Damage>) -> Result<(), Damage> {
    let mut position = 0_u64;
    json::array::<Damage>(text, |element| {
        position += 1;
        if position > MOST_KEYS {
            return Err(Damage::whole(format!("it has more than {MOST_KEYS} keys")));
        }
        read(element).map_err(|damage| Damage { reason: format!("position {position}: {}", damage.reason), ..damage })
    })
}

fn encoded_list(key: &KeyColumns, raw: &RawValue) -> Result<KeySet, Damage> {
    let mut list = KeyList::new();
    each(raw.get(), |element| {
        let bytes = json::string(element)
            .and_then(|digits| hex::decode(&*digits).ok())
            .ok_or_else(|| Damage::whole("it is not hexadecimal"))?;
        let encoded = Key::from_encoded(bytes);
        let values = encoded.decode(&key.types).map_err(|_| Damage::whole("it is no encoded key of this table"))?;
        for (column, value) in key.columns().zip(&values) {
            match value {
                KeyValue::Int(value) => check_integer(column, *value)?,
                KeyValue::UInt(value) if column.column_type.is_oid() && u32::try_from(*value).is_err() => {
                    return Err(too_large(column));
                }
                _ => {}
            }
        }
        list.push(encoded.as_bytes());
        Ok(())
    })?;
    Ok(KeySet::List(list))
}

fn intervals(key: &KeyColumns, raw: &RawValue) -> Result<KeySet, Damage> {
    if key.types != [KeyType::Int] {
        return Err(Damage::whole("intervals are for a key of one integer column"));
    }
    let column = key.columns().next().expect("the key has one column");
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    each(raw.get(), |element| {
        let mut ends = Vec::with_capacity(2);
        json::array::<Damage>(element.get(), |end| {
            let end = json::number(end).and_then(|text| text.parse::<i64>().ok());
            ends.push(end.ok_or_else(|| Damage::whole("an end of the interval is not an integer of 64 bits"))?);
            Ok(())
        })?;
        let [first, last] = ends[..] else { return Err(Damage::whole("it does not have two ends")) };
        check_integer(column, first)?;
        check_integer(column, last)?;
        if first > last {
            return Err(Damage::new(Rule::Order, "the interval's first end is above its last"));
        }
        if intervals.last().is_some_and(|(_, before)| *before >= first) {
            return Err(Damage::new(Rule::Order, "the interval is not above the one before it"));
        }
        intervals.push((first, last));
        Ok(())
    })?;
    let set = KeySet::Intervals(intervals);
    if set.len() > MOST_KEYS {
        return Err(Damage::whole(format!("its intervals have more than {MOST_KEYS} keys")));
    }
    Ok(set)
}

/// Checks that an integer is one of the sink column's.
fn check_integer(column: &Column, value: i64) -> Result<(), Damage> {
    let fits = match column.column_type {
        ColumnType::Int16 => i16::try_from(value).is_ok(),
        ColumnType::Int32 => i32::try_from(value).is_ok(),
        _ => true,
    };
    if fits {
        return Ok(());
    }
    Err(too_large(column))
}

fn too_large(column: &Column) -> Damage {
    let reason = format!("key column `{}`: the integer does not fit {}", column.name, column.type_name);
    Damage::new(Rule::SameValue, reason)
}

/// Appends the encoding of one key.
fn append(key: &KeyColumns, raw: &RawValue, out: &mut Vec<u8>) -> Result<(), Damage> {
    let count = key.types.len();
    let mut parts: Vec<Option<&RawValue>> = Vec::with_capacity(count);
    match Kind::of(raw) {
        Kind::Object => {
            parts.resize(count, None);
            json::object::<Damage>(raw.get(), |name, part| {
                let place = key.columns().position(|column| column.name == name);
                let place = place.ok_or_else(|| Damage::whole(format!("`{name}` is no key column")))?;
                match parts[place].replace(part) {
                    Some(_) => Err(Damage::from(Broken::Twice(name.into_owned()))),
                    None => Ok(()),
                }
            })?;
        }
        Kind::Array if count > 1 => json::array::<Broken>(raw.get(), |part| {
            parts.push(Some(part));
            Ok(())
        })?,
        _ => parts.push(Some(raw)),
    }
    if parts.len() != count {
        return Err(Damage::whole(format!("the key has {} values, not {count}", parts.len())));
    }
    let reading = Reading { binary: key.binary, unavailable: None };
    for (place, ((column, key_type), part)) in key.columns().zip(&key.types).zip(parts).enumerate() {
        let value = match part.map(|part| if key.is_oid(place) { unquoted(part) } else { part }) {
            Some(part) => value::read(&Wire::Plain, &column.column_type, part, reading).map_err(|misfit| {
                Damage::new(Rule::SameValue, format!("key {}", explain(column, &Wire::Plain, &misfit)))
            })?,
            None => Value::Absent,
        };
        encode_value(column, *key_type, &value, out).map_err(|fault| Damage::whole(fault.0))?;
    }
    Ok(())
}

/// PostgreSQL's `to_json` writes an `oid` as text: takes the number out of it.
fn unquoted(raw: &RawValue) -> &RawValue {
    let digits = raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let number = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number.and_then(|number| json::value(number).ok()).unwrap_or(raw)
}

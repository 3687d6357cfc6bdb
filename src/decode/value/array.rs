//! Arrays, element by element.

use serde_json::value::RawValue;
use sink_api::{ColumnType, Value};

use super::{Misfit, Reading, read};
use crate::decode::{
    json::{self, Broken, Kind},
    placeholder::Placeholder,
    wire::Wire,
};

/// Reads an array. Nested arrays are nulls already when they leave Debezium.
pub(super) fn read_elements<'a>(raw: &'a RawValue) -> Result<Vec<&'a RawValue>, Misfit> {
    let mut elements: Vec<&'a RawValue> = Vec::new();
    json::array::<Broken>(raw.get(), |element| {
        elements.push(element);
        Ok(())
    })
    .map_err(|_| Misfit::Value("it is not an array"))?;
    Ok(elements)
}

/// Reads an array of values that are written as `wire`.
pub(super) fn read_array(
    wire: &Wire,
    column: &ColumnType,
    raw: &RawValue,
    reading: Reading<'_>,
) -> Result<Value, Misfit> {
    if Kind::of(raw) != Kind::Array {
        return Err(Misfit::Value("it is not an array"));
    }
    let element_type = match column {
        ColumnType::Array(element) => element,
        // pgvector writes its values as JSON does.
        ColumnType::Other(_) if matches!(wire, Wire::Float32 | Wire::Float64) => {
            return Ok(Value::Text(raw.get().into()));
        }
        _ => return Err(Misfit::Types),
    };
    let elements = read_elements(raw)?;
    if reading.unavailable.is_some_and(|placeholder| is_placeholder(placeholder, &elements)) {
        return Ok(Value::Unchanged);
    }
    let values =
        elements.iter().map(|element| read(wire, element_type, element, reading)).collect::<Result<Vec<_>, _>>()?;
    match (values.as_slice(), reading.unavailable) {
        // The placeholder of bytea[] is one element, its bytes.
        ([Value::Unchanged], _) => Ok(Value::Unchanged),
        ([Value::Uuid(uuid)], Some(placeholder)) if placeholder.is_uuid(uuid) => Ok(Value::Unchanged),
        // A real text that looks like the placeholder, among others.
        (values, _) if values.contains(&Value::Unchanged) => {
            Err(Misfit::Value("it holds the placeholder among others"))
        }
        _ => Ok(Value::Array(values.into())),
    }
}

fn is_placeholder(placeholder: &Placeholder, elements: &[&RawValue]) -> bool {
    match elements {
        [element] if placeholder.is_text(element) => true,
        elements => placeholder.is_numbers(elements),
    }
}

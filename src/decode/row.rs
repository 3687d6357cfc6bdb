//! Rows: which field of a record goes to which column of the sink, found out once for each table and schema.

use serde_json::value::RawValue;
use sink_api::{Column, TableShape, Value};

use super::{
    DecodeSettings,
    fault::Fault,
    json::{self, Broken},
    schema::Schema,
    value::{self, Misfit, Reading},
    wire::Wire,
};

/// What becomes of a field.
#[derive(Clone, Debug)]
enum Target {
    /// It goes to the column of this index.
    Column(usize, Wire),
    /// It goes nowhere: the sink computes the column, or was told to do without.
    Nowhere,
    /// The sink lacks the column.
    Lacking,
}

/// The fields of one table's rows, in the order in which records have them.
#[derive(Clone, Debug, Default)]
pub(super) struct RowPlan {
    fields: Vec<(Box<str>, Target)>,
    /// Fields that are not planned for go nowhere: the schema does not know them.
    closed: bool,
}

/// Whether rows are flattened: then fields that begin with two underscores are not the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Envelope,
    Flattened,
}

impl RowPlan {
    /// Plans for rows of a schema.
    pub(super) fn of_schema(schema: &Schema, shape: &TableShape, form: Shape, settings: &DecodeSettings) -> RowPlan {
        let fields = schema
            .fields()
            .map(|(name, field)| (name.into(), target(name, shape, form, settings, |_| field.wire())))
            .collect();
        RowPlan { fields, closed: true }
    }

    /// Returns the place of a field; `expected` is where it is when this row is like the last.
    fn locate(
        &mut self,
        expected: usize,
        name: &str,
        shape: &TableShape,
        form: Shape,
        settings: &DecodeSettings,
    ) -> Option<usize> {
        if self.fields.get(expected).is_some_and(|(field, _)| **field == *name) {
            return Some(expected);
        }
        if let Some(place) = self.fields.iter().position(|(field, _)| **field == *name) {
            return Some(place);
        }
        if self.closed {
            return None;
        }
        let target = target(name, shape, form, settings, |column| Wire::assumed(&column.column_type, &settings.modes));
        self.fields.push((name.into(), target));
        Some(self.fields.len() - 1)
    }
}

fn target(
    name: &str,
    shape: &TableShape,
    form: Shape,
    settings: &DecodeSettings,
    wire: impl FnOnce(&Column) -> Wire,
) -> Target {
    match shape.column_index(name) {
        Some(index) if shape.columns[index].generated => Target::Nowhere,
        Some(index) => Target::Column(index, wire(&shape.columns[index])),
        None if settings.ignore_unknown_columns => Target::Nowhere,
        None if form == Shape::Flattened && name.starts_with("__") => Target::Nowhere,
        None => Target::Lacking,
    }
}

/// Reads a row: one value for each column of the table, `Absent` where the record has none.
pub(super) fn read_row(
    plan: &mut RowPlan,
    shape: &TableShape,
    text: &str,
    form: Shape,
    settings: &DecodeSettings,
) -> Result<Vec<Value>, Fault> {
    let reading = Reading { binary: settings.modes.binary, unavailable: Some(&settings.unavailable) };
    let mut values = vec![Value::Absent; shape.columns.len()];
    let mut lacking: Vec<String> = Vec::new();
    let mut expected = 0;
    json::object::<Fault>(text, |name, raw| {
        let Some(place) = plan.locate(expected, &name, shape, form, settings) else { return Ok(()) };
        expected = place + 1;
        match &plan.fields[place].1 {
            Target::Nowhere => {}
            Target::Lacking => lacking.push(format!("`{name}`")),
            Target::Column(index, wire) => {
                if values[*index] != Value::Absent {
                    return Err(Fault::from(Broken::Twice(name.into_owned())));
                }
                values[*index] = read_column(&shape.columns[*index], wire, raw, reading)?;
            }
        }
        Ok(())
    })?;
    if lacking.is_empty() {
        return Ok(values);
    }
    let (noun, these) = if lacking.len() == 1 { ("the column", "it") } else { ("the columns", "them") };
    Err(Fault::Setup {
        reason: format!("the sink table {} lacks {noun} {}", shape.name, lacking.join(", ")),
        hint: format!("add {these} to the sink table, or start with --ignore-unknown-columns"),
    })
}

fn read_column(column: &Column, wire: &Wire, raw: &RawValue, reading: Reading<'_>) -> Result<Value, Fault> {
    value::read(wire, &column.column_type, raw, reading).map_err(|misfit| match misfit {
        Misfit::Mode => Fault::Setup {
            reason: format!(
                "column `{}` takes bytes, and the stream carries them as text of an unknown form",
                column.name
            ),
            hint: "start with --binary-handling-mode as the connector has it: base64, base64-url-safe or hex"
                .to_owned(),
        },
        misfit => Fault::value(explain(column, wire, &misfit)),
    })
}

/// Says why a value does not fit a column: names and types, not the value.
pub(super) fn explain(column: &Column, wire: &Wire, misfit: &Misfit) -> String {
    match misfit {
        Misfit::Value(reason) => {
            format!("column `{}`: the value, read as {wire}, does not fit {}: {reason}", column.name, column.type_name)
        }
        _ => format!("column `{}`: {} takes no {wire} values", column.name, column.type_name),
    }
}

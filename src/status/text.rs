//! A status as text, for an operator at three in the morning: what needs a person first.

use std::time::Duration;

use super::{Attention, AttentionKind, GroupState, Lane, LaneState, Status};
use crate::{clock::UnixMillis, config::units::show_span};

/// Writes a status as text.
pub(super) fn render(status: &Status) -> String {
    let mut out = String::new();
    header(&mut out, status);
    attention(&mut out, status);
    lanes(&mut out, status);
    totals(&mut out, status);
    out
}

fn header(out: &mut String, status: &Status) {
    let up = show_span(Duration::from_secs(status.uptime_seconds));
    let group = match status.group.state {
        GroupState::Joining => "joining".to_owned(),
        GroupState::Joined => format!("joined, {}", counted(status.lanes.len() as u64, "lane")),
        GroupState::Left => "left".to_owned(),
    };
    let since = show_span(status.at.since(status.group.since));
    line(out, &format!("worker  {} {}, up {up}", status.name, status.version));
    line(out, &format!("sink    {}", status.sink));
    line(out, &format!("group   {}: {group} (for {since})", status.group.name));
}

fn attention(out: &mut String, status: &Status) {
    line(out, "");
    if status.attention.is_empty() {
        line(out, "Nothing needs attention.");
        return;
    }
    let all = status.attention.len() as u64 + status.attention_omitted;
    line(out, &format!("NEEDS ATTENTION ({all})"));
    for item in &status.attention {
        line(out, "");
        line(out, format!("  {:<13} {}", item.kind.as_str(), place(item)).trim_end());
        line(out, &format!("  {:<13} {}", "", what(item)));
        if let Some(hint) = &item.hint {
            line(out, &format!("  {:<13} {hint}", "  what to do:"));
        }
        line(out, &format!("  {:<13} {}", "  since:", when(item, status.at)));
    }
    if status.attention_omitted > 0 {
        line(out, "");
        line(out, &format!("  and {} more: see the log", status.attention_omitted));
    }
}

/// Returns table, lane, offset and read of an item, as far as it has them.
fn place(item: &Attention) -> String {
    let mut parts = Vec::new();
    parts.extend(item.table.clone());
    parts.extend(match (item.kind, &item.topic, item.partition) {
        (AttentionKind::SinkDown | AttentionKind::KafkaDown, ..) if item.count > 1 => {
            Some(format!("{} lanes", item.count))
        }
        (_, Some(topic), Some(partition)) => Some(format!("{topic} partition {partition}")),
        _ => None,
    });
    parts.extend(item.offset.map(|offset| format!("offset {offset}")));
    parts.extend(item.read_id.as_ref().map(|read_id| format!("read {read_id}")));
    parts.join("  ")
}

fn what(item: &Attention) -> String {
    match item.rule {
        Some(rule) => format!("{rule}: {}", item.what),
        None => item.what.clone(),
    }
}

fn when(item: &Attention, now: UnixMillis) -> String {
    let since = format!("{} ({} ago)", item.since.to_the_second(), show_span(now.since(item.since)));
    match item.kind {
        AttentionKind::KafkaDown | AttentionKind::SinkDown | AttentionKind::LaneStopped => since,
        _ if item.count == 1 => since,
        _ => format!("{since}, {} times, last {} ago", item.count, show_span(now.since(item.last))),
    }
}

fn lanes(out: &mut String, status: &Status) {
    line(out, "");
    if status.lanes.is_empty() {
        line(out, "No lanes: the worker has no partitions.");
        return;
    }
    let head = ["TOPIC", "PARTITION", "STATE", "FRONTIER", "LAG", "BEHIND", "WINDOWS", "LAST STATEMENT"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(status.lanes.iter().map(|lane| row(lane, status.at)));
    let widths: [usize; 8] = std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(i, (cell, width))| match i {
            // Numbers end below each other, so that their sizes show.
            1 | 3..=6 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        line(out, cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn row(lane: &Lane, now: UnixMillis) -> [String; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let state = match &lane.state {
        LaneState::Waiting { on, since, attempts, .. } => {
            let (span, tries) = (show_span(now.since(*since)), counted(u64::from(*attempts), "try"));
            format!("waiting for {}, {span} ({tries})", on.name())
        }
        LaneState::Stopped { since, .. } => format!("stopped {} ago", show_span(now.since(*since))),
        state => state.name().to_owned(),
    };
    let behind = lane.lag_seconds.map(|seconds| show_span(Duration::from_secs_f64(seconds.clamp(0.0, 1e12))));
    let last = lane.last_statement.as_ref().map(|last| {
        let ago = show_span(now.since(last.at));
        let counts = [("orphan", last.orphans), ("removed", last.removed), ("missing", last.missing)];
        let counts: Vec<String> = counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| counted(*n, what)).collect();
        let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
        format!("{} {}{counts}, {ago} ago", last.table, last.verdict)
    });
    [
        lane.topic.clone(),
        lane.partition.to_string(),
        state,
        or_dash(lane.frontier.map(|offset| offset.to_string())),
        or_dash(lane.lag_records.map(|lag| lag.to_string())),
        or_dash(behind),
        lane.open_windows.to_string(),
        or_dash(last),
    ]
}

fn totals(out: &mut String, status: &Status) {
    let c = &status.counters;
    line(out, "");
    line(
        out,
        &format!(
            "since the start: {} records, {} rows written, {} retries, {} rebalances, {} dead letters",
            c.records, c.rows, c.retries, c.rebalances, c.dead_letters
        ),
    );
    line(
        out,
        &format!(
            "statements: {} ({} held, {} refused): {} orphans found, {} removed; {} missing; {} keys spared",
            c.statements, c.held, c.refused, c.orphans, c.removed, c.missing, c.spared
        ),
    );
}

fn counted(number: u64, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "try") => format!("{number} tries"),
        (_, "removed" | "missing") => format!("{number} {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Writes one line. Read ids and reasons come from records: control characters in them are shown, not obeyed, so that
/// none can clear the screen or forge a line.
fn line(out: &mut String, text: &str) {
    for char in text.chars() {
        match char.is_control() {
            true => out.extend(char.escape_default()),
            false => out.push(char),
        }
    }
    out.push('\n');
}

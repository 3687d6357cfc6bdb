//! A status as text, for an operator at three in the morning: what needs a person first.

use std::{fmt::Write, time::Duration};

use super::{Attention, AttentionKind, GroupState, Lane, LaneState, Status};
use crate::{clock::UnixMillis, config::units::show_span};

/// Writes a status as text.
pub(super) fn render(status: &Status) -> String {
    let mut out = String::new();
    header(&mut out, status);
    attention(&mut out, status);
    lanes(&mut out, status);
    totals(&mut out, status);
    printable(&out)
}

// Writing to a `String` does not fail, so the results of `write!` say nothing.

fn header(out: &mut String, status: &Status) {
    let up = show_span(Duration::from_secs(status.uptime_seconds));
    let group = match status.group.state {
        GroupState::Joining => "joining".to_owned(),
        GroupState::Joined => format!("joined, {}", counted(status.lanes.len() as u64, "lane")),
        GroupState::Left => "left".to_owned(),
    };
    let since = show_span(status.at.since(status.group.since));
    let _ = writeln!(out, "worker  {} {}, up {up}", status.name, status.version);
    let _ = writeln!(out, "sink    {}", status.sink);
    let _ = writeln!(out, "group   {}: {group} (for {since})", status.group.name);
}

fn attention(out: &mut String, status: &Status) {
    if status.attention.is_empty() {
        let _ = writeln!(out, "\nNothing needs attention.");
        return;
    }
    let all = status.attention.len() as u64 + status.attention_omitted;
    let _ = writeln!(out, "\nNEEDS ATTENTION ({all})");
    for item in &status.attention {
        let _ = writeln!(out, "\n  {:<13} {}", item.kind.as_str(), place(item));
        let _ = writeln!(out, "  {:<13} {}", "", what(item));
        if let Some(hint) = &item.hint {
            let _ = writeln!(out, "  {:<13} {hint}", "  what to do:");
        }
        let _ = writeln!(out, "  {:<13} {}", "  since:", when(item, status.at));
    }
    if status.attention_omitted > 0 {
        let _ = writeln!(out, "\n  and {} more: see the log", status.attention_omitted);
    }
}

/// Returns table, lane, offset and read of an item, as far as it has them.
fn place(item: &Attention) -> String {
    let mut parts = Vec::new();
    parts.extend(item.table.clone());
    parts.push(match item.kind {
        AttentionKind::SinkDown if item.count > 1 => format!("{} lanes", item.count),
        _ => format!("{}-{}", item.topic, item.partition),
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
    let since = format!("{} ({} ago)", item.since, show_span(now.since(item.since)));
    match item.kind {
        AttentionKind::SinkDown | AttentionKind::LaneStopped => since,
        _ if item.count == 1 => since,
        _ => format!("{since}, {} times, last {} ago", item.count, show_span(now.since(item.last))),
    }
}

fn lanes(out: &mut String, status: &Status) {
    if status.lanes.is_empty() {
        let _ = writeln!(out, "\nNo lanes: the worker has no partitions.");
        return;
    }
    let mut rows = vec![
        ["TOPIC", "PARTITION", "STATE", "FRONTIER", "LAG", "BEHIND", "WINDOWS", "LAST STATEMENT"].map(str::to_owned),
    ];
    rows.extend(status.lanes.iter().map(|lane| row(lane, status.at)));
    let widths: [usize; 8] = std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    let _ = writeln!(out);
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers end below each other, so that their sizes show.
            let _ = match i {
                1 | 3..=6 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn row(lane: &Lane, now: UnixMillis) -> [String; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let state = match &lane.state {
        LaneState::Waiting { since, attempts, .. } => {
            format!("waiting for {} ({})", show_span(now.since(*since)), counted(u64::from(*attempts), "try"))
        }
        LaneState::Stopped { since, .. } => format!("stopped {} ago", show_span(now.since(*since))),
        state => state.name().to_owned(),
    };
    let behind = lane.lag_seconds.map(|seconds| show_span(Duration::from_secs_f64(seconds.clamp(0.0, 1e12))));
    let last = lane.last_statement.as_ref().map(|last| {
        let ago = show_span(now.since(last.at));
        let found = [("orphan", last.orphans), ("missing", last.missing)];
        let found: Vec<String> = found.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
        let found = if found.is_empty() { String::new() } else { format!(" ({})", found.join(", ")) };
        format!("{} {}{found}, {ago} ago", last.table, last.verdict)
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
    let _ = writeln!(
        out,
        "\nsince the start: {} records, {} rows written, {} retries, {} rebalances, {} dead letters",
        c.records, c.rows, c.retries, c.rebalances, c.dead_letters
    );
    let _ = writeln!(
        out,
        "statements: {} ({} held, {} refused): {} orphans found, {} removed; {} missing; {} keys spared",
        c.statements, c.held, c.refused, c.orphans, c.removed, c.missing, c.spared
    );
}

fn counted(number: u64, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "try") => format!("{number} tries"),
        _ => format!("{number} {noun}s"),
    }
}

/// Read ids and reasons come from records: a terminal's control characters among them are shown, not obeyed.
fn printable(text: &str) -> String {
    let keep = |char: char| char == '\n' || !char.is_control();
    text.chars().flat_map(|char| if keep(char) { vec![char] } else { char.escape_default().collect() }).collect()
}

//! Where the figures come from.

use std::fs;

use test_support::Stack;

/// Says what this machine is and how busy.
pub async fn describe(stack: &Stack) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "of an unknown kind".to_owned());
    let memory = value(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .unwrap_or_default();
    let server = match stack.sink().await {
        Ok(mut sink) => sink
            .value("SELECT 'PostgreSQL ' || current_setting('server_version') || ', ' || current_date")
            .await
            .ok()
            .flatten()
            .unwrap_or_default(),
        Err(_) => String::new(),
    };
    format!("{cores} cores ({cpu}), {} GB of memory, {server}; everything on this one machine", memory / 1_000_000)
}

/// The load averages of 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(", ")
}

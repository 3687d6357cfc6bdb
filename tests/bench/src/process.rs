//! CPU time and memory of processes, from /proc.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Ticks of the kernel's process clock in a second, as user space sees them: 100 on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// CPU seconds of a process itself, in user mode and in the kernel.
pub fn cpu(pid: u32) -> Result<f64> {
    let fields = stat(pid)?;
    Ok((fields[11] + fields[12]) as f64 / TICKS)
}

/// CPU seconds of a process, of its living children and of those that it has waited for: a PostgreSQL server with all
/// its backends, when given the postmaster.
pub fn cpu_with_children(pid: u32) -> Result<f64> {
    let fields = stat(pid)?;
    let mut ticks: u64 = fields[11..15].iter().sum();
    for entry in fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the listing and the look.
        if let Ok(fields) = stat(child)
            && fields[1] == u64::from(pid)
        {
            ticks += fields[11] + fields[12];
        }
    }
    Ok(ticks as f64 / TICKS)
}

/// The parent of a process.
pub fn parent(pid: u32) -> Result<u32> {
    Ok(u32::try_from(stat(pid)?[1])?)
}

/// The most memory that a process has held, in MB.
pub fn peak_mb(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kb: u64 = line.split_whitespace().next().context("no number in VmHWM")?.parse()?;
    Ok(kb / 1024)
}

/// Whether it has ended and waits for its parent to take notice; its CPU time can still be read.
pub fn has_ended(pid: u32) -> Result<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(") ").context("read /proc/PID/stat")?;
    Ok(rest.starts_with('Z'))
}

/// What a command took.
#[derive(Clone, Debug)]
pub struct Took {
    /// From its start to its end.
    pub seconds: f64,
    /// Its CPU seconds and those of the children that it waited for.
    pub cpu: f64,
    /// What it printed.
    pub output: String,
}

/// Runs a command to its end. What it says beside its output goes to ours.
pub fn measure(mut command: Command) -> Result<Took> {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("run {command:?}"))?;
    let mut output = String::new();
    child.stdout.take().context("its output is piped")?.read_to_string(&mut output)?;
    while !has_ended(child.id())? {
        thread::sleep(Duration::from_millis(1));
    }
    let seconds = start.elapsed().as_secs_f64();
    let fields = stat(child.id())?;
    let cpu = fields[11..15].iter().sum::<u64>() as f64 / TICKS;
    let status = child.wait()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(Took { seconds, cpu, output })
}

/// The fields of `/proc/PID/stat` behind the name, which may hold anything; letters and negative numbers as 0. The
/// first is the state, so field k of proc(5) is at k - 3.
fn stat(pid: u32) -> Result<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(") ").context("read /proc/PID/stat")?;
    Ok(rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_process_has_used_what_it_has_used() {
        let pid = std::process::id();
        let before = cpu(pid).unwrap();

        let start = std::time::Instant::now();
        while cpu(pid).unwrap() < before + 0.2 {
            assert!(start.elapsed().as_secs() < 60, "busy for a minute without CPU time");
        }

        assert!(cpu_with_children(pid).unwrap() >= before + 0.2);
        assert!(peak_mb(pid).unwrap() > 0);
        assert_eq!(parent(pid).unwrap(), std::os::unix::process::parent_id());
    }

    #[test]
    fn a_command_is_measured_with_its_children() {
        let mut command = Command::new("sh");
        // So much work, however busy the machine is.
        command.args(["-c", "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done) & wait; echo done"]);

        let took = measure(command).unwrap();

        assert_eq!(took.output, "done\n");
        assert!((0.02..took.seconds + 0.1).contains(&took.cpu), "{took:?}");
    }
}

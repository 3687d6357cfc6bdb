//! Tools that find the same orphans, between the two databases, and remove nothing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use test_support::Stack;

use super::layout::Layout;
use crate::process;

/// The best known tool for it, from Python's registry; with it comes the driver for PostgreSQL.
const RELADIFF: &str = "reladiff[postgresql]==0.6.0";

/// Both lists of ids, sorted and compared.
const COPY_AND_COMM: &str = r#"
export LC_ALL=C
cd "$1"
ids() { psql -X -At "$1" -c 'COPY (SELECT id FROM items) TO STDOUT' | sort -S 128M; }
ids "$2" >source & ids "$3" >sink & wait
comm -13 source sink
"#;

/// What a tool took.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The command.
    pub name: String,
    /// What it took, and that it found exactly the orphans; or why it was not measured.
    pub took: Result<process::Took, String>,
}

/// Measures each. What a tool finds must be the orphans.
pub async fn run(stack: &Stack, layout: &Layout) -> Result<Vec<Peer>> {
    let (stack, layout) = (stack.clone(), layout.clone());
    tokio::task::spawn_blocking(move || Ok(vec![reladiff(&stack, &layout)?, copy_and_comm(&stack, &layout)?])).await?
}

fn reladiff(stack: &Stack, layout: &Layout) -> Result<Peer> {
    let name = "`reladiff -k id`".to_owned();
    let program = match installed() {
        Ok(program) => program,
        Err(error) => {
            let why = format!("not measured: {error:#}");
            eprintln!("reladiff: {why}");
            return Ok(Peer { name, took: Err(why) });
        }
    };
    let mut command = Command::new(program);
    let url = |url: &str| url.replace("postgres://", "postgresql://");
    command.args([&url(&stack.source), "items", &url(&stack.sink), "items", "-k", "id"]);
    let took = process::measure(command)?;
    eprintln!("reladiff: {:.2} s", took.seconds);
    // One line for a difference: `+` is in the second table only.
    check(&name, layout, took.output.lines().map(|line| line.strip_prefix("+ ").unwrap_or(line)))?;
    Ok(Peer { name, took: Ok(took) })
}

/// Installs it beside this program, unless it is there.
fn installed() -> Result<PathBuf> {
    let folder = std::env::current_exe()?.parent().context("this program has no folder")?.join("bench-reladiff");
    let (python, program) = (folder.join("bin/python"), folder.join("bin/reladiff"));
    if !program.exists() {
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder)).context("make a Python environment")?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", RELADIFF];
        quietly(Command::new(python).args(install)).with_context(|| format!("install {RELADIFF}"))?;
    }
    Ok(program)
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.lines().last().unwrap_or("no reason was given"));
    Ok(())
}

fn copy_and_comm(stack: &Stack, layout: &Layout) -> Result<Peer> {
    let name = "`COPY` of both ids, `sort`, `comm`".to_owned();
    let folder = tempfile::TempDir::new()?;
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", COPY_AND_COMM, "bash"]).arg(folder.path());
    command.args([&stack.source, &stack.sink]);
    let took = process::measure(command)?;
    eprintln!("COPY and comm: {:.2} s", took.seconds);
    check(&name, layout, took.output.lines())?;
    Ok(Peer { name, took: Ok(took) })
}

fn check<'a>(name: &str, layout: &Layout, found: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut ids = found
        .map(|id| id.trim().parse::<u64>())
        .collect::<Result<Vec<_>, _>>()
        .context(format!("read what {name} found"))?;
    ids.sort_unstable();
    ensure!(
        ids == layout.orphans,
        "{name} found {} rows, and they are not the {} orphans",
        ids.len(),
        layout.orphans.len()
    );
    Ok(())
}

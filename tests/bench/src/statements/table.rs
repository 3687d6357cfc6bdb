//! The table of the part `statements`.

use std::fmt::Write;

use super::{Drained, Pair, StatementsArgs, layout::Layout, peers::Peer};
use crate::report;

/// Renders all of it.
pub fn render(args: &StatementsArgs, layout: &Layout, pairs: &[Pair], peers: &[Peer]) -> String {
    let mut text = format!(
        "### Statements\n\n{} rows at the sink, {} of them orphans; {} ready statements of about {} keys each, with {} \
         changes ahead of each. The clock runs from the commit of the first unit, which holds changes only, to that of \
         the last change; the median of {} runs each, by turns. After every run the sink's rows were compared with the \
         source's by count and digest: all orphans gone, or all there, and nothing else missing.\n\n\
         | | seconds | ms a statement | CPU s | PostgreSQL CPU s | peak MB |\n|---|---:|---:|---:|---:|---:|\n",
        layout.rows,
        layout.orphans.len(),
        layout.statements,
        layout.live.len().div_ceil(layout.statements),
        layout.changes,
        args.runs,
    );
    for Pair { form, ignored, removed } in pairs {
        let label = form.label();
        line(&mut text, &format!("`apply --orphans ignore`, {label}"), ignored);
        line(&mut text, &format!("`apply --orphans remove`, {label}"), removed);
        let seconds = removed.seconds - ignored.seconds;
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| **what the statements cost**, {label} | **{seconds:.2}** | **{:.1}** | {:.2} | {:.2} | |",
            seconds * 1e3 / layout.statements as f64,
            removed.cpu - ignored.cpu,
            removed.server_cpu - ignored.server_cpu,
        );
    }
    for Peer { name, took } in peers {
        let _ = match took {
            Ok(took) => writeln!(text, "| {name}, only finds | {:.2} | - | {:.2} | - | - |", took.seconds, took.cpu),
            Err(why) => writeln!(text, "| {name}, only finds | {why} | | | | |"),
        };
    }
    let cost = |pair: &Pair| {
        let seconds = pair.removed.seconds - pair.ignored.seconds;
        (
            format!("at most 0.3 s for 101 statements of 10,000 keys, {}: {seconds:.2}", pair.form.label()),
            seconds <= 0.3,
        )
    };
    // A smaller run says nothing of what was asked for.
    let full = StatementsArgs::default();
    if layout.rows < full.rows || layout.statements < full.statements {
        return text;
    }
    text + &report::asked(&pairs.iter().map(cost).collect::<Vec<_>>())
}

fn line(text: &mut String, label: &str, drained: &Drained) {
    let Drained { seconds, cpu, server_cpu, peak_mb } = drained;
    let _ = writeln!(text, "| {label} | {seconds:.2} | - | {cpu:.2} | {server_cpu:.2} | {peak_mb} |");
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;
    use crate::process::Took;

    #[test]
    fn the_difference_is_what_counts_and_a_peer_that_is_not_there_is_named() {
        let args = StatementsArgs { rows: 1_000, orphans: 10, statements: 10, ..StatementsArgs::default() };
        let drained = |seconds, cpu| Drained { seconds, cpu, server_cpu: 2.0 * cpu, peak_mb: 30 };
        let pairs = [Pair { form: Form::Markers, ignored: drained(1.0, 0.5), removed: drained(1.25, 0.75) }];
        let peers = [
            Peer { name: "one".to_owned(), took: Ok(Took { seconds: 4.0, cpu: 3.0, output: String::new() }) },
            Peer { name: "other".to_owned(), took: Err("not measured: no network".to_owned()) },
        ];

        let text = render(&args, &Layout::new(&args), &pairs, &peers);

        assert_eq!(
            text.lines().skip(6).collect::<Vec<_>>(),
            [
                "| `apply --orphans ignore`, low and chunk markers | 1.00 | - | 0.50 | 1.00 | 30 |",
                "| `apply --orphans remove`, low and chunk markers | 1.25 | - | 0.75 | 1.50 | 30 |",
                "| **what the statements cost**, low and chunk markers | **0.25** | **25.0** | 0.25 | 0.50 | |",
                "| one, only finds | 4.00 | - | 3.00 | - | - |",
                "| other, only finds | not measured: no network | | | | |",
            ]
        );
    }

    #[test]
    fn only_a_full_run_is_held_against_what_was_asked_for() {
        let drained = |seconds| Drained { seconds, cpu: 0.5, server_cpu: 1.0, peak_mb: 30 };
        let pairs = [Pair { form: Form::Markers, ignored: drained(1.0), removed: drained(1.5) }];
        let last =
            |args: &StatementsArgs| render(args, &Layout::new(args), &pairs, &[]).lines().last().map(str::to_owned);

        let full = StatementsArgs::default();
        let asked = "Asked for: at most 0.3 s for 101 statements of 10,000 keys, low and chunk markers: 0.50 (NO).";
        assert_eq!(last(&full).as_deref(), Some(asked));
        assert_ne!(last(&full.scaled(0.1)).as_deref(), Some(asked));
    }
}

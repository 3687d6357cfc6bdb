//! How long an event takes, printed; run by hand in release: `cargo test --release decode::tests::speed -- --ignored --nocapture`.

use std::time::Instant;

use super::{decode, decoder, fixture, scenario_shapes};
use crate::{decode::DecodeSettings, record::Record};

#[test]
#[ignore = "a measurement, for release builds"]
fn an_event_takes_less_than_three_microseconds() {
    for (name, topic) in [("on", "on.inv.big"), ("off", "off.inv.big"), ("frew", "frew.inv.big")] {
        let records: Vec<Record> = fixture(&format!("debezium-3.6.1/{name}.jsonl"))
            .into_iter()
            .filter(|(own, _, record)| own == topic && record.value.is_some())
            .map(|(.., record)| record)
            .collect();
        let mut decoder = decoder(DecodeSettings::default(), topic, &scenario_shapes());
        let rounds = 20_000;
        let bytes: usize = records.iter().map(Record::bytes).sum::<usize>() / records.len();

        let best = (0..5)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..rounds {
                    for record in &records {
                        std::hint::black_box(decode(&mut decoder, record));
                    }
                }
                start.elapsed().as_secs_f64() * 1e6 / (rounds * records.len()) as f64
            })
            .fold(f64::INFINITY, f64::min);

        #[allow(clippy::print_stderr)]
        {
            eprintln!("{name}: {best:.2} microseconds an event of {bytes} bytes");
        }
        assert!(best < 3.0, "{name}: {best} microseconds an event");
    }
}

//! A registry that remembers its declarations, so that the documentation can be made of them.

use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, TextEncoder,
    core::Collector, proto::MetricType,
};

/// A metric as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels.
    pub labels: Vec<&'static str>,
    /// What it counts.
    pub help: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    registry: prometheus::Registry,
    declared: Vec<Declared>,
}

/// Names and labels are constants, so that a declaration fails in every test or in none.
const VALID: &str = "metrics are declared with valid and distinct names";

impl Registry {
    pub(super) fn counters(
        &mut self,
        name: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> IntCounterVec {
        let counters = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID);
        self.declare(name, "counter", labels, help, counters)
    }

    pub(super) fn gauges(&mut self, name: &'static str, labels: &[&'static str], help: &'static str) -> IntGaugeVec {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID);
        self.declare(name, "gauge", labels, help, gauges)
    }

    pub(super) fn float_gauges(&mut self, name: &'static str, labels: &[&'static str], help: &'static str) -> GaugeVec {
        let gauges = GaugeVec::new(Opts::new(name, help), labels).expect(VALID);
        self.declare(name, "gauge", labels, help, gauges)
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> IntGauge {
        let gauge = IntGauge::new(name, help).expect(VALID);
        self.declare(name, "gauge", &[], help, gauge)
    }

    pub(super) fn histograms(
        &mut self,
        name: &'static str,
        labels: &[&'static str],
        buckets: &[f64],
        help: &'static str,
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histograms = HistogramVec::new(options, labels).expect(VALID);
        self.declare(name, "histogram", labels, help, histograms)
    }

    fn declare<C: Collector + Clone + 'static>(
        &mut self,
        name: &'static str,
        kind: &'static str,
        labels: &[&'static str],
        help: &'static str,
        collector: C,
    ) -> C {
        self.registry.register(Box::new(collector.clone())).expect(VALID);
        self.declared.push(Declared { name, kind, labels: labels.to_vec(), help });
        collector
    }

    pub(super) fn declared(&self) -> &[Declared] {
        &self.declared
    }

    pub(super) fn total(&self, name: &str) -> u64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let counters = family.filter(|family| family.get_field_type() == MetricType::COUNTER);
        counters
            .map_or(0, |family| family.get_metric().iter().map(|metric| metric.get_counter().get_value() as u64).sum())
    }

    pub(super) fn render(&self) -> String {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out).expect("writing to memory does not fail");
        String::from_utf8(out).expect("the text format is UTF-8")
    }
}

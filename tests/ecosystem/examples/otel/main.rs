//! The engine's figures as instruments of OpenTelemetry, read when its reader asks.
//!
//! ```text
//! cargo run --example otel
//! ```
//!
//! A program of yours has an exporter of its own, such as that of `opentelemetry-otlp`, in place
//! of the one below, which prints.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program has locks and a clock of its own"
)]

mod totals;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{SdkMeterProvider, Temporality};
use totals::Totals;
use tower_sentinel::observe::{Family, FamilyKind, Metrics, Sample};
use tower_sentinel::{BoxError, Call, CircuitBreakerRule, FlowRule, Rules, Sentinel};

fn main() -> Result<(), BoxError> {
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 3))
        .with(CircuitBreakerRule::error_ratio("/search", 0.5));
    let sentinel = Sentinel::new(rules);
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(Print)
        .build();
    observe(&provider.meter("tower-sentinel"), &Metrics::new(&sentinel));

    for _ in 0..5 {
        drop(sentinel.try_enter(Call::new("/search")));
    }
    // A program that goes on need not do this: the reader asks once a minute.
    provider.force_flush()?;
    provider.shutdown()?;
    Ok(())
}

/// Makes an instrument of each family. They live as long as the provider of `meter`.
fn observe(meter: &Meter, metrics: &Metrics) {
    let figures = Figures::new(metrics);
    for family in metrics.families() {
        let (name, unit) = (name(&family), unit(&family));
        let read = figures.clone();
        let own = family.name();
        match family.kind() {
            FamilyKind::Counter => {
                let counter = meter.u64_observable_counter(name).with_unit(unit);
                let counter = counter.with_description(family.help());
                let _counter = counter
                    .with_callback(move |observer| {
                        read.each(own, |sample| {
                            let [count, _] = read.total(own, sample);
                            observer.observe(count as u64, &attributes(sample));
                        });
                    })
                    .build();
            }
            // The ranges stay behind: there is no observable histogram.
            FamilyKind::Histogram | FamilyKind::Summary => {
                let sum = meter.f64_observable_counter(format!("{name}.sum"));
                let sum = sum.with_unit(unit).with_description(family.help());
                let sums = read.clone();
                let _sum = sum
                    .with_callback(move |observer| {
                        sums.each(own, |sample| {
                            let [_, sum] = sums.total(own, sample);
                            observer.observe(sum, &attributes(sample));
                        });
                    })
                    .build();
                let count = meter.u64_observable_counter(format!("{name}.count"));
                let count = count.with_unit("{call}").with_description(family.help());
                let _count = count
                    .with_callback(move |observer| {
                        read.each(own, |sample| {
                            let [count, _] = read.total(own, sample);
                            observer.observe(count as u64, &attributes(sample));
                        });
                    })
                    .build();
            }
            _ => {
                let gauge = meter.f64_observable_gauge(name).with_unit(unit);
                let gauge = gauge.with_description(family.help());
                let _gauge = gauge
                    .with_callback(move |observer| {
                        read.each(own, |sample| {
                            observer.observe(sample.value().as_f64(), &attributes(sample));
                        });
                    })
                    .build();
            }
        }
    }
}

/// `sentinel.call.duration` for `sentinel_call_duration_seconds`.
fn name(family: &Family) -> String {
    let unit = family.unit().map(|unit| format!("_{unit}"));
    let name = family.name();
    let name = unit
        .and_then(|unit| name.strip_suffix(&*unit))
        .unwrap_or(name);
    name.replace('_', ".")
}

/// The unit in the words of OpenTelemetry.
fn unit(family: &Family) -> &'static str {
    match family.unit() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "1",
    }
}

/// The labels, each as an attribute of its own such as `sentinel.resource`.
fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.labels();
    labels
        .map(|(name, text)| KeyValue::new(format!("sentinel.{name}"), text.to_owned()))
        .collect()
}

type Moment = (Instant, Arc<[Family]>);

/// The figures of one moment for all instruments, which are asked one after the other.
#[derive(Clone)]
struct Figures {
    metrics: Metrics,
    last: Arc<Mutex<Option<Moment>>>,
    totals: Arc<Mutex<Totals>>,
}

impl Figures {
    fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            last: Arc::default(),
            totals: Arc::default(),
        }
    }

    /// The number and the sum of a series, which never fall.
    fn total(&self, family: &str, sample: &Sample) -> [f64; 2] {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.of(family, sample)
    }

    /// Calls `f` with each sample of a family.
    fn each(&self, name: &str, f: impl FnMut(&Sample)) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let families = match &*last {
            Some((at, families)) if now - *at < Duration::from_millis(250) => families.clone(),
            _ => {
                let families: Arc<[Family]> = self.metrics.families().into();
                let totals = self.totals.lock();
                let mut totals = totals.unwrap_or_else(PoisonError::into_inner);
                totals.add(&families);
                *last = Some((now, families.clone()));
                families
            }
        };
        drop(last);
        let family = families.iter().find(|family| family.name() == name);
        family.into_iter().flat_map(Family::samples).for_each(f);
    }
}

/// Prints what it is told.
struct Print;

impl PushMetricExporter for Print {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let metrics = metrics.scope_metrics().flat_map(ScopeMetrics::metrics);
        for metric in metrics {
            let (name, unit) = (metric.name(), metric.unit());
            let print = |attributes: Vec<String>, value: String| {
                println!("{name} {{{}}} {value} {unit}", attributes.join(", "));
            };
            let text = |pair: &KeyValue| format!("{}={}", pair.key, pair.value);
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => sum.data_points().for_each(|it| {
                    print(it.attributes().map(text).collect(), it.value().to_string());
                }),
                AggregatedMetrics::F64(MetricData::Sum(sum)) => sum.data_points().for_each(|it| {
                    print(it.attributes().map(text).collect(), it.value().to_string());
                }),
                AggregatedMetrics::F64(MetricData::Gauge(it)) => it.data_points().for_each(|it| {
                    print(it.attributes().map(text).collect(), it.value().to_string());
                }),
                other => println!("{name}: {other:?}"),
            }
        }
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

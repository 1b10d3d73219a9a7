//! Pages without items: the book for users, its index by question, and the guarantees.
//!
//! A page links to another page by a label, `[text][callers#plans]`. At the foot of the page the
//! label leads to the file of the other page, for readers of the files. In the documentation, the
//! definitions below come before each page, and lead to modules: if a label is defined twice, the
//! first definition holds. `tests/house/guarantees.rs` compares them.

/// The definitions of all labels.
macro_rules! labels {
    () => {
        "\
[addresses]: crate::guide::addresses
[addresses#behind-a-proxy]: crate::guide::addresses#behind-a-proxy
[addresses#per-ip-address]: crate::guide::addresses#per-ip-address
[breakers]: crate::guide::breakers
[budgets]: crate::guide::budgets
[budgets#a-model-providers-limits]: crate::guide::budgets#a-model-providers-limits
[budgets#only-logins-that-fail]: crate::guide::budgets#only-logins-that-fail
[callers]: crate::guide::callers
[callers#by-the-calendar]: crate::guide::callers#by-the-calendar
[callers#partners]: crate::guide::callers#partners
[callers#per-user-or-api-key]: crate::guide::callers#per-user-or-api-key
[callers#plans]: crate::guide::callers#plans
[callers#what-is-left-and-how-to-reset-it]: crate::guide::callers#what-is-left-and-how-to-reset-it
[callers#when-a-caller-needs-another-rule]: crate::guide::callers#when-a-caller-needs-another-rule
[concurrency]: crate::guide::concurrency
[concurrency#concurrency-limits]: crate::guide::concurrency#concurrency-limits
[concurrency#streams-and-websockets]: crate::guide::concurrency#streams-and-websockets
[costs]: crate::guide::costs
[criticality]: crate::guide::criticality
[criticality#from-service-to-service]: crate::guide::criticality#from-service-to-service
[dashboard]: crate::guide::dashboard
[engine-in-detail]: crate::guide::engine_in_detail
[engine-in-detail#budgets]: crate::guide::engine_in_detail#budgets
[engine-in-detail#changes-while-running]: crate::guide::engine_in_detail#changes-while-running
[engine-in-detail#clocks]: crate::guide::engine_in_detail#clocks
[engine-in-detail#cost]: crate::guide::engine_in_detail#cost
[engine-in-detail#documents-of-sentinel]: crate::guide::engine_in_detail#documents-of-sentinel
[engine-in-detail#findings]: crate::guide::engine_in_detail#findings
[engine-in-detail#keys]: crate::guide::engine_in_detail#keys
[engine-in-detail#memory]: crate::guide::engine_in_detail#memory
[engine-in-detail#metrics]: crate::guide::engine_in_detail#metrics
[engine-in-detail#names]: crate::guide::engine_in_detail#names
[engine-in-detail#refusals]: crate::guide::engine_in_detail#refusals
[engine-in-detail#reload]: crate::guide::engine_in_detail#reload
[engine-in-detail#rule-files]: crate::guide::engine_in_detail#rule-files
[engine-in-detail#rules-without-effect]: crate::guide::engine_in_detail#rules-without-effect
[engine-in-detail#secrets]: crate::guide::engine_in_detail#secrets
[engine-in-detail#sentinels-dashboard]: crate::guide::engine_in_detail#sentinels-dashboard
[engine-in-detail#shadow-mode]: crate::guide::engine_in_detail#shadow-mode
[engine-in-detail#the-live-page]: crate::guide::engine_in_detail#the-live-page
[first-limit]: crate::guide::first_limit
[first-limit#a-route]: crate::guide::first_limit#a-route
[first-limit#axum-07]: crate::guide::first_limit#axum-07
[first-limit#by-method]: crate::guide::first_limit#by-method
[first-limit#every-route]: crate::guide::first_limit#every-route
[first-limit#health-checks]: crate::guide::first_limit#health-checks
[first-limit#routes-that-share-a-limit]: crate::guide::first_limit#routes-that-share-a-limit
[first-limit#unknown-paths]: crate::guide::first_limit#unknown-paths
[floods]: crate::guide::floods
[floods#logins]: crate::guide::floods#logins
[floods#made-up-keys]: crate::guide::floods#made-up-keys
[grpc]: crate::guide::grpc
[guarantees]: crate::guide::guarantees
[guarantees#limitations]: crate::guide::guarantees#limitations
[layers]: crate::guide::layers
[layers#around-the-router]: crate::guide::layers#around-the-router
[layers#graceful-shutdown]: crate::guide::layers#graceful-shutdown
[layers#order-of-layers]: crate::guide::layers#order-of-layers
[limits-in-detail]: crate::guide::limits_in_detail
[limits-in-detail#accounting]: crate::guide::limits_in_detail#accounting
[limits-in-detail#adaptive-limits]: crate::guide::limits_in_detail#adaptive-limits
[limits-in-detail#circuit-breakers]: crate::guide::limits_in_detail#circuit-breakers
[limits-in-detail#concurrency]: crate::guide::limits_in_detail#concurrency
[limits-in-detail#keyed-rules]: crate::guide::limits_in_detail#keyed-rules
[limits-in-detail#loans]: crate::guide::limits_in_detail#loans
[limits-in-detail#refunds]: crate::guide::limits_in_detail#refunds
[limits-in-detail#shared-limits]: crate::guide::limits_in_detail#shared-limits
[limits-in-detail#system-rules]: crate::guide::limits_in_detail#system-rules
[limits-in-detail#throttling]: crate::guide::limits_in_detail#throttling
[limits-in-detail#waiting]: crate::guide::limits_in_detail#waiting
[limits-in-detail#warm-up]: crate::guide::limits_in_detail#warm-up
[limits-in-detail#windows]: crate::guide::limits_in_detail#windows
[live-page]: crate::guide::live_page
[metrics]: crate::guide::metrics
[metrics#alerts]: crate::guide::metrics#alerts
[metrics#log-lines]: crate::guide::metrics#log-lines
[metrics#opentelemetry]: crate::guide::metrics#opentelemetry
[metrics#scraping]: crate::guide::metrics#scraping
[migration]: crate::guide::migration
[other-code]: crate::guide::other_code
[other-code#a-hyper-server]: crate::guide::other_code#a-hyper-server
[other-code#any-other-code]: crate::guide::other_code#any-other-code
[other-code#in-a-library]: crate::guide::other_code#in-a-library
[outbound]: crate::guide::outbound
[outbound#a-provider-that-says-what-is-left]: crate::guide::outbound#a-provider-that-says-what-is-left
[outbound#fallbacks]: crate::guide::outbound#fallbacks
[outbound#hyper]: crate::guide::outbound#hyper
[outbound#quotas-of-an-api-that-you-call]: crate::guide::outbound#quotas-of-an-api-that-you-call
[outbound#reqwest]: crate::guide::outbound#reqwest
[outbound#reqwest-middleware]: crate::guide::outbound#reqwest-middleware
[outbound#retries]: crate::guide::outbound#retries
[overload]: crate::guide::overload
[overload#adaptive-concurrency-limits]: crate::guide::overload#adaptive-concurrency-limits
[overload#memory-pressure]: crate::guide::overload#memory-pressure
[overload#overload-protection]: crate::guide::overload#overload-protection
[overload#priorities]: crate::guide::overload#priorities
[rates]: crate::guide::rates
[rates#bursts-and-even-spacing]: crate::guide::rates#bursts-and-even-spacing
[rates#reads-that-yield-to-writes]: crate::guide::rates#reads-that-yield-to-writes
[rates#warm-up]: crate::guide::rates#warm-up
[rates#weights]: crate::guide::rates#weights
[refusals]: crate::guide::refusals
[refusals#custom-refusals]: crate::guide::refusals#custom-refusals
[refusals#what-retry-after-means]: crate::guide::refusals#what-retry-after-means
[refusals#what-the-default-sends]: crate::guide::refusals#what-the-default-sends
[replicas]: crate::guide::replicas
[replicas#days-and-months]: crate::guide::replicas#days-and-months
[replicas#one-budget]: crate::guide::replicas#one-budget
[replicas#one-quota-back]: crate::guide::replicas#one-quota-back
[rules]: crate::guide::rules
[rules#rules-from-a-file]: crate::guide::rules#rules-from-a-file
[rules#rules-from-code]: crate::guide::rules#rules-from-code
[sentinel]: crate::guide::sentinel
[sentinel#sentinels-documents]: crate::guide::sentinel#sentinels-documents
[testing]: crate::guide::testing
[testing#rules-without-effect]: crate::guide::testing#rules-without-effect
[testing#shadow-mode]: crate::guide::testing#shadow-mode
[testing#testing]: crate::guide::testing#testing
[words]: crate::guide::words
"
    };
}

macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = labels!()]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $name {}
    };
}

page!(index, "README.md");
page!(first_limit, "first-limit.md");
page!(refusals, "refusals.md");
page!(addresses, "addresses.md");
page!(callers, "callers.md");
page!(floods, "floods.md");
page!(rates, "rates.md");
page!(budgets, "budgets.md");
page!(concurrency, "concurrency.md");
page!(overload, "overload.md");
page!(criticality, "criticality.md");
page!(breakers, "breakers.md");
// Its programs use clients of other crates: `tests/ecosystem` runs them.
#[cfg(not(doctest))]
page!(outbound, "outbound.md");
page!(grpc, "grpc.md");
page!(layers, "layers.md");
page!(other_code, "other-code.md");
page!(rules, "rules.md");
page!(replicas, "replicas.md");
page!(testing, "testing.md");
page!(live_page, "live-page.md");
page!(metrics, "metrics.md");
page!(sentinel, "sentinel.md");
page!(dashboard, "dashboard.md");
page!(migration, "migration.md");
page!(words, "words.md");
page!(costs, "costs.md");
page!(guarantees, "guarantees.md");
page!(limits_in_detail, "limits-in-detail.md");
page!(engine_in_detail, "engine-in-detail.md");

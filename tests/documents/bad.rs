//! Bad documents: where it is, what it is, and what would be allowed.
//!
//! A row is a bad rule, its path, the value there, and what the message says is
//! allowed.

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind};

use super::{lines, sentinel};

/// Flow rules of our own.
const FLOW: &str = r#"
{"kind": "flow", "resource": 7, "threshold": 1} | .resource | 7 | a text
{"kind": "flow", "resource": " ", "threshold": 1} | .resource | " " | not blank
{"kind": "flow", "resource": null, "threshold": 1} | .resource | null | a text
{"kind": "flow", "resource": "/a/{", "threshold": 1} | .resource | "/a/{" | a template such as
{"kind": "flow", "resource": "/users/:id", "threshold": 1} | .resource | "/users/:id" | written "/users/{id}"
{"kind": "flow", "resource": "GET /files/*", "threshold": 1} | .resource | "GET /files/*" | written "/files/{*rest}"
{"kind": "flow", "resource": "a", "when": "/files/*path", "threshold": 1} | .when | "/files/*path" | written "/files/{*path}"
{"kind": "isolation", "resource": "/users/<id>", "max": 1} | .resource | "/users/<id>" | written "/users/{id}"
{"kind": "flow", "resource": "a", "threshold": 1, "cost": 7} | .cost | 7 | a text
{"kind": "flow", "resource": "a", "threshold": 1, "cost": "two words"} | .cost | "two words" | 1 to 64 visible ASCII characters
{"kind": "flow", "resource": "a", "threshold": 1, "cost": "requests"} | .cost | "requests" | counts requests
{"kind": "flow", "resource": "a", "threshold": 1, "cost": "rows", "by_origin": true} | .cost | "rows" | left out with `by_origin`
{"kind": "flow", "resource": "a", "threshold": 1, "cost": "rows", "throttle": "1s"} | .throttle | "1s" | left out with `cost`
{"kind": "flow", "resource": "a", "threshold": 2000000000, "cost": "rows"} | .threshold | 2000000000 | between 0 and 1073741824
{"kind": "flow", "resource": "a", "threshold": 0.5} | .threshold | 0.5 | 0 or at least 1, as whole calls are counted: write 1 per 2s, or let calls queue with `throttle`
{"kind": "keyed", "resource": "a", "threshold": 1, "cost": ""} | .cost | "" | 1 to 64 visible ASCII characters
{"kind": "keyed", "resource": "a", "concurrency": 1, "cost": "rows"} | .cost | "rows" | absent beside `concurrency`
{"kind": "keyed", "resource": "a", "threshold": 1, "cost": "rows", "throttle": "1s"} | .throttle | "1s" | left out with `cost`
{"kind": "keyed", "resource": "a", "threshold": 0.5, "interval": "1m"} | .threshold | 0.5 | 0 or at least 1, as whole calls are counted: write 1 per 120s, or add a `burst` of 1
{"kind": "keyed", "resource": "a", "threshold": 1, "window": true, "tier": [{"name": "x", "threshold": 0.5}]} | .tier | 0.5 | write 1 per 2s, or leave out `window`
{"kind": "keyed", "resource": "a", "threshold": 5, "capacity": 4} | .capacity | 4 | between the threshold, 5, and 2147483647
{"kind": "keyed", "resource": "a", "threshold": 5, "capacity": 7, "window": true} | .capacity | 7 | left out with `window`
{"kind": "keyed", "resource": "a", "threshold": 5, "burst": 2, "capacity": 7} | .capacity | 7 | absent beside `burst`
{"kind": "keyed", "resource": "a", "concurrency": 5, "capacity": 7} | .capacity | 7 | absent beside `concurrency`
{"kind": "keyed", "resource": "a", "threshold": 5, "interval": "999ns"} | .interval | "999ns" | between 1 µs and 366 days
{"kind": "system", "qps": 0.5} | .qps | 0.5 | write 1 per 2s, or give each resource a `FlowRule` with `throttle`
{"kind": "flow", "resource": "a", "threshold": 1, "missing": "refuse"} | .missing | "refuse" | left out without `by_origin`
{"kind": "flow", "resource": "a", "threshold": 1, "missing": "share"} | .missing | "share" | left out without `by_origin`
{"kind": "flow", "resource": "a", "threshold": 1, "for_origin": "x", "missing": "skip"} | .missing | "skip" | left out without `by_origin`
{"kind": "flow", "resource": "a", "threshold": "many"} | .threshold | "many" | a number
{"kind": "flow", "resource": "a", "threshold": -1} | .threshold | -1 | between 0 and 2147483647
{"kind": "flow", "resource": "a", "threshold": 1e300} | .threshold | 1e300 | between 0 and
{"kind": "flow", "resource": "a", "threshold": 1, "memory": "0.7", "memory_threshold": 1} | .memory | "0.7" | a range such as "0.7..0.9"
{"kind": "flow", "resource": "a", "threshold": 1, "memory": "0.9..0.7", "memory_threshold": 1} | .memory | "0.9..0.7" | a rising range
{"kind": "flow", "resource": "a", "threshold": 1, "memory": "0.7..0.9", "memory_threshold": 2} | .memory_threshold | 2 | between 0 and the whole threshold
{"kind": "flow", "resource": "a", "threshold": 1e-300, "throttle": 1, "memory": "0.7..0.9", "memory_threshold": 2} | .memory_threshold | 2 | the whole threshold, which is 1e-300
{"kind": "flow", "resource": "a", "threshold": 1, "memory_bytes": "0.7", "memory_threshold": 1} | .memory_bytes | "0.7" | a range such as "1048576..2097152"
{"kind": "flow", "resource": "a", "threshold": 1, "memory_bytes": "2..1", "memory_threshold": 1} | .memory_bytes | "2..1" | a rising range above 0
{"kind": "flow", "resource": "a", "threshold": 1, "memory": "0.7..0.9"} | .memory_threshold | missing | a number
{"kind": "flow", "resource": "a", "threshold": 1, "memory_threshold": 1} | .memory_threshold | 1 | absent without `memory`
{"kind": "flow", "resource": "a", "threshold": 1, "interval": "5x"} | .interval | "5x" | a time such as "500ms"
{"kind": "flow", "resource": "a", "threshold": 1, "interval": "60"} | .interval | "60" | a time such as
{"kind": "flow", "resource": "a", "threshold": 1, "interval": true} | .interval | true | a time such as
{"kind": "flow", "resource": "a", "threshold": 1, "interval": 0} | .interval | 0 | between 1 ms and 366 days
{"kind": "flow", "resource": "a", "threshold": 1, "interval": "400d"} | .interval | "400d" | between 1 ms and 366 days
{"kind": "flow", "resource": "a", "threshold": 1, "buckets": 7} | .buckets | 7 | divides the interval of 1s
{"kind": "flow", "resource": "a", "threshold": 1, "buckets": 0} | .buckets | 0 | between 1 and 1024
{"kind": "flow", "resource": "a", "threshold": 1, "buckets": 2.0} | .buckets | 2.0 | a whole number between 0 and
{"kind": "flow", "resource": "a", "threshold": 1, "buckets": -2} | .buckets | -2 | a whole number between 0 and
{"kind": "flow", "resource": "a", "threshold": 1, "buckets": 1099511627776} | .buckets | 1099511627776 | 4294967295
{"kind": "flow", "resource": "a", "threshold": 1, "strict": "yes"} | .strict | "yes" | true or false
{"kind": "flow", "resource": "a", "threshold": 1, "strict": 1} | .strict | 1 | true or false
{"kind": "flow", "resource": "a", "threshold": 1, "for_origin": ""} | .for_origin | "" | not blank
{"kind": "flow", "resource": "a", "threshold": 1, "when": "\n"} | .when | "\n" | not blank
{"kind": "flow", "resource": "a", "threshold": 1, "in_context": []} | .in_context | a list of 0 | a text
{"kind": "flow", "resource": "a", "threshold": 1, "in_context": " "} | .in_context | " " | not blank
{"kind": "flow", "resource": "a", "threshold": 1, "missing": "ignore"} | .missing | "ignore" | "share", "skip"
{"kind": "flow", "resource": "a", "threshold": 1, "throttle": "2d"} | .throttle | "2d" | at most one day
{"kind": "flow", "resource": "a", "threshold": 1, "warm_up": "0s"} | .warm_up | "0s" | above 0 and at most one day
{"kind": "flow", "resource": "a", "threshold": 1, "cold_factor": 3} | .cold_factor | 3 | only with a warm-up
{"kind": "flow", "resource": "a", "threshold": 1, "max_occupy_ratio": 0} | .max_occupy_ratio | 0 | above 0 and at most 1
{"kind": "flow", "resource": "a", "threshold": 1, "id": ""} | .id | "" | not blank
{"kind": "flwo", "resource": "a", "threshold": 1} | .kind | "flwo" | one of "flow", "isolation"
{"resource": "a"} | .kind | missing | "keyed"
"flow" |  | "flow" | a table
{"kind": "flow", "threshold": 1} | .resource | missing | a text
{"kind": "flow", "resource": "a"} | .threshold | missing | a number
"#;

/// Settings that exclude each other, or need each other.
const EXCLUDING: &str = r#"
{"kind": "flow", "resource": "a", "threshold": 1, "by_origin": true, "for_origin": "x"} | .for_origin | "x" | absent beside `by_origin`
{"kind": "flow", "resource": "a", "threshold": 1, "in_context": "y", "when": "x"} | .in_context | "y" | absent beside `when`
{"kind": "flow", "resource": "a", "threshold": 1, "by_origin": true, "when": "x"} | .when | "x" | without an origin
{"kind": "flow", "resource": "a", "threshold": 1, "strict": true, "throttle": 1} | .strict | true | false for a rule with `throttle`
{"kind": "flow", "resource": "a", "threshold": 1, "memory": "0.7..0.9", "memory_bytes": "1..2", "memory_threshold": 1} | .memory_bytes | "1..2" | absent beside `memory`
{"kind": "circuit-breaker", "resource": "a"} |  | without a condition | `slow_ratio`, `error_ratio`, `error_count`, `consecutive_errors` and `pushback`
{"kind": "circuit-breaker", "resource": "a", "pushback": false} |  | without a condition | `consecutive_errors` and `pushback`
{"kind": "circuit-breaker", "resource": "a", "pushback": true, "error_ratio": 0.5} | .pushback | true | absent beside `error_ratio`
{"kind": "circuit-breaker", "resource": "a", "pushback": true, "open_for": "5s"} | .open_for | "5s" | absent beside `pushback`
{"kind": "circuit-breaker", "resource": "a", "pushback": true, "exceeds": true} | .exceeds | true | absent beside `pushback`
{"kind": "circuit-breaker", "resource": "a", "error_count": 1, "error_ratio": 0.5} | .error_count | 1 | absent beside `error_ratio`
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 1, "error_count": 5} | .consecutive_errors | 1 | absent beside `error_count`
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 3, "interval": "10s"} | .interval | "10s" | absent beside `consecutive_errors`
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 3, "min_calls": 5} | .min_calls | 5 | absent beside `consecutive_errors`
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 3, "buckets": 2} | .buckets | 2 | absent beside `consecutive_errors`
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 3, "last_calls": 9} | .last_calls | 9 | absent beside `consecutive_errors`
{"kind": "circuit-breaker", "resource": "a", "error_count": 3, "last_calls": 9, "interval": "1s"} | .interval | "1s" | absent beside `last_calls`
{"kind": "circuit-breaker", "resource": "a", "error_count": 3, "last_calls": 9, "buckets": 5} | .buckets | 5 | absent beside `last_calls`
{"kind": "circuit-breaker", "resource": "a", "slow_ratio": 0.5} | .max_rt | missing | a time
{"kind": "circuit-breaker", "resource": "a", "error_ratio": 0.5, "max_rt": "1s"} | .max_rt | "1s" | absent without `slow_ratio`
{"kind": "authority", "resource": "a"} |  | without a list | `allow` or `deny`
{"kind": "authority", "resource": "a", "allow": [], "deny": []} | .deny | a list of 0 | absent beside `allow`
{"kind": "system"} |  | without a limit (none) | at least one of load, cpu
{"kind": "keyed", "resource": "a", "threshold": 1, "queue": "2s"} | .queue | "2s" | left out without `concurrency`
{"kind": "keyed", "resource": "a", "threshold": 1, "throttle": "2s", "max_waiting": 3} | .max_waiting | 3 | left out without `concurrency`
{"kind": "keyed", "resource": "a", "concurrency": 1, "queue": "25h"} | .queue | "25h" | at most 1 day
{"kind": "keyed", "resource": "a", "threshold": 1, "concurrency": 1} | .threshold | 1 | absent beside `concurrency`
{"kind": "keyed", "resource": "a", "threshold": 1, "param": "x", "param_at": 1} | .param_at | 1 | absent beside `param`
{"kind": "keyed", "resource": "a", "threshold": 1, "throttle": 1, "window": true} | .throttle | 1 | absent beside `window`
"#;

/// Rules of the other kinds.
const OTHERS: &str = r#"
{"kind": "isolation", "resource": "a", "max": -1} | .max | -1 | between 0 and 4294967295
{"kind": "isolation", "resource": "a", "max": 3000000000} | .max | 3000000000 | between 0 and 2147483647
{"kind": "isolation", "resource": "a"} | .max | missing | a whole number
{"kind": "isolation", "resource": "a", "max": 1, "for_origin": "x", "when": "b"} | .when | "b" | without an origin
{"kind": "isolation", "resource": "a", "max": 1, "for_origin": "x", "queue": "1s"} | .queue | "1s" | left out with `for_origin` and `when`
{"kind": "adaptive", "resource": "a", "floor": 0} | .floor | 0 | between 1 and
{"kind": "adaptive", "resource": "a", "start": 201} | .start | 201 | the ceiling, 200
{"kind": "circuit-breaker", "resource": "a", "error_ratio": 1.5} | .error_ratio | 1.5 | above 0 and at most 1
{"kind": "circuit-breaker", "resource": "a", "error_ratio": "10%"} | .error_ratio | "10%" | a number
{"kind": "circuit-breaker", "resource": "a", "error_count": 0} | .error_count | 0 | between 1 and 1000000
{"kind": "circuit-breaker", "resource": "a", "error_count": 1, "open_up_to": "5s"} | .open_up_to | "5s" | between the open_for of 10s and 366 days
{"kind": "circuit-breaker", "resource": "a", "consecutive_errors": 0} | .consecutive_errors | 0 | between 1 and 1000000
{"kind": "circuit-breaker", "resource": "a", "error_ratio": 1, "last_calls": 41} | .last_calls | 41 | between 1 and 40
{"kind": "circuit-breaker", "resource": "a", "error_count": 0.5} | .error_count | 0.5 | a whole number
{"kind": "circuit-breaker", "resource": "a", "max_rt": "1s", "slow_ratio": 2} | .slow_ratio | 2 | above 0 and at most 1
{"kind": "authority", "resource": "a", "allow": ["x", " "]} | .allow | "" | not blank
{"kind": "authority", "resource": "a", "deny": ["x", " "]} | .deny | "" | not blank
{"kind": "authority", "resource": "a", "deny": ["x", 5]} | .deny | a list of 2 | a list of texts
{"kind": "system", "cpu": 85} | .cpu | 85 | above 0 and at most 1
{"kind": "system", "rt": 0} | .rt | 0 | above 0
{"kind": "system", "capacity": "Robust", "cpu": 0.5} | .capacity | "Robust" | one of "robust", "sentinel"
{"kind": "keyed", "resource": "a", "threshold": 1, "except": [{"threshold": 1, "value": "x"}, {"threshold": 1, "value": 7}]} | .except[1].value | 7 | a text
{"kind": "keyed", "resource": "a", "threshold": 1, "tier": [{"name": "pro", "threshold": 1, "treshold": 1}]} | .tier[0].treshold | 1 | `threshold`
{"kind": "keyed", "resource": "a", "threshold": 1, "tier": {"pro": 1}} | .tier | a table | a list of tables
{"kind": "keyed", "resource": "a", "threshold": 1, "except": [{"threshold": 1, "value": "x"}, {"threshold": -1, "value": "y"}]} | .except | -1 for "y" | between 0 and 2147483647
{"kind": "keyed", "resource": "a", "threshold": 1, "tier": [{"name": "pro", "threshold": 1e300}]} | .tier | 1e300 for "pro" | between 0 and 2147483647
{"kind": "keyed", "resource": "a", "threshold": 1, "interval": "10ms", "window": true, "except": [{"threshold": 2e6, "value": "x"}]} | .except | 2000000 for "x" | between 0 and 1048575
{"kind": "keyed", "resource": "a"} | .threshold | missing | a number
{"kind": "keyed", "resource": "a", "threshold": 1, "max_keys": 0} | .max_keys | 0 | between 1 and
{"kind": "keyed", "resource": "a", "concurrency": 5000000000} | .concurrency | 5000000000 | 4294967295
{"kind": "keyed", "resource": "a", "concurrency": 3000000000} | .concurrency | 3000000000 | between 0 and 2147483647
"#;

/// Unknown keys.
const UNKNOWN: &str = r#"
{"kind": "flow", "resource": "a", "threshold": 1, "treshold": 5} | .treshold | 5 | `threshold`
{"kind": "flow", "resource": "a", "threshold": 1, "Interval": 5} | .Interval | 5 | `interval`
{"kind": "flow", "resource": "a", "threshold": 1, "maxWaiting": 5} | .maxWaiting | 5 | `max_waiting`
{"kind": "flow", "resource": "a", "threshold": 1, "warmup": 5} | .warmup | 5 | `warm_up`
{"kind": "flow", "resource": "a", "threshold": 1, "count": 5} | .count | an unknown key | `resource`, `threshold`
{"kind": "flow", "resource": "a", "threshold": 1, "a b": 5} | ["a b"] | an unknown key | one of the known keys
{"kind": "flow", "resource": "a", "threshold": 1, "": 5} | [""] | an unknown key | one of the known keys
"#;

/// `FlowRule`.
const JAVA_FLOW: &str = r#"
{"resource": "", "count": 1} | .resource | "" | not blank
{"count": 1} | .resource | missing | a text
{"resource": "*", "count": 1} | .resource | "*" | a name: here `*` is every resource
{"resource": "*", "count": 1, "grade": 0} | .resource | "*" | a name: here `*` is every resource
{"resource": "a", "count": 1, "grade": 2} | .grade | 2 | between 0 and 1
{"resource": "a", "count": 1, "grade": "1"} | .grade | "1" | a whole number
{"resource": "a", "count": -0.5} | .count | -0.5 | between 0 and 2147483647
{"resource": "a", "count": [1]} | .count | a list of 1 | a number
{"resource": "a", "count": 1, "strategy": 3} | .strategy | 3 | between 0 and 2
{"resource": "a", "count": 1, "strategy": 1} | .refResource | missing | a name for `strategy` 1
{"resource": "a", "count": 1, "refResource": " ", "strategy": 2} | .refResource | " " | a name for `strategy` 1 and 2
{"resource": "a", "count": 1, "limitApp": "x", "refResource": "b", "strategy": 1} | .limitApp | "x" | "default" for `strategy` 1 and 2
{"resource": "a", "count": 1, "limitApp": "x", "refResource": "b", "strategy": 2} | .limitApp | "x" | "default" for `strategy` 1 and 2
{"resource": "a", "controlBehavior": 1, "count": 1, "refResource": "b", "strategy": 1} | .controlBehavior | 1 | 0 for `strategy` 1
{"resource": "a", "controlBehavior": 2, "count": 1, "refResource": "b", "strategy": 1} | .controlBehavior | 2 | 0 for `strategy` 1
{"resource": "a", "controlBehavior": 3, "count": 1, "refResource": "b", "strategy": 1} | .controlBehavior | 3 | 0 for `strategy` 1
{"resource": "a", "count": 1, "refResource": "sentinel_default_context", "strategy": 2} | .refResource | "sentinel_default_context" | a context that calls name
{"resource": "a", "count": 1, "controlBehavior": -1} | .controlBehavior | -1 | between 0 and 2147483647
{"resource": "a", "count": 1, "controlBehavior": 1, "warmUpPeriodSec": 0} | .warmUpPeriodSec | 0 | at least 1
{"resource": "a", "count": 1, "controlBehavior": 2, "maxQueueingTimeMs": 0} | .maxQueueingTimeMs | 0 | at least 1
{"resource": "a", "count": 1, "controlBehavior": 2, "maxQueueingTimeMs": 90000000} | .maxQueueingTimeMs | 90000000 | at most one day
{"resource": "a", "count": 1, "warmUpPeriodSec": 5000000000} | .warmUpPeriodSec | 5000000000 | between -2147483648 and 2147483647
{"resource": "a", "count": 1, "regex": true} | .regex | true | false: a resource is named in full
{"resource": "a", "count": 1, "clusterMode": 1} | .clusterMode | 1 | true or false
{"resource": "a", "count": 1, "grade": 0, "limitApp": "shop", "strategy": 1, "refResource": "b"} | .limitApp | "shop" | "default" for `strategy` 1 and 2
{"resource": "a", "count": 1, "grade": 0, "strategy": 1} | .refResource | missing | a name for `strategy` 1 and 2
{"resource": "a", "count": 1, "grade": 0, "strategy": 1, "refResource": "*"} | .refResource | "*" | a name: only circuit breakers
{"resource": "a", "count": 1, "grade": 0, "strategy": 2, "refResource": "c"} | .strategy | 2 | 0 or 1 for `grade` 0
{"resource": "a", "count": -1, "grade": 0} | .count | -1 | between 0 and 2147483647
"#;

/// `DegradeRule`.
const JAVA_BREAKER: &str = r#"
{"resource": "a", "count": 1} | .timeWindow | missing | at least 1
{"resource": "good", "count": 1, "timeWindow": 0} | .timeWindow | 0 | between 1 and
{"resource": "good", "count": 1, "timeWindow": 40000000} | .timeWindow | 40000000 | 366 days
{"resource": "good", "count": 1, "grade": 3, "timeWindow": 1} | .grade | 3 | between 0 and 2
{"resource": "good", "count": -1, "timeWindow": 1} | .count | -1 | milliseconds between 0 and
{"resource": "good", "count": 40000000000, "timeWindow": 1} | .count | 40000000000 | milliseconds between 0 and
{"resource": "good", "count": 1, "slowRatioThreshold": 1.1, "timeWindow": 1} | .slowRatioThreshold | 1.1 | between 0 and 1
{"resource": "good", "count": 1, "minRequestAmount": 0, "timeWindow": 1} | .minRequestAmount | 0 | between 1 and
{"resource": "good", "count": 1, "statIntervalMs": -5, "timeWindow": 1} | .statIntervalMs | -5 | between 1 and
{"resource": "a", "count": 2.0, "grade": 1, "timeWindow": 1} | .count | 2.0 | between 0 and 1
{"resource": "a", "count": 2000000, "grade": 2, "timeWindow": 1} | .count | 2000000 | between 0 and 1000000
"#;

/// `SystemRule`.
const JAVA_SYSTEM: &str = r#"
{"qps": 3000000000.0} | .qps | 3000000000.0 | between 0 and 2147483647
{"avgRt": "slow"} | .avgRt | "slow" | a whole number
{"maxThread": 1.5} | .maxThread | 1.5 | a whole number
"#;

/// `ParamFlowRule`.
const JAVA_PARAM: &str = r#"
{"resource": "a", "count": 1} | .paramIdx | missing | the index
{"resource": "a", "count": 1, "durationInSec": 0, "paramIdx": 0} | .durationInSec | 0 | between 1 and
{"resource": "a", "count": -2, "paramIdx": 0} | .count | -2 | between 0 and
{"resource": "a", "count": 1, "paramFlowItemList": [3], "paramIdx": 0} | .paramFlowItemList[0] | 3 | a table
"#;

/// `flow.Rule`.
const GO_FLOW: &str = r#"
{"resource": "a", "threshold": -1} | .threshold | -1 | between 0 and
{"resource": "a", "threshold": 0, "tokenCalculateStrategy": 3} | .tokenCalculateStrategy | 3 | between 0 and 2
{"resource": "a", "threshold": "7", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 2} | .threshold | "7" | a number
{"resource": "a", "tokenCalculateStrategy": 2, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 2} | .lowMemUsageThreshold | missing | above 0
{"resource": "a", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 0, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 2} | .highMemUsageThreshold | 0 | above 0
{"resource": "a", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 0.0, "memHighWaterMarkBytes": 2} | .memLowWaterMarkBytes | 0.0 | above 0
{"resource": "a", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 1} | .memHighWaterMarkBytes | missing | above 0
{"resource": "a", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 2, "memHighWaterMarkBytes": 1} | .memHighWaterMarkBytes | 1 | a rising range above 0
{"resource": "a", "threshold": 0, "tokenCalculateStrategy": 2, "lowMemUsageThreshold": -9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 2} | .lowMemUsageThreshold | -9 | between 0 and
{"resource": "a", "threshold": 0, "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 10, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 2} | .highMemUsageThreshold | 10 | between 0 and the whole threshold
{"resource": "a", "threshold": 0, "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 9, "highMemUsageThreshold": 8, "memLowWaterMarkBytes": 1, "memHighWaterMarkBytes": 1e30} | .memHighWaterMarkBytes | 1e30 | a whole number between 0 and 9223372036854775807
{"resource": "a", "threshold": 1, "tokenCalculateStrategy": 1} | .warmUpPeriodSec | missing | at least 1
{"resource": "a", "threshold": 1, "controlBehavior": 2} | .controlBehavior | 2 | between 0 and 1
{"resource": "a", "threshold": 1, "relationStrategy": 1} | .refResource | missing | a name
{"resource": "a", "threshold": 1, "regex": true} | .regex | true | false
{"resource": "a", "threshold": 1, "tokenCalculateStrategy": 1, "warmUpColdFactor": 1, "warmUpPeriodSec": 1} | .warmUpColdFactor | 1 | above 1
"#;

/// `isolation.Rule`.
const GO_ISOLATION: &str = r#"
{"resource": "*", "threshold": 1} | .resource | "*" | a name: here `*` is every resource
{"resource": "a", "threshold": 0} | .threshold | 0 | between 1 and
{"resource": "a", "threshold": 1, "metricType": 1} | .metricType | 1 | between 0 and 0
{"resource": "a"} | .threshold | missing | at least 1
"#;

/// `circuitbreaker.Rule`.
const GO_BREAKER: &str = r#"
{"resource": "good", "maxAllowedRtMs": 1, "threshold": 0, "retryTimeoutMs": 1, "statIntervalMs": 1000} | .threshold | 0 | above 0 and at most 1
{"resource": "good", "maxAllowedRtMs": 1, "retryTimeoutMs": 1, "statIntervalMs": 1000} | .threshold | missing | a number
{"resource": "good", "maxAllowedRtMs": 1, "threshold": 0.5, "retryTimeoutMs": 0, "statIntervalMs": 1000} | .retryTimeoutMs | 0 | between 1 and
{"resource": "good", "maxAllowedRtMs": 1, "threshold": 0.5, "retryTimeoutMs": 1, "statIntervalMs": null} | .statIntervalMs | missing | at least 1
{"resource": "good", "maxAllowedRtMs": 1, "threshold": 0.5, "retryTimeoutMs": 1, "statIntervalMs": 1000, "statSlidingWindowBucketCount": 100} | .statSlidingWindowBucketCount | 100 | between 1 and 64
{"resource": "good", "maxAllowedRtMs": 1, "threshold": 0.5, "probeNum": 64, "retryTimeoutMs": 1, "statIntervalMs": 1000} | .probeNum | 64 | between 1 and 63
"#;

/// `system.Rule`.
const GO_SYSTEM: &str = r#"
{"triggerCount": 1} | .metricType | missing | between 0 and 4
{"metricType": 3} | .triggerCount | missing | a number
{"metricType": 0, "strategy": 1, "triggerCount": -1} | .triggerCount | -1 | 0 or more
{"metricType": 1, "triggerCount": 0} | .triggerCount | 0 | above 0
{"metricType": 1, "triggerCount": 40000000000} | .triggerCount | 40000000000 | milliseconds between 0 and
{"metricType": 2, "triggerCount": -0.5} | .triggerCount | -0.5 | between 0 and
{"metricType": 3, "triggerCount": -0.5} | .triggerCount | -0.5 | between 0 and
{"metricType": 4, "triggerCount": 80} | .triggerCount | 80 | at most 1
"#;

/// `hotspot.Rule`.
const GO_PARAM: &str = r#"
{"resource": "a", "threshold": 1, "metricType": 1} | .durationInSec | missing | at least 1
{"resource": "a", "threshold": 1, "specificItems": [{"threshold": 1, "valKind": 0, "valStr": "a"}]} | .specificItems[0].valStr | "a" | a whole number
{"resource": "a", "threshold": 1, "specificItems": [{"threshold": 1, "valKind": 2, "valStr": "1"}]} | .specificItems[0].valStr | "1" | "true" or "false"
"#;

/// Asserts that each bad rule, the second of its document, has that one problem.
fn assert_refused(table: &str, prefix: &str, read: impl Fn(&Value) -> Document) {
    for row in table.trim().lines() {
        let mut row = row.split(" | ");
        let [rule, path, value, allowed] = std::array::from_fn(|_| row.next().unwrap());
        let document = read(&serde_json::from_str(rule).unwrap());
        let problems = document.strict().unwrap_err();
        let problem = &problems.as_slice()[0];
        assert_eq!(problems.len(), 1, "{rule}: {problems}");
        assert!(!problems.is_empty() && (&problems).into_iter().eq(problems.as_slice()));
        assert_eq!(problem.path(), format!("{prefix}[1]{path}"), "{problem}");
        assert_eq!(problem.value(), value, "{problem}");
        assert!(problem.allowed().contains(allowed), "{problem}");
        assert_eq!(problem.index(), Some(1));
        assert!(!problem.is_warning());
        assert_eq!(document.lenient().0.len(), 2, "{rule}");
    }
}

fn of_sentinel(kind: Kind, good: &Value, table: &str) {
    assert_refused(table, "", |rule| sentinel(kind, &json!([good, rule, good])));
}

#[test]
fn a_bad_rule_is_told_with_its_place_its_value_and_what_is_allowed() {
    let good = json!({"kind": "isolation", "resource": "good", "max": 1});
    for table in [FLOW, EXCLUDING, OTHERS, UNKNOWN] {
        assert_refused(table, "rules", |rule| {
            let tree = json!({"rules": [good, rule, good]});
            Document::read(&tree.to_string(), Format::Json).unwrap()
        });
    }
}

#[test]
fn a_bad_rule_of_java_is_told_in_its_own_words() {
    let good = json!({"resource": "good", "count": 1});
    of_sentinel(Kind::Flow, &good, JAVA_FLOW);
    let good = json!({"resource": "good", "timeWindow": 1, "count": 1});
    of_sentinel(Kind::CircuitBreaker, &good, JAVA_BREAKER);
    of_sentinel(Kind::System, &json!({"qps": 1}), JAVA_SYSTEM);
    let good = json!({"resource": "good", "paramIdx": 0, "count": 1});
    of_sentinel(Kind::HotParam, &good, JAVA_PARAM);
}

#[test]
fn a_bad_rule_of_go_is_told_in_its_own_words() {
    let good = json!({"resource": "good", "threshold": 1.5});
    of_sentinel(Kind::Flow, &good, GO_FLOW);
    of_sentinel(Kind::HotParam, &good, GO_PARAM);
    let good = json!({"resource": "good", "threshold": 1});
    of_sentinel(Kind::Isolation, &good, GO_ISOLATION);
    let good = json!({"metricType": 3, "triggerCount": 1});
    of_sentinel(Kind::System, &good, GO_SYSTEM);
    let good = json!({
        "resource": "good", "threshold": 0.5, "retryTimeoutMs": 1, "statIntervalMs": 1000,
        "maxAllowedRtMs": 1,
    });
    of_sentinel(Kind::CircuitBreaker, &good, GO_BREAKER);
}

#[test]
fn a_rule_of_another_kind_is_not_taken_for_one_of_this() {
    // Its count is a ratio of errors; as a rate it would refuse nearly every call.
    let breaker = json!({"resource": "a", "grade": 1, "count": 0.5, "timeWindow": 10});
    for kind in [Kind::Flow, Kind::Isolation, Kind::System, Kind::HotParam] {
        let document = sentinel(kind, &json!([breaker]));
        assert_eq!(
            lines(&document),
            ["[0].timeWindow is 10, must be absent: only a rule of `Kind::CircuitBreaker` has it"],
            "{kind:?}"
        );
    }
    let param = json!({"resource": "a", "count": 5, "paramIdx": 0});
    let document = sentinel(Kind::Flow, &json!([param]));
    assert!(document.lenient().0.is_empty());
    // Beside a key of this kind such a key is one that Sentinel does not look at.
    let both = json!({"resource": "a", "count": 5, "paramIdx": 0, "warmUpPeriodSec": 10});
    assert_eq!(lines(&sentinel(Kind::Flow, &json!([both]))), [""; 0]);
}

#[test]
fn an_unknown_key_outside_of_the_rules_is_told() {
    let document = Document::read(r#"{"rules": [], "rule": []}"#, Format::Json).unwrap();
    assert_eq!(
        lines(&document),
        ["rule is not known, did you mean `rules`?"]
    );
    assert_eq!(document.problems().as_slice()[0].index(), None);
    assert!(document.strict().is_err());
}

#[test]
fn a_bad_authority_rule_is_told() {
    let table = [
        (
            json!({"resource": "a"}),
            "[0].limitApp is missing, must be a text",
        ),
        (
            json!({"resource": "a", "limitApp": " "}),
            "[0].limitApp is \" \", must be names of origins, between commas",
        ),
        (
            json!({"resource": "a", "limitApp": " , "}),
            "[0].limitApp is \" , \", must be names of origins, between commas",
        ),
        (
            json!({"resource": "a", "limitApp": "x", "strategy": 2}),
            "[0].strategy is 2, must be a whole number between 0 and 1",
        ),
        (
            json!({"resource": "a", "limitApp": "x", "regex": true}),
            "[0].regex is true, must be false: a resource is named in full, or by a template \
             such as \"/users/{id}\"",
        ),
    ];
    for (rule, expected) in table {
        let document = sentinel(Kind::Authority, &json!([rule]));
        assert_eq!(lines(&document), [expected]);
        assert!(document.strict().is_err());
    }
}

#[test]
fn a_value_beside_several_others_is_one_problem() {
    let rule = json!({"kind": "keyed", "resource": "a", "threshold": 5, "param": "user",
        "param_at": 1, "by_origin": true, "window": false, "throttle": "1s"});
    let text = json!({"rules": [rule]}).to_string();
    let problems = Document::read(&text, Format::Json).unwrap().strict();
    let told: Vec<_> = problems
        .unwrap_err()
        .iter()
        .map(|problem| format!("{} {}", problem.path(), problem.allowed()))
        .collect();
    // A switch that is off stands beside nothing.
    assert_eq!(
        told,
        [
            "rules[0].param_at absent beside `param`",
            "rules[0].by_origin absent beside `param`",
        ]
    );
}

//! Any text is a document or an error, and what is accepted can be written and
//! read again.
//!
//! ```text
//! cargo +nightly fuzz run documents -- -max_total_time=60
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_sentinel::document::{Document, Format, Kind};

fuzz_target!(|text: &str| {
    for format in [Format::Json, Format::Toml] {
        let Ok(document) = Document::read(text, format) else {
            continue;
        };
        let _ = document.lenient();
        let _ = document.write(format);
        if let Ok(rules) = document.strict() {
            for form in [Format::Json, Format::Toml] {
                let written = Document::from_rules(&rules).write(form);
                let again = Document::read(&written, form).expect("it was written here");
                assert_eq!(again.strict().expect("they are valid"), rules, "{written}");
            }
        }
    }
    for kind in [
        Kind::Flow,
        Kind::Isolation,
        Kind::CircuitBreaker,
        Kind::Authority,
        Kind::System,
        Kind::HotParam,
    ] {
        if let Ok(document) = Document::read_sentinel(text, kind) {
            let _ = document.strict();
            let _ = document.write(Format::Json);
        }
    }
});

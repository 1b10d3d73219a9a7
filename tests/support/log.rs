//! What is said by `tracing`, line by line.
#![allow(
    clippy::disallowed_types,
    reason = "a test may hold a lock of the standard library"
)]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps each event as one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// What was said since the last look.
    pub(crate) fn said(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap(),
            name => drop(self.fields.insert(name, format!("{value:?}"))),
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("there are no spans")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), "tower_sentinel");
        let mut text = Text::default();
        event.record(&mut text);
        let mut line = format!("{} {}", event.metadata().level(), text.message);
        for (name, value) in text.fields {
            let name = name.strip_prefix("sentinel.").unwrap();
            write!(line, ", {name} {value}").unwrap();
        }
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

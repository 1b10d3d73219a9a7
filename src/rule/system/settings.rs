//! The settings of a system rule by name.

use super::SystemRule;
use crate::rule::setting::WrittenSettings;
use crate::system::Capacity;

impl SystemRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            load,
            cpu,
            qps,
            rt,
            concurrency,
            capacity,
            id,
        } = self;
        settings.add_given("qps", qps);
        settings.add_given("load", load);
        settings.add_given("cpu", cpu);
        settings.add_given("rt", rt);
        settings.add_given("concurrency", concurrency);
        if capacity != Capacity::default() {
            settings.add("capacity", capacity.as_str().to_owned());
        }
        settings.add_given("id", id);
    }
}

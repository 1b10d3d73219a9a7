//! Reads and writes rules with serde, as a part of the settings of a program.

use serde_core::de::{Deserialize, Deserializer, Error};
use serde_core::ser::{Serialize, Serializer};

use super::load::own_rules;
use super::own;
use super::value::Datum;
use crate::rule::Rules;

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Datum::deserialize(deserializer)?.with_dates_as_text() {
            Datum::List(list) => own_rules(&list).map_err(D::Error::custom),
            other => Err(D::Error::custom(format_args!(
                "rules are {}, must be a list of tables",
                other.excerpt()
            ))),
        }
    }
}

impl Serialize for Rules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        own::list(self.iter()).serialize(serializer)
    }
}

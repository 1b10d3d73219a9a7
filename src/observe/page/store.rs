//! The store of shared rules, as the page shows it.

use super::json::Json;
use crate::store::StoreStatus;

/// Writes the state of the store, or null if the engine has none.
pub(super) fn write_store(json: &mut Json, store: Option<&StoreStatus>) {
    let Some(store) = store else {
        return json.plain("store", "null");
    };
    json.member("store", |json| {
        json.text("state", store.state().as_str());
        json.millis("since", Some(store.since()));
        json.plain("nodes", store.nodes());
        json.millis("trip", Some(store.trip()));
        match store.last_error() {
            Some(error) => json.text("last_error", error.kind().as_str()),
            None => json.plain("last_error", "null"),
        }
    });
}

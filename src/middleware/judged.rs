//! Marks requests that an engine has judged, so that another layer of the same engine leaves them
//! alone.
//!
//! If a layer were around a service twice, it would take two tokens and two slots for each call,
//! and with a limit of one call at a time refuse all of them. So a request carries the engine that
//! judged it, and the name under which it was judged. A mark costs an allocation, so only the first
//! call to a resource gets one, and then one call in a thousand, until a second layer finds a mark:
//! from then on, every call gets one.

use http::header::FORWARDED;
use http::{HeaderMap, Request};
use papaya::Equivalent;

use super::settings::Settings;
use crate::base::sync::{Arc, Ordering};
use crate::call::{Call, Key};
use crate::engine::resource::{Resource, ResourceKey, ResourceQuery};
use crate::key::ClientAddr;

/// The marks of a request: one for each engine and name by which it was judged.
#[derive(Clone, Debug, Default)]
struct JudgedAs(Vec<Arc<JudgedName>>);

/// A name under which an engine has judged a request, with the engine's resource. Counted as a mark
/// until it is dropped.
#[derive(Debug)]
struct JudgedName {
    /// The name under which the call was judged. It is the name of `resource`, unless that resource
    /// counts all names for which the table has no place.
    key: ResourceKey,
    resource: Arc<Resource>,
}

impl Drop for JudgedName {
    fn drop(&mut self) {
        self.resource
            .shared()
            .marked
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// Marks `request` as judged by the engine of `settings`, on `resource`.
#[cold]
#[inline(never)]
pub(super) fn mark<B>(settings: &Settings, request: &mut Request<B>, resource: &Arc<Resource>) {
    resource.note_mark();
    let key = settings.describe(request, |call, _| {
        with_query(settings, call, |query| query.keep().0)
    });
    // Only skipped requests have no name, and this request was judged, so it was not skipped.
    let Some(key) = key else { return };
    resource.shared().marked.fetch_add(1, Ordering::Relaxed);
    let mark = Arc::new(JudgedName {
        key,
        resource: resource.clone(),
    });
    look_for_mistakes(settings, request, resource);
    let extensions = request.extensions_mut();
    match extensions.get_mut::<JudgedAs>() {
        Some(marks) => marks.0.push(mark),
        None => {
            extensions.insert(JudgedAs(vec![mark]));
        }
    }
}

/// Looks for mistakes in the set-up that only a request can show. Runs only for requests that get a
/// mark: they are few, and a mark costs more than this check.
fn look_for_mistakes<B>(settings: &Settings, request: &Request<B>, resource: &Resource) {
    let registry = settings.sentinel.registry();
    registry.look_late(resource);
    let has_client_addr = request.extensions().get::<ClientAddr>().is_some();
    if settings.reads_peer() && !has_client_addr {
        registry.note_peer(is_forwarded(request.headers()));
    }
}

/// Returns whether `headers` have a field by which proxies name the client.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED) || headers.contains_key("x-forwarded-for")
}

/// Returns whether any engine has judged `request` before. The extensions are searched only while
/// some request of the engine of `settings` is marked, which is rare.
#[inline]
pub(super) fn is_marked<B>(settings: &Settings, request: &Request<B>) -> bool {
    // Relaxed: the outer layer counted its mark before it passed the request on, which orders the
    // two.
    settings
        .sentinel
        .registry()
        .shared()
        .marked
        .load(Ordering::Relaxed)
        > 0
        && request.extensions().get::<JudgedAs>().is_some()
}

/// Returns whether the engine of `settings` has judged `request` before, under the name that this
/// layer gives it.
#[cold]
#[inline(never)]
pub(super) fn is_judged<B>(settings: &Settings, request: &Request<B>) -> bool {
    let is_judged = settings.describe(request, |call, _| {
        let marks = request.extensions().get::<JudgedAs>();
        marks.is_some_and(|marks| has_own_mark(settings, marks, call))
    });
    is_judged.unwrap_or_default()
}

/// Returns whether one of `marks` is of the engine of `settings` and has the name of `call`. If so,
/// notes that two layers of the engine are nested.
fn has_own_mark(settings: &Settings, marks: &JudgedAs, call: &Call<'_>) -> bool {
    let shared = settings.sentinel.registry().shared();
    for mark in &marks.0 {
        let is_own = std::sync::Arc::ptr_eq(mark.resource.shared(), shared);
        if is_own && with_query(settings, call, |query| query.equivalent(&mark.key)) {
            mark.resource.note_nested_layers();
            return true;
        }
    }
    false
}

/// Runs `f` with the query that looks up the resource of `call`.
fn with_query<R>(
    settings: &Settings,
    call: &Call<'_>,
    f: impl FnOnce(&ResourceQuery<'_>) -> R,
) -> R {
    let shared = settings.sentinel.registry().shared();
    let mut room: Option<Key<'static>> = None;
    f(&ResourceQuery {
        direction: call.flags.direction(),
        name: call.resource.shortened(&shared.hash, &mut room),
    })
}

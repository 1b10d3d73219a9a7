//! The mark on a request that an engine has judged: another layer of the engine leaves it alone.
//!
//! A layer that is around a service twice would take two tokens and two slots of each call, and
//! with a limit of one call at a time refuse all of them. So a request carries along by which
//! engine it was judged, and under which name. A mark is an allocation. So only the first call to a
//! resource has one, and later one in a thousand, until a second layer meets a mark: then all have
//! one.

use http::header::FORWARDED;
use http::{HeaderMap, Request};
use papaya::Equivalent;

use super::settings::Settings;
use crate::base::sync::{Arc, Ordering};
use crate::call::{Call, Key};
use crate::engine::resource::{Resource, ResourceKey, ResourceQuery};
use crate::key::ClientAddr;

/// The marks of a request: one for each engine, and each name, by which it was judged.
#[derive(Clone, Debug, Default)]
struct JudgedAs(Vec<Arc<JudgedName>>);

#[derive(Debug)]
struct JudgedName {
    /// The name under which the call was judged. It is the name of `resource`, unless that resource
    /// stands for all names without a place of their own.
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

/// Notes on `request` that the engine of `settings` has judged it, on `resource`.
#[cold]
#[inline(never)]
pub(super) fn mark<B>(settings: &Settings, request: &mut Request<B>, resource: &Arc<Resource>) {
    resource.note_mark();
    let key = settings.describe(request, |call, _| {
        with_query(settings, call, |query| query.keep().0)
    });
    // Only skipped requests have no name, and this one was judged, so it was not skipped.
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

/// Looks for mistakes in the set-up that only a request can show. Runs only for requests that are
/// marked: these are few, and the mark costs more than this check.
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

/// Returns whether an engine has judged `request` before. While no request of the engine of
/// `settings` is marked, which is nearly always, the extensions are not searched.
#[inline]
pub(super) fn is_marked<B>(settings: &Settings, request: &Request<B>) -> bool {
    // Relaxed: the outer layer counted its mark before it handed the request on, and the hand-over
    // orders the two.
    settings
        .sentinel
        .registry()
        .shared()
        .marked
        .load(Ordering::Relaxed)
        > 0
        && request.extensions().get::<JudgedAs>().is_some()
}

/// Returns whether the engine of `settings` has judged `request` before, under the name that the
/// layer gives it.
#[cold]
#[inline(never)]
pub(super) fn is_judged<B>(settings: &Settings, request: &Request<B>) -> bool {
    let is_judged = settings.describe(request, |call, _| {
        let marks = request.extensions().get::<JudgedAs>();
        marks.is_some_and(|marks| meets(settings, marks, call))
    });
    is_judged.unwrap_or_default()
}

fn meets(settings: &Settings, marks: &JudgedAs, call: &Call<'_>) -> bool {
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

/// Runs `f` with the query by which `call` asks for its resource.
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

//! The mark on a request that an engine has judged: another layer of the engine leaves it alone.
//!
//! A layer that is around a service twice would take two tokens and two slots of each call, and
//! with a limit of one call at a time refuse all of them. So a request carries along by which
//! engine it was judged, and under which name. A mark is an allocation. So only the first call to a
//! resource has one, and later one in a thousand, until a second layer meets a mark: then all have
//! one.

use http::Request;
use papaya::Equivalent;

use super::layer::Settings;
use crate::base::sync::Arc;
use crate::call::{Call, Key};
use crate::engine::resource::{Resource, ResourceKey, ResourceQuery};

/// The marks of a request, by all engines that have judged it.
#[derive(Clone, Debug, Default)]
struct Marks(Vec<Mark>);

#[derive(Clone, Debug)]
struct Mark {
    /// The name under which the call was judged: that of `resource`, unless this one stands for
    /// names without a place of their own.
    key: ResourceKey,
    resource: Arc<Resource>,
}

/// Notes on `request` that the engine of `settings` has judged it, on `resource`.
#[cold]
#[inline(never)]
pub(super) fn mark<B>(settings: &Settings, request: &mut Request<B>, resource: &Arc<Resource>) {
    resource.note_mark();
    let key = settings.describe(request, |call, _| {
        with_query(settings, call, |query| query.keep().0)
    });
    // It was described before, so it is not skipped.
    let Some(key) = key else { return };
    let mark = Mark {
        key,
        resource: resource.clone(),
    };
    let extensions = request.extensions_mut();
    match extensions.get_mut::<Marks>() {
        Some(marks) => marks.0.push(mark),
        None => {
            extensions.insert(Marks(vec![mark]));
        }
    }
}

/// Whether the engine of `settings` has judged `call` to `request` before.
#[inline]
pub(super) fn is_judged<B>(settings: &Settings, request: &Request<B>, call: &Call<'_>) -> bool {
    let marks = request.extensions().get::<Marks>();
    marks.is_some_and(|marks| meets(settings, marks, call))
}

#[cold]
fn meets(settings: &Settings, marks: &Marks, call: &Call<'_>) -> bool {
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
        direction: call.direction,
        name: call.resource.shortened(&shared.hash, &mut room),
    })
}

//! The handle of the background task that sends requests to the store.

use std::{fmt, io};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::hub::Hub;
use super::key::is_prefix;
use super::refill::Refiller;
use crate::base::sync::{Arc, Ordering};
use crate::base::timer;

/// The handle of the task that sends an engine's requests to its store. Dropping it stops the task.
/// From then on, each rule admits this process's share of its limit.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Sentinel;
/// use tower_sentinel::store::{MemoryStore, StoreState};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let sentinel = Sentinel::builder().store(MemoryStore::new()).build();
/// let handle = sentinel.start_store().unwrap();
/// handle.shutdown().await;
/// assert_eq!(sentinel.store().unwrap().state(), StoreState::Idle);
/// # });
/// ```
#[must_use = "dropping it stops the task"]
pub struct StoreHandle {
    hub: Arc<Hub>,
    task: Option<JoinHandle<()>>,
}

impl StoreHandle {
    /// Starts the task on the current tokio runtime.
    pub(crate) fn start(hub: Option<&Arc<Hub>>) -> io::Result<Self> {
        let with_store = hub.and_then(|hub| Some((hub, hub.store()?.clone())));
        let (hub, store) = with_store.ok_or_else(|| io::Error::other("the engine has no store"))?;
        if !is_prefix(store.prefix()) {
            let missing = "the store has no prefix, must have the name of the service: two services \
                           without one would count their rules together";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, missing));
        }
        let no_runtime = || io::Error::other("there is no tokio runtime with a timer");
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        timer::sleep(std::time::Duration::ZERO).map_err(|_| no_runtime())?;
        if hub.is_started.swap(true, Ordering::AcqRel) {
            return Err(io::Error::other("the store was started before"));
        }
        hub.stops.store(false, Ordering::Release);
        let task = runtime.spawn(Refiller::new(hub.clone(), store).run());
        Ok(Self {
            hub: hub.clone(),
            task: Some(task),
        })
    }

    /// Stops the task. Before it ends, the task waits for the answers that calls wait for, gives
    /// unused permits back, and reports to the store that this process leaves. This takes a few
    /// trips if the store answers, and at most three times
    /// [`store_wait`](super::StoreSettings::store_wait).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the task at once, without giving unused permits back.
    pub async fn shutdown(mut self) {
        self.hub.stops.store(true, Ordering::Release);
        self.hub.wake();
        if let Some(task) = &mut self.task {
            let _ = task.await;
        }
        self.task = None;
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHandle")
            .field("hub", &self.hub)
            .finish_non_exhaustive()
    }
}

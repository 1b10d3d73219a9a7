//! A running dashboard: its handle, and the outcome of its beats.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::base::sync::Lock;

/// The tasks of a [`Dashboard`](super::Dashboard): its beat and its server. Dropping
/// the handle stops both, and closes all connections.
///
/// # Examples
///
/// ```
/// use tower_sentinel::observe::dashboard::{Dashboard, DashboardHandle};
/// use tower_sentinel::{Rules, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(Rules::new());
/// let dashboard = Dashboard::new(&sentinel, "shop").bind(([127, 0, 0, 1], 0));
/// let handle: DashboardHandle = dashboard.spawn().await?;
/// // No dashboard was named, so no beat was sent.
/// assert_eq!((handle.beats(), handle.last_problem()), (0, None));
/// let addr = handle.addr();
/// handle.stop().await;
/// assert!(std::net::TcpStream::connect(addr).is_err());
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "dropping it stops beat and server"]
pub struct DashboardHandle {
    pub(super) addr: SocketAddr,
    pub(super) state: Arc<BeatState>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// The outcome of the beats.
#[derive(Debug, Default)]
pub(super) struct BeatState(pub(super) Lock<BeatOutcomes>);

#[derive(Debug, Default)]
pub(super) struct BeatOutcomes {
    /// The number of accepted beats.
    pub(super) beats: u64,
    /// What was wrong with the last beat.
    pub(super) problem: Option<String>,
}

// === impl DashboardHandle ===

impl DashboardHandle {
    /// Returns the address of the command server: the IP address that was
    /// [bound](super::Dashboard::bind), with the first port that was free.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns how many beats the dashboard has accepted.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.state.0.lock().beats
    }

    /// Returns what was wrong with the last beat: why the dashboard does not know the program, or
    /// why it cannot send commands. `None` if nothing was wrong, or before the first beat.
    #[must_use]
    pub fn last_problem(&self) -> Option<String> {
        self.state.0.lock().problem.clone()
    }

    /// Stops beat and server, closes all connections, and waits until that is done. A change of
    /// rules in progress is completed without an answer.
    pub async fn stop(mut self) {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // An error means that the task was aborted, or has panicked.
            let _ = task.await;
        }
    }
}

impl Drop for DashboardHandle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Debug for DashboardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardHandle")
            .field("addr", &self.addr)
            .field("beats", &self.beats())
            .field("last_problem", &self.last_problem())
            .finish_non_exhaustive()
    }
}

// === impl BeatState ===

impl BeatState {
    /// Records the outcome of a beat. `Ok` holds what is wrong although the beat was accepted.
    pub(super) fn record(&self, beat: Result<Option<String>, String>) {
        let mut outcomes = self.0.lock();
        outcomes.beats += u64::from(beat.is_ok());
        outcomes.problem = beat.unwrap_or_else(Some);
    }
}

//! A thread that repeats a task at intervals.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use crate::base::sync::StopSignal;

/// The shortest time between two turns of a thread, so that no thread is busy all the time.
const SHORTEST: Duration = Duration::from_millis(10);

/// See the [module](self). The owner must call [`stop`](Self::stop) before dropping it.
#[derive(Debug)]
pub(crate) struct PeriodicThread {
    stop: Arc<StopSignal>,
    /// Dropped only by [`stop`](Self::stop), and only in this process: in a forked process, the
    /// system may have given the id in the handle to another thread. Dropping the handle would
    /// detach that thread, so that it could not be joined any more.
    thread: ManuallyDrop<Option<JoinHandle<()>>>,
    /// The process that has the thread: a forked process does not have it.
    process: u32,
}

/// A thread of the crate that repeats a task: one that polls a source of rules
/// ([`Watch::spawn`](crate::source::Watch::spawn)), one that reads the system
/// ([`Sampler::spawn`](crate::system::Sampler::spawn)), or one that writes a journal or exports
/// figures (`observe`). Dropping the handle stops the thread, and waits for a turn that is in
/// progress. On the thread itself dropping does not wait, and the thread ends after the turn.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::system::{ManualProbe, Sampler};
/// use tower_sentinel::{Call, Sentinel, SystemRule, ThreadHandle, Verdict};
///
/// let probe = ManualProbe::new();
/// probe.set_cpu(0.95);
/// let sampler = Sampler::new(probe);
/// let handle: ThreadHandle = sampler.clone().spawn(Duration::from_secs(1))?;
/// // The thread reads at once, and `stop` waits for a reading that has begun.
/// handle.stop();
/// assert_eq!(sampler.readings().cpu(), Some(0.95));
///
/// let rule = SystemRule::new().cpu(0.85);
/// let sentinel = Sentinel::builder().rules(rule).sampler(sampler).build();
/// assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Block(_)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping it stops the thread"]
pub struct ThreadHandle {
    thread: PeriodicThread,
    /// Runs once the thread has ended, or at once if the thread itself drops the handle.
    then: Option<Box<dyn FnOnce() + Send + Sync>>,
}

// === impl PeriodicThread ===

impl PeriodicThread {
    /// Runs `act`, which must not panic, on a thread called `name`: at once and then at intervals
    /// of `every`, at least 10 ms.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot create the thread.
    pub(crate) fn spawn(
        name: &str,
        every: Duration,
        act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn_boxed(name, every, Box::new(act))
    }

    /// Does the work of [`spawn`](Self::spawn), for tasks of any type.
    fn spawn_boxed(
        name: &str,
        every: Duration,
        mut act: Box<dyn FnMut() + Send>,
    ) -> io::Result<Self> {
        let stop = Arc::new(StopSignal::default());
        let stopped = stop.clone();
        let every = every.max(SHORTEST);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                loop {
                    act();
                    if stopped.wait(every) {
                        return;
                    }
                }
            })?;
        Ok(Self {
            stop,
            thread: ManuallyDrop::new(Some(thread)),
            process: this_process(),
        })
    }

    /// Stops the thread, and waits until it has ended: it does not wait for the next turn, but for
    /// a turn that is in progress.
    pub(crate) fn stop(&mut self) {
        if self.process != this_process() {
            // Joining a thread that is not there panics, or never ends.
            return;
        }
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // `act` may own the handle, and be dropped by the thread itself.
            if thread.thread().id() != thread::current().id() {
                // Joining does not fail, as nothing that the thread does panics.
                let _ = thread.join();
            }
        }
    }
}

// === impl ThreadHandle ===

impl ThreadHandle {
    pub(crate) const fn new(thread: PeriodicThread) -> Self {
        Self { thread, then: None }
    }

    /// Calls `then` once the thread has ended, or at once if the thread itself drops the handle.
    pub(crate) fn then(mut self, then: impl FnOnce() + Send + Sync + 'static) -> Self {
        self.then = Some(Box::new(then));
        self
    }

    /// Stops the thread, and waits until it has ended. Dropping the handle does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        self.thread.stop();
        if let Some(then) = self.then.take() {
            then();
        }
    }
}

impl fmt::Debug for ThreadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadHandle").finish_non_exhaustive()
    }
}

/// Returns the id of this process; a forked process has another id.
#[cfg(unix)]
pub(crate) fn this_process() -> u32 {
    std::process::id()
}

/// Processes do not fork on this system, so one id is enough.
#[cfg(not(unix))]
pub(crate) const fn this_process() -> u32 {
    0
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_forked_process_does_not_wait_for_its_parents_thread() {
        let (release, released) = mpsc::channel::<()>();
        let (say, ended) = mpsc::channel();
        let act = move || {
            // Ends when it is released, or when this test has hung for long enough.
            let _ = released.recv_timeout(Duration::from_secs(10));
            let _ = say.send(());
        };
        let mut theirs = PeriodicThread::spawn("parent", Duration::from_secs(3_600), act).unwrap();
        theirs.process = theirs.process.wrapping_add(1);
        theirs.stop();
        assert!(ended.try_recv().is_err(), "it has waited for the thread");
        assert!(theirs.thread.is_some(), "it has detached the thread");
        // From here on, this is the process that has the thread.
        theirs.process = this_process();
        drop(release);
        theirs.stop();
        assert!(theirs.thread.is_none());
    }
}

//! A thread that does the same thing again and again.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use crate::sync::StopSignal;

/// The shortest time between two turns of a thread.
const SHORTEST: Duration = Duration::from_millis(10);

/// See the [module](self). Who drops it [stops](Self::stop) it before.
#[derive(Debug)]
pub(crate) struct Repeater {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Repeater {
    /// Runs `act`, which does not panic, on a thread called `name`: at once and then
    /// `every` so often, at least 10 ms apart.
    ///
    /// # Errors
    ///
    /// If the operating system gives no thread.
    pub(crate) fn spawn(
        name: &str,
        every: Duration,
        mut act: impl FnMut() + Send + 'static,
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
            thread: Some(thread),
        })
    }

    /// Stops the thread, and waits until it has ended: not for the next turn, but for
    /// one that is under way.
    pub(crate) fn stop(&mut self) {
        self.stop.say();
        if let Some(thread) = self.thread.take() {
            // What acts may own the handle, and be dropped by the thread itself.
            if thread.thread().id() != thread::current().id() {
                // It has not panicked, as nothing that it does.
                let _ = thread.join();
            }
        }
    }
}

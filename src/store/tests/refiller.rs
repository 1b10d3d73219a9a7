//! What the refiller draws without being asked, and what processes do that never heard of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn processes_that_have_never_heard_of_a_store_admit_the_limit_at_most() {
    for limit in [2, 6] {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock);
        store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
        let setup = Setup {
            bucket: Duration::from_secs(100),
            limit,
            ..Setup::default()
        };
        let processes = [(); 4].map(|()| Process::new(setup, &store, clock));
        let mut passed = 0;
        for _ in 0..9 {
            for process in &processes {
                passed += u32::from(process.call().await);
            }
        }
        // None knows which one it is, so the remainder of the limit is nobody's.
        assert_eq!(passed, limit / 4 * 4);
    }
}

//! Stores of others that panic, or answer what was not asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Epoch, MemoryStore, QuotaStore, StoreError, StoreFuture,
    StoreSettings, StoreState,
};
use tower_sentinel::{Call, Clock, FlowRule, Sentinel};

use super::{SECOND, ms};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    PanicsWhenAsked,
    PanicsInItsAnswer,
    PanicsInBeats,
    AnswersTooFew,
    AnswersTooMany,
    KnowsNoProcess,
}

const WAYS: [Wrong; 6] = [
    Wrong::PanicsWhenAsked,
    Wrong::PanicsInItsAnswer,
    Wrong::PanicsInBeats,
    Wrong::AnswersTooFew,
    Wrong::AnswersTooMany,
    Wrong::KnowsNoProcess,
];

#[derive(Debug)]
struct Own {
    inner: MemoryStore,
    way: Arc<Mutex<Wrong>>,
}

impl Own {
    fn way(&self) -> Wrong {
        *self.way.lock().unwrap()
    }
}

impl QuotaStore for Own {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        assert!(self.way() != Wrong::PanicsWhenAsked, "as it was told to");
        Box::pin(async move {
            assert!(self.way() != Wrong::PanicsInItsAnswer, "as it was told to");
            let mut answers = self.inner.draw(draws).await?;
            match self.way() {
                Wrong::AnswersTooFew => answers.truncate(draws.len() - 1),
                Wrong::AnswersTooMany => answers.extend(self.inner.draw(draws).await?),
                _ => {}
            }
            Ok(answers)
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        assert!(self.way() != Wrong::PanicsInBeats, "as it was told to");
        match self.way() {
            Wrong::KnowsNoProcess => Box::pin(async { Ok(Beat::new(0, 9, Epoch::default())) }),
            _ => self.inner.beat(alive),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_or_answers_nonsense_is_one_that_is_away() {
    for wrong in WAYS {
        let (clock, way) = (TokioClock::new(), Arc::new(Mutex::new(Wrong::Nothing)));
        let store = MemoryStore::with_clock(clock);
        let engines = [(); 2].map(|()| {
            let (inner, way) = (store.clone(), way.clone());
            let sentinel = Sentinel::builder()
                .rules(FlowRule::per_second("/v1", 10).shared().exact())
                .clock(clock)
                .store(Own { inner, way })
                .store_settings(StoreSettings::new().nodes(2))
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle)
        });
        tokio::time::sleep(SECOND).await;
        let state = || engines[0].0.store().unwrap().state();
        assert_eq!(state(), StoreState::Live);
        *way.lock().unwrap() = wrong;
        // The first second may be one in which the store goes.
        for most in [15, 10, 10, 10] {
            let since = (clock.now() - Tick::ZERO).subsec_nanos();
            tokio::time::sleep(SECOND + ms(1) - Duration::from_nanos(since.into())).await;
            let mut passed = 0;
            for _ in 0..20 {
                for (engine, _) in &engines {
                    passed += usize::from(engine.enter(Call::new("/v1")).await.is_ok());
                }
            }
            assert!((1..=most).contains(&passed), "{wrong:?}: {passed}");
        }
        if wrong != Wrong::KnowsNoProcess {
            assert_ne!(state(), StoreState::Live, "{wrong:?}");
            assert!(engines[0].0.store().unwrap().last_error().is_some());
        }
        *way.lock().unwrap() = Wrong::Nothing;
        tokio::time::sleep(SECOND * 2 + ms(1)).await;
        assert_eq!(state(), StoreState::Live, "{wrong:?}");
        for (_, handle) in engines {
            handle.shutdown().await;
        }
    }
}

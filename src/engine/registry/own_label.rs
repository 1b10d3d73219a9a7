//! Copies of rule labels for each thread, for refusals in a crowd.
//!
//! A refusal holds the label of its rule until the answer is dropped. If many threads refuse at
//! once, they would all write to one reference count. So each thread makes a copy of the label, and
//! counts references to its copy.

use std::cell::RefCell;
use std::sync::Arc;

use crate::base::sync::thread_local;
use crate::blocked::Label;

/// The maximum number of copies that a thread keeps. It bounds the memory of the copies and the
/// length of the search for one.
const MOST: usize = 16;
/// The number of lookups that must miss before a copy is replaced by the copy of another label, so
/// that labels that are used alternately do not evict each other.
const MISSES_TO_REPLACE: usize = 16;

thread_local! {
    static OWN: RefCell<OwnLabels> = const { RefCell::new(OwnLabels::EMPTY) };
}

/// The copies of one thread.
struct OwnLabels {
    copies: Vec<Arc<Label>>,
    /// The number of lookups that missed while the thread had its maximum of copies.
    misses: usize,
}

/// Returns the thread's copy of `label`, for refusals of `resource`. Returns `label` itself if the
/// thread has too many copies.
pub(crate) fn own_label(label: &Arc<Label>, resource: &str) -> Arc<Label> {
    // While the thread ends, the copies may be gone already.
    let copy = OWN.try_with(|own| own.borrow_mut().find_or_copy(label, resource));
    copy.unwrap_or_else(|_| label.clone())
}

// === impl OwnLabels ===

impl OwnLabels {
    const EMPTY: Self = Self {
        copies: Vec::new(),
        misses: 0,
    };

    /// Returns the copy of `label` for `resource`, which is made if there is room. Without room,
    /// returns `label` itself, or replaces a copy after some misses.
    fn find_or_copy(&mut self, label: &Arc<Label>, resource: &str) -> Arc<Label> {
        let kept = self.copies.iter().find(|it| it.is_copy(label, resource));
        if let Some(kept) = kept {
            return kept.clone();
        }
        if self.copies.len() == MOST {
            self.misses += 1;
            if self.misses % MISSES_TO_REPLACE > 0 {
                return label.clone();
            }
            self.copies
                .swap_remove(self.misses / MISSES_TO_REPLACE % MOST);
        }
        let copy = Arc::new(label.copy(resource));
        self.copies.push(copy.clone());
        copy
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn label(id: &str) -> Arc<Label> {
        Arc::new(Label {
            id: id.into(),
            resource: None,
            unit: None,
            refused: Arc::default(),
        })
    }

    #[test]
    fn a_thread_finds_its_copy_again() {
        let (mut own, one, two) = (OwnLabels::EMPTY, label("one"), label("two"));
        let copy = own.find_or_copy(&one, "r");
        assert!(!Arc::ptr_eq(&copy, &one) && copy.counts_with(&one));
        assert_eq!((&*copy.id, copy.resource.as_deref()), ("one", Some("r")));
        for (other, resource, is_it) in [(&one, "r", true), (&one, "s", false), (&two, "r", false)]
        {
            let found = own.find_or_copy(other, resource);
            assert_eq!(Arc::ptr_eq(&found, &copy), is_it, "{resource}");
        }
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_copies() {
        let mut own = OwnLabels::EMPTY;
        for _ in 0..2 * MOST * MISSES_TO_REPLACE {
            let gone = label("gone");
            own.find_or_copy(&gone, "r");
            assert!(own.copies.len() <= MOST);
        }
        // A label that is looked up often enough gets a copy.
        let new = label("new");
        let asked = (0..=MISSES_TO_REPLACE).map(|_| own.find_or_copy(&new, "r"));
        assert!(!Arc::ptr_eq(&asked.last().unwrap(), &new));
    }
}

//! A naive model of a rule that warms up, with the formulas of the sources and an interval of one
//! second.

pub(crate) struct Oracle {
    /// The threshold, in tokens per second.
    q: f64,
    /// The cold factor.
    f: f64,
    /// The stored tokens up to which the rule is warm.
    warning: f64,
    /// The maximum of stored tokens.
    max: f64,
    /// The length of a step in seconds.
    pub(crate) step: u64,
    pub(crate) stored: f64,
    /// The step of the last refill.
    filled: Option<u64>,
}

impl Oracle {
    pub(crate) fn new(q: f64, p: f64, f: f64) -> Self {
        let warning = p * q / (f - 1.0);
        let max = warning + 2.0 * (p * q) / (1.0 + f);
        // A step is so long that a cold rule admits at least one token in it.
        let mut step = 1;
        while step as f64 * q / f < 1.0 - 1e-9 {
            step += 1;
        }
        Self {
            q,
            f,
            warning,
            max,
            step,
            stored: max,
            filled: None,
        }
    }

    /// Returns the limit for a call in the step `present`. `passed` gets the step of the last
    /// refill, and returns the tokens that passed in the steps since then.
    pub(crate) fn limit(&mut self, present: u64, passed: impl FnOnce(u64) -> u64) -> f64 {
        let filled = *self.filled.get_or_insert(present);
        if present > filled {
            self.filled = Some(present);
            let (steps, passed) = (present - filled, passed(filled));
            let cold = if self.step == 1 {
                (self.q / self.f).floor() as u64
            } else {
                1
            };
            if self.stored <= self.warning || passed < cold * steps {
                let seconds = (steps * self.step) as f64;
                self.stored = (self.stored + seconds * self.q).min(self.max);
            }
            self.stored = (self.stored - passed as f64).max(0.0);
        }
        if self.stored <= self.warning {
            return self.q;
        }
        let slope = (self.f - 1.0) / self.q / (self.max - self.warning);
        1.0 / ((self.stored - self.warning) * slope + 1.0 / self.q)
    }
}

//! Seeds of random tests: fixed ones, or the one that `SIMULATION_SEED` names.

/// A seed that is told when its test fails.
#[derive(Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    /// This one, unless another is to be repeated.
    pub(crate) fn or(usual: u64) -> Self {
        Self(chosen().unwrap_or(usual))
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }
}

#[expect(clippy::disallowed_methods, reason = "whoever repeats a failure has no other way to name the seed")]
fn chosen() -> Option<u64> {
    std::env::var("SIMULATION_SEED").ok().map(|seed| seed.parse().unwrap())
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SIMULATION_SEED={} fails", self.0);
        }
    }
}

//! Seeds of random tests: fixed ones, or the value of `SIMULATION_SEED`.

/// A seed that is printed when its test fails.
#[derive(Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    /// The usual seed, unless `SIMULATION_SEED` is set to repeat another one.
    pub(crate) fn or(usual: u64) -> Self {
        Self(chosen().unwrap_or(usual))
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }
}

#[expect(clippy::disallowed_methods, reason = "tests have no other argument with which a failure is repeated")]
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

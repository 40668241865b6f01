//! What a test logs.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// What this thread logs.
#[derive(Debug)]
pub struct CapturedLog {
    lines: Lines,
    /// A call site that is first reached on a thread without a subscriber is switched off for all threads while there
    /// is only one subscriber.
    _another: Dispatch,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Until the guard is dropped.
    pub fn start() -> (Self, DefaultGuard) {
        let another = Dispatch::new(NoSubscriber::default());
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        (Self { lines, _another: another }, tracing::subscriber::set_default(subscriber))
    }

    /// The number of lines with that text since the last time.
    pub fn lines(&self, text: &str) -> usize {
        let Lines(lines) = &self.lines;
        String::from_utf8(std::mem::take(&mut *lines.lock().unwrap())).unwrap().matches(text).count()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(lines) = self;
        lines.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

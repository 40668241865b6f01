//! The queue of log lines for standard error: it is bounded, and emptied by a thread.
//!
//! Invariant: logging never waits for the reader of the log. Clients cause most lines, so a stalled reader would
//! otherwise stop the whole gateway; instead, lines that do not fit are dropped and counted. The bound is in bytes,
//! because clients also determine how long a line is.

use std::{
    fmt,
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::telemetry::output_metrics::{LinesDropped, log_lines_dropped};

/// The maximum number of bytes in the queue: more than 10,000 typical lines, or seconds of a very busy gateway.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How long the process waits at its end for the last lines to be read.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(1);
/// A buffer with a larger capacity, in bytes, is freed after it was written.
const KEPT_BYTES: usize = 64 << 10;

/// Each write appends one line. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Signals that there are lines to write.
    filled: Condvar,
    /// Signals that all lines are written.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    /// Lines that did not fit since the last batch was taken.
    dropped: u64,
    /// Whether a batch was taken and is being written.
    is_writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes to `out`. It runs until the process ends.
    ///
    /// # Errors
    /// The system refuses to start another thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let state = Mutex::new(State::default());
        let queue = Self(Arc::new(Shared { state, filled: Condvar::new(), emptied: Condvar::new() }));
        let writer = queue.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_all_to(out))?;
        Ok(queue)
    }

    /// Waits until all lines are written, at most for `limit`. Returns whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let waits = |state: &mut State| state.is_writing || !state.lines.is_empty();
        let flushed = self.0.emptied.wait_timeout_while(self.lock(), limit, waits);
        !flushed.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn write_all_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let dropped = self.take(&mut batch);
            let written = out.write_all(&batch).and_then(|()| out.flush());
            if written.is_err() {
                let lines = memchr::memchr_iter(b'\n', &batch).count();
                log_lines_dropped(LinesDropped::Unwritten, u64::try_from(lines).unwrap_or(u64::MAX));
            }
            batch.clear();
            batch.shrink_to(KEPT_BYTES);
            if dropped > 0 {
                tracing::warn!(lines = dropped, "log lines dropped: standard error was not read fast enough");
            }
        }
    }

    /// Waits for lines and takes all of them. Returns how many were dropped since the last call.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.is_writing = false;
        if state.lines.is_empty() {
            self.0.emptied.notify_all();
        }
        let waits = |state: &mut State| state.lines.is_empty();
        let mut state = self.0.filled.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        mem::swap(&mut state.lines, batch);
        mem::take(&mut state.dropped)
    }

    /// The state is consistent even if a thread panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogQueue {
    /// Appends the whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.lines.len() + line.len() > QUEUE_BYTES_MAX {
            state.dropped += 1;
            drop(state);
            log_lines_dropped(LinesDropped::QueueFull, 1);
            return Ok(line.len());
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.0.filled.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for LogQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogQueue").field("bytes", &self.lock().lines.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    use crate::telemetry::exposition::recorder;

    /// A writer that blocks until it gets permission for each write.
    struct Stalled {
        lets: mpsc::Receiver<()>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The other end is dropped at the end of the test.
            self.lets.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.seen.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn lines_arrive_whole_and_in_order() {
        let ((lets, stalled), (seen, arrived)) = (mpsc::channel(), mpsc::channel());
        let mut queue = LogQueue::start(Stalled { lets: stalled, seen }).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            queue.write_all(line.as_bytes()).unwrap();
        }
        for _ in 0..3 {
            lets.send(()).unwrap();
        }
        assert!(queue.flush(PATIENCE));
        drop(queue);
        assert_eq!(arrived.try_iter().flatten().collect::<Vec<_>>(), b"one\ntwo\nthree\n");
    }

    #[test]
    fn a_stalled_reader_costs_lines_but_no_time_or_memory() {
        let recorder = recorder();
        let ((lets, stalled), (seen, _arrived)) = (mpsc::channel(), mpsc::channel());
        let mut queue = LogQueue::start(Stalled { lets: stalled, seen }).unwrap();
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4];
        ::metrics::with_local_recorder(&recorder, || {
            // Four lines fit into the queue, the writer may have taken four already, and four do not fit.
            for _ in 0..12 {
                queue.write_all(&line).unwrap();
            }
        });
        assert!(queue.lock().lines.len() <= QUEUE_BYTES_MAX);
        let text = recorder.handle().render();
        let counted = text.lines().find(|line| line.contains(r#"dropped_total{cause="queue_full"}"#)).expect("a count");
        let counted: usize = counted.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((4..=8).contains(&counted), "{text}");
        assert!(!queue.flush(Duration::from_millis(10)), "nothing was read");
        drop(lets);
        assert!(queue.flush(PATIENCE), "what cannot be written is given up");
    }
}

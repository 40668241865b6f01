//! A watch of upstream, event by event.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::{EventError, Failure, Lines, ListWatch, UpstreamEvent};
use crate::store::Schema;

/// The body of a watch and what of it has been read but not taken.
#[derive(Debug)]
pub struct EventStream<S> {
    stream: S,
    lines: Lines,
}

impl<S: Send> EventStream<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, lines: Lines::default() }
    }

    /// The next event; `None` at the clean end. Fails when nothing comes for longer than `silence`.
    pub async fn next<L: ListWatch<Stream = S>>(
        &mut self,
        upstream: &L,
        schema: &Schema,
        silence: Duration,
    ) -> Result<Option<UpstreamEvent>, Failure> {
        loop {
            if let Some(line) = self.lines.next_line().map_err(|_| Failure::Malformed)? {
                return parse(&line, schema).map(Some);
            }
            match timeout(silence, upstream.next(&mut self.stream)).await {
                Ok(Some(Ok(chunk))) => self.lines.push(&chunk),
                Ok(Some(Err(failure))) => return Err(failure),
                Ok(None) => return Ok(None),
                Err(_) => return Err(Failure::Silent),
            }
        }
    }
}

/// An event that cannot be used is logged with its cause.
fn parse(line: &Bytes, schema: &Schema) -> Result<UpstreamEvent, Failure> {
    match UpstreamEvent::parse(line, schema) {
        Ok(event) => Ok(event),
        Err(EventError::Told(failure)) => Err(failure),
        Err(error) => {
            tracing::warn!(error = causes(&error), "an event of upstream's watch cannot be used");
            Err(Failure::Malformed)
        }
    }
}

/// An error with all its causes, for the log.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

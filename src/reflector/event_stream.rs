//! A watch of upstream as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::{EventError, Failure, Lines, ListWatch, UpstreamEvent};
use crate::{apimachinery::Encoding, encode::protobuf::FrameReader, store::Schema};

/// The body of a watch, with the bytes that were received but do not make up a whole event yet.
#[derive(Debug)]
pub struct EventStream<S> {
    stream: S,
    frames: Frames,
}

/// Splits the body into events as its encoding requires.
#[derive(Debug)]
enum Frames {
    Json(Lines),
    Protobuf(FrameReader),
}

impl<S: Send> EventStream<S> {
    pub fn new(stream: S, encoding: Encoding) -> Self {
        let frames = match encoding {
            Encoding::Json => Frames::Json(Lines::default()),
            Encoding::Protobuf => Frames::Protobuf(FrameReader::default()),
        };
        Self { stream, frames }
    }

    /// The next event; `None` at the clean end. Fails when nothing arrives for longer than `silence`.
    pub async fn next<L: ListWatch<Stream = S>>(
        &mut self,
        upstream: &L,
        schema: &Schema,
        silence: Duration,
    ) -> Result<Option<UpstreamEvent>, Failure> {
        loop {
            if let Some(line) = self.frames.next()? {
                return parse(&line, schema).map(Some);
            }
            match timeout(silence, upstream.next(&mut self.stream)).await {
                Ok(Some(Ok(chunk))) => self.frames.push(&chunk),
                Ok(Some(Err(failure))) => return Err(failure),
                Ok(None) => return Ok(None),
                Err(_) => return Err(Failure::Silent),
            }
        }
    }
}

impl Frames {
    fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(lines) => lines.push(bytes),
            Self::Protobuf(frames) => frames.push(bytes),
        }
    }

    fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match self {
            Self::Json(lines) => lines.next_line().map_err(|_| Failure::Malformed),
            Self::Protobuf(frames) => frames.next_frame().map_err(|_| Failure::Malformed),
        }
    }
}

/// Parses an event; one that cannot be used is logged with the cause.
fn parse(line: &Bytes, schema: &Schema) -> Result<UpstreamEvent, Failure> {
    match UpstreamEvent::parse(line, schema) {
        Ok(event) => Ok(event),
        Err(EventError::Told(failure)) => Err(failure),
        Err(error) => {
            tracing::warn!(error = causes(&error), "cannot use an event of upstream's watch");
            Err(Failure::Malformed)
        }
    }
}

/// An error with all its causes, for the log.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

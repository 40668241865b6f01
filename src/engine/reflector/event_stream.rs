//! A watch of upstream as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::{ByteStream, EventError, Failure, Lines, UpstreamEvent};
use crate::{encode::protobuf::FrameReader, store::Schema};
use base::{apimachinery::Encoding, telemetry::Chain};

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

impl<S: ByteStream> EventStream<S> {
    pub fn new(stream: S, encoding: Encoding) -> Self {
        let frames = match encoding {
            Encoding::Json => Frames::Json(Lines::default()),
            Encoding::Protobuf => Frames::Protobuf(FrameReader::default()),
        };
        Self { stream, frames }
    }

    /// The next event; `None` at the clean end. Fails when nothing arrives for longer than `silence`.
    pub async fn next(&mut self, schema: &Schema, silence: Duration) -> Result<Option<UpstreamEvent>, Failure> {
        loop {
            if let Some(line) = self.frames.next()? {
                return parse(&line, schema).map(Some);
            }
            match timeout(silence, self.stream.next()).await {
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
            tracing::warn!(error = %Chain(&error), "cannot use an event of upstream's watch");
            Err(Failure::Malformed)
        }
    }
}

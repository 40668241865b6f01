//! A watch of upstream as a stream of events.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;

use super::{ByteStream, EventError, Failure, UpstreamEvent};
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

/// A line longer than [`Lines::BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {} bytes", Lines::BYTES_MAX)]
pub struct LineTooLong;

/// Buffers bytes until a line is complete.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: BytesMut,
    /// The number of bytes at the start of the buffer that contain no newline.
    searched: usize,
}

impl Lines {
    /// Larger than any object that etcd accepts (1.5 MiB by default, 8 MiB at most in practice), with room for escapes.
    pub const BYTES_MAX: usize = 64 << 20;

    /// Appends received bytes, which may be cut at any place.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, including its newline. The line is copied into an allocation of its own, because it may
    /// live long and must not keep the buffer alive.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return if self.searched > Self::BYTES_MAX { Err(LineTooLong) } else { Ok(None) };
        };
        let line = self.buffer.split_to(self.searched + at + 1);
        self.searched = 0;
        Ok(Some(Bytes::copy_from_slice(&line)))
    }
}

impl<S: ByteStream> EventStream<S> {
    pub fn new(stream: S, encoding: Encoding) -> Self {
        let frames = match encoding {
            Encoding::Json => Frames::Json(Lines::default()),
            Encoding::Protobuf => Frames::Protobuf(FrameReader::default()),
        };
        Self { stream, frames }
    }

    /// See [`ByteStream::written_by`].
    pub(super) fn written_by(&self) -> Option<&str> {
        self.stream.written_by()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        let text = b"one\n\ntwo three\nfour";
        for size in 1..text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next_line().expect("short lines") {
                    found.push(line);
                }
            }
            assert_eq!(found, ["one\n", "\n", "two three\n"], "pieces of {size}");
        }
    }
}

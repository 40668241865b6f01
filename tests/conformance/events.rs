//! Watch streams, read event by event, in JSON and in protobuf.

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use crate::{
    client::{Ask, Endpoint, version_of},
    wire,
};

/// Longer than any watch of the suite is silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) version: u64,
    /// In protobuf only some of its fields.
    pub(crate) object: Value,
    /// The unchanged event as text.
    pub(crate) line: String,
}

impl Event {
    /// `namespace/name`
    pub(crate) fn key(&self) -> String {
        key_of(&self.object)
    }

    /// The first letter of its type, and its version.
    pub(crate) fn recorded(&self) -> (char, u64) {
        (self.kind.chars().next().unwrap_or('?'), self.version)
    }

    /// Whether it is a bookmark whose time is arbitrary, which is any but the one that ends initial events.
    pub(crate) fn is_timed(&self) -> bool {
        self.kind == "BOOKMARK" && !self.line.contains("initial-events-end")
    }
}

/// `namespace/name`
pub(crate) fn key_of(object: &Value) -> String {
    // A Table of one row.
    let object = if object["kind"] == "Table" { &object["rows"][0]["object"] } else { object };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// An open watch.
pub(crate) struct Events {
    body: Incoming,
    buffer: BytesMut,
    is_protobuf: bool,
}

impl Events {
    /// Returns once the head of the response has arrived.
    pub(crate) async fn open(endpoint: &Endpoint, ask: &Ask) -> Result<Self> {
        let answer = endpoint.open(ask).await?;
        ensure!(answer.status() == 200, "{}: {}", ask.path, answer.status());
        let content = answer.headers().get(http::header::CONTENT_TYPE).map_or(&b""[..], |content| content.as_bytes());
        let is_protobuf = content.starts_with(wire::CONTENT.as_bytes());
        Ok(Self { body: answer.into_body(), buffer: BytesMut::new(), is_protobuf })
    }

    /// `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.buffered()? {
                return Ok(Some(event));
            }
            let frame = timeout(SILENCE_MAX, self.body.frame()).await.context("a silent watch")?;
            match frame {
                None => {
                    ensure!(self.buffer.is_empty(), "a watch ended within an event");
                    return Ok(None);
                }
                Some(frame) => {
                    if let Ok(data) = frame.context("a watch broke off")?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Event>> {
        if self.is_protobuf {
            let Some(frame) = wire::split_frame(&mut self.buffer) else { return Ok(None) };
            return frame_event(&frame).context("a frame that is no event").map(Some);
        }
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        event(&self.buffer.split_to(end + 1)).map(Some)
    }

    pub(crate) async fn rest(mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }
}

fn event(line: &[u8]) -> Result<Event> {
    let line = String::from_utf8(line.to_vec())?.trim_end().to_owned();
    let mut value: Value = serde_json::from_str(&line)?;
    let object = value["object"].take();
    let kind = value["type"].as_str().unwrap_or_default().to_owned();
    Ok(Event { kind, version: version_of(&object), object, line })
}

fn frame_event(frame: &[u8]) -> Option<Event> {
    let wire::FrameEvent { kind, metadata } = wire::event(frame)?;
    let line = frame.escape_ascii().to_string();
    let object = serde_json::json!({"metadata": metadata});
    Some(Event { kind, version: version_of(&object), object, line })
}

//! The body of a peer's answer, bounded in size and in pauses.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::connector::ResponseBody;
use base::telemetry::limit_reached;
use engine::reflector::{ByteStream, Failure};

/// The maximum size of a state, in bytes: that of a list of upstream.
const BYTES_MAX: usize = 4 << 30;
/// The maximum pause within a state, which a peer has in memory.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A list or a packed state, as it arrives. Dropping it ends the request.
#[derive(Debug)]
pub struct PeerAnswer {
    body: ResponseBody,
    /// The remaining bytes that it may have.
    left: usize,
    _place: OwnedSemaphorePermit,
}

impl PeerAnswer {
    pub(super) fn new(body: ResponseBody, place: OwnedSemaphorePermit) -> Self {
        Self { body, left: BYTES_MAX, _place: place }
    }
}

impl ByteStream for PeerAnswer {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            let Ok(frame) = timeout(SILENCE_MAX, self.body.frame()).await else {
                return Some(Err(Failure::Unavailable));
            };
            let Ok(frame) = frame? else { return Some(Err(Failure::Unavailable)) };
            let Ok(bytes) = frame.into_data() else { continue };
            let Some(left) = self.left.checked_sub(bytes.len()) else {
                limit_reached("peer_state_bytes");
                return Some(Err(Failure::Unavailable));
            };
            self.left = left;
            return Some(Ok(bytes));
        }
    }
}

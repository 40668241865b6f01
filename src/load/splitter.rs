//! Splits the body of a watch, which arrives in pieces, into its events. Pure.

/// Splits a body into events: lines of JSON, or length-prefixed protobuf messages.
#[derive(Debug)]
pub struct Splitter {
    is_protobuf: bool,
    /// The part that has arrived of an incomplete event; empty between events.
    rest: Vec<u8>,
}

impl Splitter {
    /// For one watch, from its first byte on.
    pub fn new(is_protobuf: bool) -> Self {
        Self { is_protobuf, rest: Vec::new() }
    }

    /// Calls `each` with every event that ends in `piece`: a line with its newline, or a message with the length in
    /// front of it.
    pub fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(&[u8])) {
        if !self.rest.is_empty() {
            // Copies only the rest of the incomplete event.
            while let Some(missing) = self.missing(piece) {
                let (head, tail) = piece.split_at(missing);
                self.rest.extend_from_slice(head);
                piece = tail;
                if self.end(&self.rest) == Some(self.rest.len()) {
                    each(&std::mem::take(&mut self.rest));
                    break;
                }
            }
            if !self.rest.is_empty() {
                self.rest.extend_from_slice(piece);
                return;
            }
        }
        while let Some(end) = self.end(piece) {
            each(&piece[..end]);
            piece = &piece[end..];
        }
        self.rest.extend_from_slice(piece);
    }

    /// The number of bytes of `piece` that belong to the incomplete event, or to its length. `None` if the event does
    /// not end in `piece`.
    fn missing(&self, piece: &[u8]) -> Option<usize> {
        let missing = match (self.is_protobuf, length(&self.rest)) {
            (false, _) => memchr::memchr(b'\n', piece)? + 1,
            (true, None) => 4 - self.rest.len(),
            (true, Some(whole)) => whole.saturating_sub(self.rest.len()),
        };
        (missing <= piece.len()).then_some(missing)
    }

    /// The end of the first event.
    fn end(&self, bytes: &[u8]) -> Option<usize> {
        if self.is_protobuf {
            length(bytes).filter(|end| *end <= bytes.len())
        } else {
            Some(memchr::memchr(b'\n', bytes)? + 1)
        }
    }
}

/// The length of a protobuf message, including the length in front of it.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
    usize::try_from(length).ok()?.checked_add(4)
}

//! The pieces in which bodies are handed to a connection.

/// The number of bytes that are copied for a connection at a time: a connection whose client does not read holds up to
/// two such pieces. Objects that are larger are sent from the bytes that the store holds.
pub(super) const PIECE: usize = 64 << 10;
/// The last piece of a body of several pieces is small. It is handed over when the client has read the preceding ones,
/// so a response only ends when the client has read nearly all of it.
const LAST_PIECE: u64 = 1 << 10;
/// A response of at most this many bytes is a single piece.
pub(super) const ONE_PIECE: u64 = 16 << 10;

/// The length of the next piece of a body that has this many bytes left; `None` at its end.
pub(super) fn chunk_len(left: u64) -> Option<usize> {
    let length = match left {
        0 => return None,
        1..=ONE_PIECE => left,
        _ => left - LAST_PIECE,
    };
    Some(usize::try_from(length).map_or(PIECE, |length| length.min(PIECE)))
}

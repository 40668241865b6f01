//! Splits a watch stream into lines.

use bytes::{Bytes, BytesMut};

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

//! Cuts a watch stream into lines.

use bytes::{Bytes, BytesMut};

/// A line longer than [`Lines::BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {} bytes", Lines::BYTES_MAX)]
pub struct LineTooLong;

/// Collects bytes until a line is whole.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: BytesMut,
    /// Bytes of the buffer that hold no newline.
    searched: usize,
}

impl Lines {
    /// Above any object that etcd takes (1.5 MiB by default, 8 MiB at most in practice) with room for escapes.
    pub const BYTES_MAX: usize = 64 << 20;

    /// Takes what has arrived, wherever it was cut.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, newline included, in an allocation of its own: it may live long, the
    /// buffer it came in must not live with it.
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

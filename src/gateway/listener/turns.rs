//! A socket that takes turns: after some bytes, the tasks of other connections run first.
//!
//! A client that reads fast could otherwise keep a worker for as long as its socket takes bytes, some megabytes at a
//! time: 100 such lists made each other request wait for a sixth of a second.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes of a turn: a tenth of a millisecond. Each turn costs some microseconds.
const TURN: usize = 256 << 10;

pub(super) struct Turns<I, H> {
    stream: I,
    /// What the turn may still write.
    left: usize,
    /// Kept for as long as the socket is open: an upgraded connection outlives the task that served it.
    _held: H,
}

impl<I, H> Turns<I, H> {
    pub(super) fn new(stream: I, held: H) -> Self {
        Self { stream, left: TURN, _held: held }
    }
}

impl<I: AsyncWrite + Unpin, H: Unpin> Turns<I, H> {
    /// Writes with `write` what is left of the turn at most, or ends the turn.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut I>, &mut Context<'_>, usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            self.left = TURN;
            // Behind the tasks that wait already.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(write(Pin::new(&mut self.stream), cx, self.left))?;
        self.left -= written;
        Poll::Ready(Ok(written))
    }
}

impl<I: AsyncRead + Unpin, H: Unpin> AsyncRead for Turns<I, H> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin, H: Unpin> AsyncWrite for Turns<I, H> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx, left| stream.poll_write(cx, &bytes[..bytes.len().min(left)]))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx, left| {
            let ends = slices.iter().scan(0, |end, slice| {
                *end += slice.len();
                Some(*end)
            });
            match (ends.take_while(|end| *end <= left).count(), slices) {
                (0, [first, ..]) => stream.poll_write(cx, &first[..left]),
                (whole, slices) => stream.poll_write_vectored(cx, &slices[..whole]),
            }
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_turn_ends_though_the_socket_takes_more_and_goes_on_by_itself() {
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(5 * TURN).collect();
        let (socket, mut client) = duplex(sent.len());
        let mut socket = Turns::new(socket, ());
        let mut turns = 0;
        let mut writing = Box::pin(socket.write_all(&sent));
        while poll!(&mut writing).is_pending() {
            turns += 1;
        }
        drop(writing);
        assert_eq!(turns, 4);
        drop(socket);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert!(read == sent);
    }

    #[tokio::test]
    async fn slices_are_written_as_far_as_the_turn_goes() {
        let whole = vec![1; TURN - 10];
        for (slices, expected) in [
            (vec![&whole[..], &[2; 10], &[3; 1]], TURN),
            (vec![&whole[..], &[2; 11]], TURN - 10),
            (vec![&[][..], &whole[..]], TURN - 10),
            (vec![&[4; 2 * TURN][..]], TURN),
            (vec![], 0),
        ] {
            let (socket, mut client) = duplex(4 * TURN);
            let mut socket = Turns::new(socket, ());
            let given: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            let written = poll_fn(|cx| Pin::new(&mut socket).poll_write_vectored(cx, &given)).await.unwrap();
            drop(socket);
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.unwrap();
            let all = slices.concat();
            assert!(read == all[..written]);
            // A stream that cannot gather writes the first slice.
            assert!(written == expected || slices.len() > 1 && written <= expected, "{written} of {expected}");
        }
    }
}

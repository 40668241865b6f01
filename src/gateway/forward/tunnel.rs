//! Joins the two connections of an upgraded request: raw bytes both ways until both sides have ended.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::connector::Slot;
use base::fairness::Share;

/// Buffer size for each direction, in bytes.
const BUFFER_BYTES: usize = 16 << 10;

/// Waits until both sides have switched, then copies. The end of one side is passed on while the other may continue;
/// bytes that arrived together with the head are not lost. There is no time limit. The request's place and its client's
/// share are held until the end.
pub(super) async fn join(client: OnUpgrade, upstream: OnUpgrade, slot: Option<Slot>, share: Option<Share>) {
    let ended = async {
        let (client, upstream) = futures_util::try_join!(client, upstream).map_err(std::io::Error::other)?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES).await
    };
    match ended.await {
        Ok((sent, received)) => tracing::debug!(sent, received, "tunnel ended"),
        Err(error) => tracing::debug!(%error, "tunnel broke"),
    }
    drop((slot, share));
}

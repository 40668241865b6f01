//! Connections to the other gateways of the cluster.

use http::Uri;

use super::{RunError, Sockets};
use crate::{connector::Connector, peers::Peers, upstream::Upstream};
use base::{
    config::{CacheConfig, PeersConfig, PemFile},
    lifecycle::Tasks,
};

/// The peers of the configuration, asked with the credentials of `access`; `None` if there are none.
pub(super) async fn peers(
    config: &CacheConfig,
    access: &kube_client::Config,
    sockets: &Sockets,
    upstream: &Upstream,
    tasks: &Tasks,
) -> Result<Option<Peers>, RunError> {
    connected(config, access, upstream, |access| sockets.connector(access, &[], None, tasks)).await
}

/// The same with connectors made by `connect`.
pub(super) async fn connected(
    config: &CacheConfig,
    access: &kube_client::Config,
    upstream: &Upstream,
    connect: impl Fn(&kube_client::Config) -> Result<Connector, RunError>,
) -> Result<Option<Peers>, RunError> {
    let Some(PeersConfig { addresses, ca }) = &config.peers else { return Ok(None) };
    let roots = match ca {
        Some(file) => Some(authorities(file).await.map_err(RunError::Peers)?),
        None => None,
    };
    let connector = |address: &Uri| connect(&of_peer(access, address, roots.as_ref()));
    let connectors = addresses.iter().map(connector).collect::<Result<Vec<_>, _>>()?;
    Peers::new(upstream.clone(), &connectors).map(Some).map_err(RunError::Upstream)
}

/// The gateway's own credentials, for another server.
fn of_peer(access: &kube_client::Config, address: &Uri, roots: Option<&Vec<Vec<u8>>>) -> kube_client::Config {
    let mut of_peer = access.clone();
    of_peer.cluster_url = address.clone();
    of_peer.root_cert = roots.cloned();
    // These are of the connection to the API server.
    (of_peer.accept_invalid_certs, of_peer.tls_server_name, of_peer.proxy_url) = (false, None, None);
    of_peer.headers = Vec::new();
    of_peer
}

async fn authorities(file: &PemFile) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
    let pem = file.read().await?;
    Ok(file.authorities(&pem)?.iter().map(|authority| authority.to_vec()).collect())
}

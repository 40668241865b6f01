//! One address in front of several gateways, like a Service: each connection goes to one of the current gateways.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::client::Endpoint;

/// Distributes connections to its backends in turn.
pub(crate) struct Balancer {
    pub(crate) endpoint: Endpoint,
    listener: TcpListener,
    backends: Mutex<Vec<SocketAddr>>,
}

impl Balancer {
    pub(crate) async fn listen() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = Endpoint::plain(&format!("http://{}", listener.local_addr()?))?;
        Ok(Self { endpoint, listener, backends: Mutex::default() })
    }

    /// Adds a gateway for new connections.
    pub(crate) fn add(&self, gateway: &Endpoint) -> Result<()> {
        self.backends().push(address(gateway)?);
        Ok(())
    }

    /// Removes a gateway for new connections; its open ones continue.
    pub(crate) fn remove(&self, gateway: &Endpoint) -> Result<()> {
        let gone = address(gateway)?;
        self.backends().retain(|backend| *backend != gone);
        Ok(())
    }

    /// Accepts connections until it is dropped, which ends them. A connection that its backend refuses is closed.
    pub(crate) async fn run(&self) -> Result<std::convert::Infallible> {
        let mut connections = JoinSet::new();
        for turn in 0.. {
            let (mut client, _) = self.listener.accept().await?;
            while connections.try_join_next().is_some() {}
            let backend = {
                let backends = self.backends();
                backends.get(turn % backends.len().max(1)).copied()
            };
            connections.spawn(async move {
                if let Some(backend) = backend
                    && let Ok(mut server) = TcpStream::connect(backend).await
                {
                    // Either side may break the connection.
                    drop(copy_bidirectional(&mut client, &mut server).await);
                }
            });
        }
        unreachable!("there is always another turn")
    }

    fn backends(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(gateway: &Endpoint) -> Result<SocketAddr> {
    Ok(gateway.base.trim_start_matches("http://").parse()?)
}

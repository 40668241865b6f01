//! Serves on a TCP port: HTTP/1.1, and HTTP/2 without TLS for clients with prior knowledge.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use base::lifecycle::Tasks;

use crate::{Sim, census::Order, rest, servers::Server};

/// How long open requests may take once the server is asked to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The delay after a failure to accept, for example if no file descriptor is free: an immediate retry would fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Sim {
    /// Serves connections until `stop` is cancelled: then watches end cleanly, and open requests get a short time to
    /// finish. Dropping the future breaks all connections.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => {
                    match accepted {
                        Ok((stream, _)) => {
                            let server = self.simulation().servers.next();
                            connections.spawn(connection(self.clone(), stream, server, stop.clone()));
                        }
                        Err(_) => sleep(ACCEPT_PAUSE).await,
                    }
                }
            }
        }
        drop(listener);
        self.simulation().census.order(None, Order::End);
        let ended = async { while connections.join_next().await.is_some() {} };
        // Dropping the set breaks the connections that remain after the grace period.
        tokio::time::timeout(GRACE, ended).await.unwrap_or_default();
    }

    /// Starts serving on a free port of the loopback address.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub async fn start(&self) -> io::Result<SimServer> {
        self.start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts serving on an address.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub async fn start_at(&self, address: SocketAddr) -> io::Result<SimServer> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let tasks = Tasks::new();
        let (sim, stop) = (self.clone(), tasks.token().clone());
        tasks.spawn("sim", async move { sim.serve(listener, stop).await });
        Ok(SimServer { sim: self.clone(), address, tasks, reserved: Mutex::default() })
    }
}

/// A running server. It continues when this is dropped, so it must be stopped explicitly.
#[derive(Debug)]
pub struct SimServer {
    sim: Sim,
    address: SocketAddr,
    tasks: Tasks,
    /// Reserves the port while the server is down, so that no other program gets it. Connections are refused.
    reserved: Mutex<Option<TcpSocket>>,
}

impl SimServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For example `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends watches cleanly and closes the port.
    pub async fn stop(&self) {
        self.tasks.drain(GRACE * 2).await;
        self.reserve();
    }

    /// Breaks every connection and closes the port, as a crash would.
    pub async fn kill(&self) {
        self.sim.simulation().census.order(None, Order::Cut);
        self.tasks.drain(Duration::ZERO).await;
        self.reserve();
    }

    fn reserve(&self) {
        // Without a reservation the next start fails if another program has the port then.
        *self.reserved() = bound(self.address).ok();
    }

    fn reserved(&self) -> MutexGuard<'_, Option<TcpSocket>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts again on the same port after a stop or a kill. The data is unchanged; watches from earlier versions get
    /// 410.
    ///
    /// # Errors
    /// Another program has taken the port.
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.sim.forget_history();
        drop(self.reserved().take());
        *self = self.sim.start_at(self.address).await?;
        Ok(())
    }
}

/// A socket at this address, which does not listen.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections that have just been closed keep the address for a while.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn connection<I>(sim: Sim, stream: I, server: Server, stop: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let sim = sim.clone();
        request.extensions_mut().insert(server);
        async move { Ok::<_, Infallible>(rest::answer(sim.simulation(), request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            // However the connection ended, the client notices it.
            _ = &mut connection => return,
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper_util::client::legacy::Client;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    const WATCH: &[u8] =
        b"GET /api/v1/pods?watch=1&resourceVersion=5 HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n";

    /// Everything that the server sends for a watch after `fault`.
    async fn watched(fault: impl AsyncFnOnce(&Sim, &SimServer)) -> String {
        let sim = Sim::new();
        let server = sim.start().await.unwrap();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(WATCH).await.unwrap();
        sim.until(|counts| counts.open_watches("pods") == 1).await;
        // The headers arrive before any event.
        let mut text = vec![0; 12];
        stream.read_exact(&mut text).await.unwrap();
        fault(&sim, &server).await;
        // A broken connection may appear as an error or as an end.
        stream.read_to_end(&mut text).await.ok();
        server.stop().await;
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn an_ended_watch_is_complete_and_a_cut_one_is_not() {
        let last_chunk = "\r\n0\r\n\r\n";
        let ended = watched(async |sim, _| sim.end_watches(None)).await;
        assert!(ended.starts_with("HTTP/1.1 200") && ended.ends_with(last_chunk), "{ended}");
        let stopped = watched(async |_, server| server.stop().await).await;
        assert!(stopped.ends_with(last_chunk), "{stopped}");
        let cut = watched(async |sim, _| sim.cut_watches(Some("pods"))).await;
        assert!(cut.starts_with("HTTP/1.1 200") && !cut.ends_with(last_chunk), "{cut}");
        let killed = watched(async |_, server| server.kill().await).await;
        assert!(!killed.ends_with(last_chunk), "{killed}");
    }

    #[tokio::test]
    async fn http2_with_prior_knowledge_is_served() {
        let server = Sim::new().start().await.unwrap();
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
        let response = client.get(format!("{}/version", server.url()).parse().unwrap()).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
        server.stop().await;
    }
}

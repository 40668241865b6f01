//! Binds listening sockets.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Mutex, mpsc},
};

use crate::listener::io::Io;
use crate::listener::tls::{Tls, TlsError};
use base::config::{Address, ListenerConfig};

/// A listening socket and its TLS certificate.
#[derive(Debug)]
pub struct Bound {
    pub(super) socket: Socket,
    pub(super) tls: Option<Tls>,
    pub(super) max_connection_age: Option<Duration>,
    address: Address,
}

/// A listener cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}{}", advice(source))]
    Listen { address: Address, source: io::Error },
    #[error("cannot set up TLS on {address}")]
    Tls { address: Address, source: TlsError },
}

/// What to do about an error of binding, where its own words do not say it. A demo and a gateway without a
/// configuration have the same addresses.
fn advice(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrInUse {
        ", where another process listens: end it, or name another address with --listen, --admin-listen, or in the \
         configuration"
    } else if kind == io::ErrorKind::AddrNotAvailable {
        ", which is no address of this machine"
    } else {
        ""
    }
}

/// Binds the address, and loads the certificate if TLS is configured.
///
/// # Errors
/// The address is in use or not of this machine; the certificate cannot be read or used.
pub async fn bind(config: &ListenerConfig) -> Result<Bound, BindError> {
    let address = config.address.clone();
    let tls = match &config.tls {
        Some(tls) => Some(Tls::load(tls).await.map_err(|source| BindError::Tls { address: address.clone(), source })?),
        None => None,
    };
    match Socket::bind(&address).await {
        Ok((socket, address)) => Ok(Bound { socket, tls, max_connection_age: config.max_connection_age, address }),
        Err(source) => Err(BindError::Listen { address, source }),
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Accepted").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Bound {
    /// Connections that the embedder accepts, in place of a socket. There are no more once the sender is dropped.
    pub fn embedded(config: &ListenerConfig, connections: mpsc::Receiver<Accepted>) -> Self {
        Self {
            socket: Socket::Embedded(Mutex::new(connections)),
            tls: None,
            max_connection_age: config.max_connection_age,
            address: config.address.clone(),
        }
    }

    /// The address it listens on. If the configured port was 0, this has the one chosen by the system.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
    /// Connections that the embedder has accepted.
    Embedded(Mutex<mpsc::Receiver<Accepted>>),
}

/// One accepted connection.
pub struct Accepted {
    pub stream: Io,
    /// The client's address; `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
}

/// File mode of a Unix socket: the owner and the group may connect. In `trusted` mode, write permission lets a client
/// act as the gateway.
const UNIX_SOCKET_MODE: u32 = 0o660;

/// Idle time before TCP keepalive probes: an idle watch would not notice otherwise that its peer is gone.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A connection ends when sent data stays unacknowledged for this long: the peer is gone, or the client has stopped
/// reading and its window stays shut. Much longer than a client takes to handle what it has read.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

impl Socket {
    async fn bind(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Self::Tcp(listener), address))
            }
            Address::Unix(path) => Ok((Self::Unix(UnixSocket::bind(path).await?), address.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = set_options(&stream) {
                    // The client has disconnected already; reading from the stream will show it.
                    tracing::debug!(%error, %peer, "socket options not set");
                }
                Ok(Accepted { stream: Box::new(stream), peer: Some(peer) })
            }
            Self::Unix(socket) => Ok(Accepted { stream: Box::new(socket.listener.accept().await?.0), peer: None }),
            Self::Embedded(connections) => match connections.lock().await.recv().await {
                Some(accepted) => Ok(accepted),
                None => std::future::pending().await,
            },
        }
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Events are small and must not wait for each other (Nagle's algorithm).
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(())
}

/// A Unix socket and its file, which is removed when the listener is dropped.
#[derive(Debug)]
pub(super) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Binds under a temporary name and sets the mode before renaming, so that no client connects in between. A socket
    /// file left by a dead process is replaced.
    async fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        let mut unnamed = path.as_os_str().to_owned();
        unnamed.push(format!(".{}", std::process::id()));
        let unnamed = PathBuf::from(unnamed);
        let mut socket = Self { listener: UnixListener::bind(&unnamed)?, path: unnamed };
        fs::set_permissions(&socket.path, fs::Permissions::from_mode(UNIX_SOCKET_MODE))?;
        fs::rename(&socket.path, path)?;
        path.clone_into(&mut socket.path);
        Ok(socket)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "socket file not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &Path) -> ListenerConfig {
        ListenerConfig::plain(Address::Unix(path.to_owned()))
    }

    #[tokio::test]
    async fn the_system_may_choose_the_port() {
        let config = ListenerConfig::plain("127.0.0.1:0".parse().unwrap());
        let bound = bind(&config).await.unwrap();
        let Address::Tcp(address) = bound.address() else { panic!("{bound:?}") };
        assert_ne!(address.port(), 0);
        let taken = ListenerConfig::plain(bound.address().clone());
        assert!(matches!(bind(&taken).await, Err(BindError::Listen { .. })));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn accepted_sockets_detect_clients_that_are_gone() {
        let config = ListenerConfig::plain("127.0.0.1:0".parse().unwrap());
        let bound = bind(&config).await.unwrap();
        let Address::Tcp(address) = bound.address() else { panic!("{bound:?}") };
        let Socket::Tcp(listener) = &bound.socket else { panic!("{bound:?}") };
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let stream = accepted.unwrap().0;
        set_options(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_MAX));
        assert!(socket.keepalive().unwrap());
    }

    #[tokio::test]
    async fn a_socket_file_is_for_owner_and_group_and_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let bound = bind(&unix(&path)).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UNIX_SOCKET_MODE);
        assert!(matches!(bind(&unix(&path)).await, Err(BindError::Listen { .. })));
        drop(bound);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_any_other_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(bind(&unix(&path)).await.unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(bind(&unix(&path)).await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}

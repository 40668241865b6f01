//! From an address to a socket that listens.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::{Address, ListenerConfig};
use crate::listener::tls::{Tls, TlsError};

/// A socket that listens, and the certificate it shows.
#[derive(Debug)]
pub struct Bound {
    pub(super) socket: Socket,
    pub(super) tls: Option<Tls>,
    pub(super) max_connection_age: Option<Duration>,
    address: Address,
}

/// The listener's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}")]
    Listen { address: Address, source: io::Error },
    #[error("no TLS on {address}")]
    Tls { address: Address, source: TlsError },
}

/// Listens, and reads the certificate.
///
/// # Errors
/// The address is taken or not of this machine; the certificate cannot be read or used.
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

impl Bound {
    /// Where it listens: with the port that the system chose, if the configuration left it the choice.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// One accepted connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// A Unix socket's file: in `trusted` mode whoever may write to it acts as the gateway, so the owner and the group do.
const UNIX_SOCKET_MODE: u32 = 0o660;

/// After this much silence the peer is asked whether it is still there: an idle watch would not notice otherwise.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes that the client's machine does not take for this long end the connection: it is gone, or the client has stopped
/// to read and its window stays shut. Much longer than a client is busy with what it has read.
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

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = set_options(&stream) {
                    // The client went already: whoever reads from the stream will see.
                    tracing::debug!(%error, %peer, "socket options not set");
                }
                Ok(Stream::Tcp(stream, peer))
            }
            Self::Unix(socket) => Ok(Stream::Unix(socket.listener.accept().await?.0)),
        }
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Events are small and must not wait for each other.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(())
}

/// A Unix socket, and its file: gone when nobody listens there any more.
#[derive(Debug)]
pub(super) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// The file gets its mode before it gets its name: nobody can connect in between. A file that a dead process left
    /// is replaced.
    async fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
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
    async fn clients_that_are_gone_or_do_not_read_lose_their_connection() {
        let config = ListenerConfig::plain("127.0.0.1:0".parse().unwrap());
        let bound = bind(&config).await.unwrap();
        let Address::Tcp(address) = bound.address() else { panic!("{bound:?}") };
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), bound.socket.accept());
        let Stream::Tcp(stream, _) = accepted.unwrap() else { panic!("{address}") };
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

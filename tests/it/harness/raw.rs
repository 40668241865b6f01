//! A client that only reads when the test tells it to.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use super::{Client, client::USER_AGENT};

/// Small, so that unread data soon stays with the sender.
const RECEIVE_BUFFER: u32 = 4_096;

/// One request on its own connection.
#[derive(Debug)]
pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Sends the request and reads nothing.
    pub(crate) async fn open(client: &Client, path: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        let mut stream = socket.connect(client.address()).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {USER_AGENT}raw\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(stream)
    }

    /// The first bytes of what was sent and not read yet.
    pub(crate) async fn some(&mut self) -> String {
        let mut bytes = vec![0; RECEIVE_BUFFER as usize];
        let read = self.0.read(&mut bytes).await.unwrap();
        bytes.truncate(read);
        String::from_utf8(bytes).unwrap()
    }

    /// Everything up to the first bytes that end with this text.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut read = String::new();
        while !read.ends_with(end) {
            read.push_str(&self.some().await);
        }
        read
    }

    /// Everything that was and will be sent.
    pub(crate) async fn rest(&mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).await.unwrap();
        text
    }
}

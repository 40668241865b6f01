//! What a node and a replica say to each other, over HTTP/1.1 and without TLS.

use std::str;

use memchr::memmem;

use crate::{
    open::{Counted, Open},
    probe::PROBE,
    world::Forwarded,
};

/// What a gateway's name in `Via` begins with.
const NAME: &[u8] = b"kube-fanout-";
/// The length of the rest, which is random.
const NAME_REST: usize = 32;
const USER_AGENT: &[u8] = b"\r\nuser-agent: ";

/// One connection of a node to a replica.
pub(crate) struct Conversation {
    forwarded: Forwarded,
    open: Open,
    /// The node.
    from: usize,
    /// The watch that the connection carries.
    watch: Option<Counted>,
    /// The connection, as one of those that the replica has from nodes.
    _accepted: Counted,
}

impl Conversation {
    pub(crate) fn new(forwarded: Forwarded, open: Open, from: usize, to: usize) -> Self {
        let accepted = open.accepted(to);
        Self { forwarded, open, from, watch: None, _accepted: accepted }
    }

    /// What the node sends, with a name of its own in `Via`. All gateways share a process, and with it the name by
    /// which a gateway knows its own requests when they come back: a replica would refuse those of a node as a loop.
    pub(crate) fn renamed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let name = format!("{:0NAME_REST$}", self.from);
        let begins: Vec<_> = memmem::find_iter(&bytes, NAME).map(|begin| begin + NAME.len()).collect();
        for begin in begins {
            let rest = bytes.get_mut(begin..begin + NAME_REST);
            if let Some(rest) = rest.filter(|rest| rest.iter().all(u8::is_ascii_hexdigit)) {
                rest.copy_from_slice(name.as_bytes());
            }
        }
        bytes
    }

    /// The node has sent this. The head of a request is sent at once.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let Some(end) = memmem::find(bytes, b" HTTP/1.1\r\n") else { return };
        let is_watch = memmem::find(&bytes[..end], b"watch=").is_some();
        self.watch = is_watch.then(|| self.open.watched(self.from));
        let Some(begin) = memmem::find(bytes, USER_AGENT) else { return };
        let agent = bytes[begin + USER_AGENT.len()..].split(|byte| *byte == b'\r').next();
        let agent = agent.and_then(|agent| str::from_utf8(agent).ok());
        if let Some(agent) = agent.filter(|agent| agent.starts_with(PROBE)) {
            self.forwarded.lock().unwrap().push(agent.to_owned());
        }
    }

    /// The replica has sent this. A watch is over with its last chunk, or was refused.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let is_refused = bytes.starts_with(b"HTTP/1.1 ") && !bytes.starts_with(b"HTTP/1.1 200");
        if is_refused || bytes == b"0\r\n\r\n" || bytes.ends_with(b"\r\n0\r\n\r\n") {
            self.watch = None;
        }
    }
}

//! A relay to a server that can be closed.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;

/// Relays bytes while it is open. Its threads end with the process.
pub(super) struct Relay {
    pub(super) address: String,
    state: Arc<State>,
}

struct State {
    is_open: AtomicBool,
    /// Both ends of every connection.
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts in front of `target`, an address.
    pub(super) fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(State { is_open: AtomicBool::new(true), streams: Mutex::default() });
        let (accepting, target) = (state.clone(), target.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                // A client whose connection ends at once notices it.
                accepting.pass(client, &target).ok();
            }
        });
        Ok(Self { address, state })
    }

    /// Ends all connections, and refuses new ones.
    pub(super) fn close(&self) {
        self.state.is_open.store(false, Ordering::SeqCst);
        for stream in self.state.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may have ended already.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    pub(super) fn open(&self) {
        self.state.is_open.store(true, Ordering::SeqCst);
    }
}

impl State {
    fn pass(&self, client: TcpStream, target: &str) -> io::Result<()> {
        if !self.is_open.load(Ordering::SeqCst) {
            return Ok(());
        }
        let server = TcpStream::connect(target)?;
        for (mut from, mut to) in
            [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)]
        {
            thread::spawn(move || {
                io::copy(&mut from, &mut to).ok();
                to.shutdown(Shutdown::Write).ok();
            });
        }
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).extend([client, server]);
        Ok(())
    }
}

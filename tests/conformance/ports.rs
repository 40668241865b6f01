//! Ports for the programs that the suite starts.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result};

/// The start of the range from which Linux assigns ports to connections, and to listeners without a fixed port.
const EPHEMERAL: u16 = 32_768;
const FIRST: u16 = 20_000;

/// A free port of 127.0.0.1 that stays free: it is not returned twice, and the system does not assign it to
/// connections.
pub(crate) fn free_port() -> Result<u16> {
    const SPAN: u16 = EPHEMERAL - FIRST;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another suite on this machine starts at another port.
    let start = u16::try_from(process::id() % 199)? * 64;
    (0..SPAN)
        .map(|_| FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("no port of 127.0.0.1 from {FIRST} to {EPHEMERAL} is free"))
}

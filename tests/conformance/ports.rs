//! Ports for the programs that a suite starts.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result};

/// Where Linux begins to give ports to connections, and to listeners that ask for none in particular.
const EPHEMERAL: u16 = 32_768;
const FIRST: u16 = 20_000;

/// A port of 127.0.0.1 that is free, and stays so: it is not given twice, and the system gives it to no connection.
pub(crate) fn free_port() -> Result<u16> {
    const SPAN: u16 = EPHEMERAL - FIRST;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another suite on this machine begins elsewhere.
    let start = u16::try_from(process::id() % 199)? * 64;
    (0..SPAN)
        .map(|_| FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("no port of 127.0.0.1 from {FIRST} to {EPHEMERAL} is free"))
}

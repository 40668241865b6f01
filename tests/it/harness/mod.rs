//! The foundation of the tests: a gateway in this process, upstreams for it, clients, and the access log, which shows
//! from where each request was answered.

pub(crate) mod access;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod delegated;
pub(crate) mod gateway;
pub(crate) mod guarded;
pub(crate) mod informer;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod replay;
pub(crate) mod seed;
pub(crate) mod selection;
pub(crate) mod serving;
pub(crate) mod upstream;
pub(crate) mod wait;
pub(crate) mod world;

pub(crate) use access::{Route, forwarded, rejected};
pub(crate) use client::{Answer, Client, Watch};
pub(crate) use gateway::Gateway;
pub(crate) use informer::{Informer, Told};
pub(crate) use selection::Selection;
pub(crate) use wait::{passing, skip, until, within};
pub(crate) use world::World;

//! The gateway: accepts requests, authorizes them, and answers from the watch cache or from upstream. [`run`] wires the
//! modules together.

pub mod admin;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod cacher;
pub mod connector;
pub mod forward;
pub mod handler;
pub mod listener;
pub mod peers;
pub mod persist;
pub mod run;
pub mod serve;
pub mod status;
pub mod status_command;
pub mod traces;
pub mod upstream;

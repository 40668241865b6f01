//! kube-fanout: a watch cache and fan-out gateway in front of a Kubernetes API server.

pub mod admin;
pub mod apimachinery;
pub mod authn;
pub mod authz;
pub mod cacher;
pub mod config;
pub mod encode;
pub mod fanout;
pub mod forward;
pub mod gateway;
pub mod lifecycle;
pub mod listener;
pub mod reflector;
pub mod serve;
pub mod sim;
pub mod store;
pub mod telemetry;
pub mod upstream;

mod run;

pub use run::{RunError, Sockets, run, run_config};

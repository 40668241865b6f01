//! What the gateway does and promises, in prose. Has no code.
//!
//! 1. [`request_path`]: what is answered from where, and every reason for forwarding.
//! 2. [`consistency`]: what versions mean here, how a cache is proven fresh, and what happens when something fails.
//! 3. [`old_upstreams`]: how today's clients work before a server without watch-list.
//! 4. [`operations`]: health, metrics, logs, every limit with its default, rights that the gateway needs.
//! 5. [`changelog`].

pub mod changelog;
pub mod consistency;
pub mod old_upstreams;
pub mod operations;
pub mod request_path;

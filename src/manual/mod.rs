//! The manual: what the gateway does and guarantees. Contains no code.
//!
//! 1. [`topologies`]: where gateways run, what each way costs, and what does not work yet.
//! 2. [`sizing`]: how much one gateway carries, and the replicas and memory that a cluster needs.
//! 3. [`operations`]: configuration, rights, health, metrics, logs, every limit with its default.
//! 4. [`status`]: the status page, `/status.json` and `kube-fanout status`.
//! 5. [`alerts`]: what each alert of the chart means, and what to do.
//! 6. [`identity`]: what each user may read in delegated mode, and the identity of forwarded requests.
//! 7. [`threat_model`]: what is protected, what each party is trusted with, what an attacker at each position can do.
//! 8. [`request_path`]: what is answered from where, and every reason for forwarding.
//! 9. [`consistency`]: the meaning of versions, how a cache is proven fresh, and what happens when something fails.
//! 10. [`read_path`]: the responses of an API server, rule by rule, to which the code refers as `read-path 1.2`.
//! 11. [`old_upstreams`]: how current clients work with a server without watch-list.
//! 12. [`figures`]: the costs compared with the API server, and how to repeat them.
//! 13. [`load`]: `kube-fanout load`: profiles, what is measured and how, the report.
//! 14. [`changelog`].
//!
//! `mdbook build src/manual` renders the same files (`SUMMARY.md`, `book.toml`).

pub mod alerts {
    #![doc = include_str!("alerts.md")]
}
pub mod changelog {
    #![doc = include_str!("../../CHANGELOG.md")]
}
pub mod consistency {
    #![doc = include_str!("consistency.md")]
}
pub mod figures {
    #![doc = include_str!("figures.md")]
}
pub mod identity {
    #![doc = include_str!("identity.md")]
}
pub mod load {
    #![doc = include_str!("load.md")]
}
pub mod old_upstreams {
    #![doc = include_str!("old_upstreams.md")]
}
pub mod operations {
    #![doc = include_str!("operations.md")]
}
pub mod read_path {
    #![doc = include_str!("read_path.md")]
}
pub mod request_path {
    #![doc = include_str!("request_path.md")]
}
pub mod sizing {
    #![doc = include_str!("sizing.md")]
}
pub mod status {
    #![doc = include_str!("status.md")]
}
pub mod threat_model {
    #![doc = include_str!("threat_model.md")]
}
pub mod topologies {
    #![doc = include_str!("topologies.md")]
}

//! The manual: what the gateway does and guarantees. Contains no code.
//!
//! 1. [`request_path`]: what is answered from where, and every reason for forwarding.
//! 2. [`identity`]: what each user may read in delegated mode, and the identity of forwarded requests.
//! 3. [`threat_model`]: what is protected, what each party is trusted with, what an attacker at each position can do.
//! 4. [`consistency`]: the meaning of versions, how a cache is proven fresh, and what happens when something fails.
//! 5. [`read_path`]: the responses of an API server, rule by rule, to which the code refers as `read-path 1.2`.
//! 6. [`old_upstreams`]: how current clients work with a server without watch-list.
//! 7. [`operations`]: rights that the gateway needs, health, metrics, logs, every limit with its default.
//! 8. [`status`]: the status page, `/status.json` and `kube-fanout status`.
//! 9. [`alerts`]: what each alert of the chart means, and what to do.
//! 10. [`figures`]: the costs compared with the API server.
//! 11. [`load`]: `kube-fanout load`: profiles, what is measured and how, the report.
//! 12. [`sizing`]: how much one gateway carries, and the replicas and memory that a cluster needs.
//! 13. [`changelog`].

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

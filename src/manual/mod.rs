//! What the gateway does and promises, in prose. Has no code.
//!
//! 1. [`request_path`]: what is answered from where, and every reason for forwarding.
//! 2. [`identity`]: who may read what, in delegated mode, and as whom requests go upstream.
//! 3. [`threat_model`]: what is protected, who is trusted with what, what an attacker at each position can do.
//! 4. [`consistency`]: what versions mean here, how a cache is proven fresh, and what happens when something fails.
//! 5. [`read_path`]: what an API server answers, rule by rule; what the code means by `read-path 1.2`.
//! 6. [`old_upstreams`]: how today's clients work with a server without watch-list.
//! 7. [`operations`]: rights that the gateway needs, health, metrics, logs, every limit with its default.
//! 8. [`status`]: the status page, `/status.json` and `kube-fanout status`.
//! 9. [`alerts`]: what each alert of the chart means, and what to do.
//! 10. [`figures`]: what it costs, beside the API server.
//! 11. [`load`]: `kube-fanout load`: profiles, what is measured and how, the report.
//! 12. [`changelog`].

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
pub mod status {
    #![doc = include_str!("status.md")]
}
pub mod threat_model {
    #![doc = include_str!("threat_model.md")]
}

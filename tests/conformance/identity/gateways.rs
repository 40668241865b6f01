//! Gateways in `delegated` mode in front of the server, and how they assert verified users to it.

use anyhow::Result;
use tokio::time::Duration;

use super::users::{Caller, User};
use crate::{certificates::Certificates, client::Protocol, gateway::Gateway, ports::free_port, servers::Server};

/// How long they keep the results of reviews.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How often they review the users of watches: the minimum that is allowed.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(10);

/// A gateway that authenticates its clients.
pub(crate) struct Delegated {
    pub(crate) gateway: Gateway,
    /// The URL with TLS.
    pub(crate) secure: String,
    /// The URL without TLS, for this machine only.
    pub(super) plain: String,
    asserts: Asserts,
}

/// How users of certificates and front proxies are asserted upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asserts {
    FrontProxy,
    /// With a certificate of the clients' authority, which the server takes for an administrator's.
    MisplacedProxy,
    Impersonation,
}

impl Delegated {
    /// Reviews are sent to `reviews` if it is given, otherwise to the server.
    pub(crate) async fn start(
        name: &str,
        asserts: Asserts,
        reviews: Option<&str>,
        server: &Server,
        certificates: &Certificates,
    ) -> Result<Self> {
        Self::start_with(name, "", asserts, reviews, server, certificates).await
    }

    /// The same with further `limits` of the configuration.
    pub(crate) async fn start_with(
        name: &str,
        limits: &str,
        asserts: Asserts,
        reviews: Option<&str>,
        server: &Server,
        certificates: &Certificates,
    ) -> Result<Self> {
        let (secure, plain) = (free_port()?, free_port()?);
        let token = "conformance-gateway";
        let upstream = certificates.kubeconfig_of(&format!("{name}-upstream"), &server.endpoint.base, token)?;
        let reviews = match reviews {
            Some(url) => {
                let path = certificates.kubeconfig_of(&format!("{name}-reviews"), url, token)?;
                format!(", kubeconfig: \"{}\"", path.display())
            }
            None => String::new(),
        };
        let file = |name: &str| certificates.file(name);
        let proxy = |name: &str| {
            let [certificate, key] = ["crt", "key"].map(|kind| file(&format!("{name}.{kind}")));
            format!("frontProxy: {{certFile: \"{certificate}\", keyFile: \"{key}\"}}")
        };
        let identity = match asserts {
            Asserts::FrontProxy => proxy("front-proxy"),
            Asserts::MisplacedProxy => proxy("masters-proxy"),
            Asserts::Impersonation => "impersonation: {}".to_owned(),
        };
        let fields = format!(
            "listeners:\n\
             - {{address: \"127.0.0.1:{secure}\", tls: {{certFile: \"{}\", keyFile: \"{}\"}}}}\n\
             - {{address: \"127.0.0.1:{plain}\"}}\n\
             upstream: {{kubeconfig: \"{}\"}}\n\
             clients:\n\
             \x20 mode: delegated\n\
             \x20 authentication:\n\
             \x20   {{clientCAFile: \"{}\", requestHeader: {{caFile: \"{}\", allowedNames: [front-proxy]}}, \
                   tokenReview: {{successTTL: {ttl}s}}, anonymous: true{reviews}}}\n\
             \x20 authorization: {{allowedTTL: {ttl}s, deniedTTL: {ttl}s, watchInterval: {interval}s{reviews}}}\n\
             \x20 identity: {{{identity}}}\n\
             cache: {{exclude: [events, events.events.k8s.io]}}\n\
             limits: {{answerBytes: 256Mi{limits}}}",
            file("server.crt"),
            file("server.key"),
            upstream.display(),
            file("ca.crt"),
            file("front-ca.crt"),
            ttl = TTL.as_secs(),
            interval = WATCH_INTERVAL.as_secs(),
        );
        let (secure, plain) = (format!("https://127.0.0.1:{secure}"), format!("http://127.0.0.1:{plain}"));
        let gateway = Gateway::delegated(name, &fields, &secure, certificates).await?;
        Ok(Self { gateway, secure, plain, asserts })
    }

    /// The connections of these users over TLS, in the same order.
    pub(super) fn callers(&self, users: &[User], certificates: &Certificates, how: Protocol) -> Result<Vec<Caller>> {
        users.iter().map(|user| user.calls(&self.secure, certificates, how)).collect()
    }

    /// Whether the gateway refuses the requests of this user, because it could only send them as another user:
    /// impersonation cannot be nested, and `system:anonymous` can only be impersonated with a group of its own
    /// (read-path 8.4).
    pub(super) fn rejects(&self, user: &User) -> bool {
        self.asserts == Asserts::Impersonation && user.is_verified() && (user.impersonates() || user.is_anonymous())
    }

    /// Returns when memory holds the collections of the matrix.
    pub(crate) async fn warm(&self) -> Result<()> {
        for collection in ["pods", "secrets", "configmaps", "namespaces", "nodes"] {
            self.gateway.warm(&format!("/api/v1/{collection}")).await?;
        }
        self.gateway.warm_as("/api/v1/pods", "application/vnd.kubernetes.protobuf").await
    }

    /// Returns when memory holds the custom resources of the matrix.
    pub(super) async fn warm_custom(&self) -> Result<()> {
        for collection in ["widgets", "zones"] {
            self.gateway.warm(&format!("/apis/conf.example.com/v1/{collection}")).await?;
        }
        Ok(())
    }
}

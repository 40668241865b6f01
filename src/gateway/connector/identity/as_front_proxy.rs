//! Clients that the gateway has verified and asserts to upstream with a front proxy's certificate.

use std::sync::Arc;

use http::Request;

use super::{
    Connections, IdentityError, Limits, Outbound, UNKNOWN_LIMITS,
    probe::Prober,
    strip,
    user_headers::{self, Names},
};
use crate::connector::{
    BuildError, RequestBody, acceptance::AcceptanceState, access::Access, client_certificate::ClientCertificate,
    target::Target,
};
use base::apimachinery::UserInfo;
use base::config::{ProxyHeaders, Redacted, TlsFiles};
use base::fairness::ClientKey;
use base::lifecycle::Tasks;

/// Sends requests with the front proxy's certificate and a verified user in X-Remote-*. Cheap to clone.
///
/// Upstream accepts them if the certificate is from its request-header CA and has an allowed name (read-path 8.1). That
/// CA must not be among its client CAs, where the certificate would authenticate a user itself. So nothing is sent to a
/// server that has not shown that it accepts them ([`Self::probe`]), and another certificate in the files is used only
/// after a server has shown that it accepts that one.
#[derive(Clone, Debug)]
pub struct AsFrontProxy {
    connections: Arc<Connections>,
    /// For the anonymous user: upstream ends the HTTP/2 connection of an unauthenticated request.
    anonymous: Arc<Connections>,
    headers: Arc<ProxyHeaders>,
    names: Arc<Names>,
    pub(super) prober: Arc<Prober>,
}

const LIMITS: Limits = Limits { requests: "upstream_front_proxy_requests", upgrades: "upstream_front_proxy_upgrades" };

impl AsFrontProxy {
    /// Uses only the server's verification and the proxy of `access`.
    ///
    /// # Errors
    /// The configuration or the files cannot be used, or upstream is reached without TLS.
    pub(in crate::connector) fn new(
        access: &Access,
        target: Target,
        certificate: &TlsFiles,
        headers: ProxyHeaders,
        tasks: &Tasks,
    ) -> Result<Self, BuildError> {
        let address = &access.config().cluster_url;
        if address.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(BuildError::ClearText(Redacted::url(address)));
        }
        let files = ClientCertificate::load_probed(certificate.clone()).map_err(BuildError::Certificate)?;
        files.follow(tasks);
        let prober = Arc::new(Prober::new(access, target.clone(), files)?);
        let access = access.with_certificate(prober.in_use.clone())?.only_to(&prober.acceptance);
        let anonymous = Connections::one_at_a_time(&access, target.clone(), UNKNOWN_LIMITS);
        let names = Arc::new(Names::of(&headers));
        let connections = Connections::new(&access, target, LIMITS);
        Ok(Self { connections, anonymous, headers: Arc::new(headers), names, prober })
    }

    /// Whether few more watches of that client would get a place.
    pub fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        self.connections.are_scarce_for(client)
    }

    /// The request under the user's identity, without any other credentials. Impersonate-* is passed on: upstream
    /// authorizes the user.
    ///
    /// # Errors
    /// The user cannot be expressed exactly, or upstream has not shown that it accepts the certificate.
    pub fn outbound(&self, mut request: Request<RequestBody>, user: &UserInfo) -> Result<Outbound, IdentityError> {
        match self.prober.acceptance.best() {
            AcceptanceState::Accepted => {}
            AcceptanceState::Refused => return Err(IdentityError::NotBelieved),
            AcceptanceState::Undecided => return Err(IdentityError::Undecided),
        }
        self.assert(&mut request, user)?;
        let connections = if user.name == user_headers::ANONYMOUS { &self.anonymous } else { &self.connections };
        Ok(connections.outbound(request))
    }

    /// Why the certificate is not used at any server.
    pub fn doubt(&self) -> Option<&'static str> {
        match self.prober.acceptance.best() {
            AcceptanceState::Accepted => None,
            AcceptanceState::Refused => Some(
                "the API server does not accept the certificate of clients.identity.frontProxy; clients that it would \
                 have to name are not forwarded (the log says why)",
            ),
            AcceptanceState::Undecided => Some(
                "the API server has not shown yet whether it accepts the certificate of clients.identity.frontProxy; \
                 clients that it would have to name are not forwarded until then (the log says why)",
            ),
        }
    }

    /// Puts the user on a request, in place of any other credentials.
    pub(super) fn assert(&self, request: &mut Request<RequestBody>, user: &UserInfo) -> Result<(), IdentityError> {
        let asserted = user_headers::front_proxy(user, &self.names)?;
        strip::strip_credentials_and(request.headers_mut(), &self.headers);
        user_headers::add(request.headers_mut(), asserted)
    }

    /// The same, as if the first server had shown that it accepts the certificate.
    #[cfg(test)]
    pub(crate) fn accepted(self) -> Self {
        self.prober.acceptance.note(0, &crate::connector::Verdict::Accepted, tokio::time::Instant::now());
        self
    }
}

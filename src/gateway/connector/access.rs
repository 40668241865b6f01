//! How to reach upstream and with which credentials, resolved once: an exec plugin runs once for TLS and once for a
//! token, regardless of the number of connections.

use std::{fmt, sync::Arc};

use http::{Request, Response, header::AUTHORIZATION};
use kube_client::{
    Config,
    client::{
        AuthError, ConfigExt,
        middleware::{AuthLayer, ExtraHeadersLayer},
    },
    config::AuthInfo,
};
use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use tower::{
    Service, ServiceBuilder, ServiceExt,
    util::{BoxCloneSyncService, option_layer},
};

use base::{
    config::{Redacted, TokenFile, with_needed_authorities},
    lifecycle::Tasks,
};

use super::{
    BoxError, BuildError, RequestBody,
    acceptance::Acceptance,
    client_certificate::{ClientCertificate, Presented},
    connection_closer::ConnectionCloser,
    dialer::{Dial, DialTarget, Dialer, Protocols, dial},
    response_body::Received,
    servers::{Choice, Route, Servers},
    silence::{Requests, Silence, UnlessSilent},
    socket::SocketOpener,
};

/// Sends one request with the credentials of its `Access`.
pub(super) type Transport = BoxCloneSyncService<Request<RequestBody>, Response<Received>, BoxError>;

/// TLS, credentials, headers and proxy from kube-client's configuration; credentials may be left out.
pub(super) struct Access {
    config: Config,
    sockets: SocketOpener,
    /// `None` if there is only the address of the configuration.
    servers: Option<Servers>,
    /// Which servers connections may go to; `None` for each that is of the cluster.
    acceptance: Option<Acceptance>,
    cluster: ConnectionCloser,
    silence: Silence,
    dial: Dial,
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    /// The client certificate, if it can change: connections break when it does.
    presented: Option<Arc<Presented>>,
    /// Its files, if they alone decide what it is.
    certificate: Option<Arc<ClientCertificate>>,
    /// Reads a token that rotates in a file. Shared by all transports.
    token: Option<TokenFile>,
    /// Refreshes tokens of plugins, which expire. Shared by all transports.
    credentials: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
}

impl Access {
    /// The server and the gateway's own credentials. Connections break when `cluster` trips.
    pub(super) fn new(
        config: Config,
        sockets: SocketOpener,
        servers: Option<Servers>,
        cluster: ConnectionCloser,
    ) -> Result<Self, BuildError> {
        let certificate = ClientCertificate::of(&config.auth_info).map_err(BuildError::Certificate)?;
        let presented = certificate.as_ref().map(|certificate| certificate.presented());
        Ok(Self { certificate, ..Self::build(config, sockets, servers, cluster, Silence::default(), presented)? })
    }

    /// The same server, TLS and proxy, without credentials: no certificate, token, plugin or impersonation.
    pub(super) fn without_credentials(&self) -> Result<Self, BuildError> {
        self.anonymously(None)
    }

    /// The same server, TLS and proxy, with this client certificate as the only credential.
    pub(super) fn with_certificate(&self, presented: Arc<Presented>) -> Result<Self, BuildError> {
        self.anonymously(Some(presented))
    }

    fn anonymously(&self, presented: Option<Arc<Presented>>) -> Result<Self, BuildError> {
        let (sockets, servers, cluster) = (self.sockets.clone(), self.servers.clone(), self.cluster.clone());
        Self::build(anonymous(&self.config), sockets, servers, cluster, self.silence.clone(), presented)
    }

    /// New connections show what is `presented`, in place of the certificate in the configuration.
    fn build(
        config: Config,
        sockets: SocketOpener,
        servers: Option<Servers>,
        cluster: ConnectionCloser,
        silence: Silence,
        presented: Option<Arc<Presented>>,
    ) -> Result<Self, BuildError> {
        let mut config = with_needed_authorities(config);
        let token = TokenFile::taken(&mut config.auth_info).map_err(BuildError::Token)?;
        let command = config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone());
        let unusable = |error: kube_client::Error| match (&error, &command) {
            (kube_client::Error::Auth(AuthError::AuthExecStart(_)), Some(command)) => {
                BuildError::Plugin { command: command.clone(), source: Redacted::new(&error) }
            }
            _ => BuildError::Credentials(Redacted::new(&error)),
        };
        let server_name = config
            .tls_server_name
            .as_ref()
            .map(|name| ServerName::try_from(name.clone()).map_err(|_| BuildError::ServerName(name.clone())));
        let tls = match presented.clone() {
            None => config.rustls_client_config(),
            Some(presented) => anonymous(&config).rustls_client_config().map(|tls| showing(tls, presented)),
        };
        Ok(Self {
            dial: dial(&config, sockets.clone())?,
            tls: tls.map_err(|error| BuildError::Tls(Redacted::new(&error)))?,
            server_name: server_name.transpose()?,
            presented,
            certificate: None,
            token,
            credentials: config.auth_layer().map_err(unusable)?,
            headers: config.extra_headers_layer().map_err(unusable)?,
            config,
            sockets,
            servers,
            acceptance: None,
            cluster,
            silence,
        })
    }

    /// The same, but with connections only to servers that accept the identity.
    pub(super) fn only_to(self, acceptance: &Acceptance) -> Self {
        Self { acceptance: Some(acceptance.clone()), ..self }
    }

    /// Makes new connections use the current content of the client certificate's files, if it is in files.
    pub(super) fn follow_files(&self, tasks: &Tasks) {
        if let Some(certificate) = &self.certificate {
            certificate.follow(tasks);
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Breaks the connections to the cluster when it is replaced.
    pub(super) fn cluster(&self) -> &ConnectionCloser {
        &self.cluster
    }

    /// Whether the cluster is silent.
    pub(super) fn silence(&self) -> &Silence {
        &self.silence
    }

    /// Several servers in place of the address of the configuration.
    pub(super) fn servers(&self) -> Option<&Servers> {
        self.servers.as_ref()
    }

    /// Whether connections may go to some of several servers only.
    pub(super) fn is_partial(&self) -> bool {
        self.servers.is_some() && self.acceptance.is_some()
    }

    /// `choice` is among several servers.
    pub(super) fn dialer(&self, protocols: Protocols, choice: Choice) -> Dialer {
        let dial_target = match self.servers.clone() {
            Some(servers) => DialTarget::Servers(Route { servers, choice, acceptance: self.acceptance.clone() }),
            None => DialTarget::Address { cluster: self.cluster.clone(), acceptance: self.acceptance.clone() },
        };
        let (dial, tls, server_name) = (self.dial.clone(), self.tls.clone(), self.server_name.clone());
        Dialer::new(dial, tls, server_name, protocols, dial_target, self.presented.clone(), self.silence.clone())
    }

    /// Wraps a client in kube-client's layers for credentials and configured headers. Sends nothing while upstream is
    /// silent.
    pub(super) fn transport<C, B>(&self, client: C, requests: Requests) -> Transport
    where
        C: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send + 'static,
        B: Into<Received> + 'static,
    {
        let client = UnlessSilent::new(plain(client), self.silence.clone(), requests);
        let token = self.token.clone();
        let client = client.map_request(move |mut request: Request<RequestBody>| {
            if let Some(token) = &token {
                request.headers_mut().insert(AUTHORIZATION, token.header());
            }
            request
        });
        let stack =
            ServiceBuilder::new().layer(option_layer(self.credentials.as_ref())).layer(&self.headers).service(client);
        BoxCloneSyncService::new(stack.map_err(|error| Redacted::service(BoxError::from(error))))
    }
}

/// A client without credentials and configured headers.
pub(super) fn plain<C, B>(client: C) -> Transport
where
    C: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
    B: Into<Received> + 'static,
{
    BoxCloneSyncService::new(client.map_response(|answer| answer.map(Into::into)).map_err(Into::<BoxError>::into))
}

/// Sessions are not resumed, since they would keep the certificate of an earlier connection.
fn showing(mut tls: ClientConfig, presented: Arc<Presented>) -> ClientConfig {
    tls.client_auth_cert_resolver = presented;
    tls.resumption = Resumption::disabled();
    tls
}

/// The configuration without credentials and configured headers.
fn anonymous(config: &Config) -> Config {
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config.headers = Vec::new();
    config
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

//! How upstream is reached and as whom, resolved once: an exec plugin runs once for TLS and once for a token, however
//! many connections there are.

use std::fmt;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use kube_client::{
    Config,
    client::{
        ConfigExt,
        middleware::{AuthLayer, ExtraHeadersLayer},
    },
};
use rustls::{ClientConfig, pki_types::ServerName};
use tower::{
    ServiceBuilder, ServiceExt,
    util::{BoxCloneSyncService, option_layer},
};

use super::{
    RequestBody,
    connector::{Connector, Dial, Protocols, dial},
    error::{BoxError, BuildError},
};

/// Makes one request with the gateway's credentials.
pub(super) type Transport = BoxCloneSyncService<Request<RequestBody>, Response<Incoming>, BoxError>;

/// TLS, credentials, headers and proxy from kube-client's configuration.
pub(super) struct Access {
    dial: Dial,
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    /// Keeps tokens that expire, or rotate in a file, fresh. Shared by everything that it is laid on.
    credentials: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
}

impl Access {
    pub(super) fn new(config: &Config) -> Result<Self, BuildError> {
        let unusable = |error| BuildError::Credentials(Box::new(error));
        let server_name = config
            .tls_server_name
            .as_ref()
            .map(|name| ServerName::try_from(name.clone()).map_err(|_| BuildError::ServerName(name.clone())));
        Ok(Self {
            dial: dial(config)?,
            tls: config.rustls_client_config().map_err(|error| BuildError::Tls(Box::new(error)))?,
            server_name: server_name.transpose()?,
            credentials: config.auth_layer().map_err(unusable)?,
            headers: config.extra_headers_layer().map_err(unusable)?,
        })
    }

    pub(super) fn connector(&self, protocols: Protocols) -> Connector {
        Connector::new(self.dial.clone(), self.tls.clone(), self.server_name.clone(), protocols)
    }

    /// The client below kube-client's layers for credentials and configured headers.
    pub(super) fn transport(&self, client: Client<Connector, RequestBody>) -> Transport {
        let stack = ServiceBuilder::new()
            .layer(option_layer(self.credentials.as_ref()))
            .layer(&self.headers)
            .service(client.map_err(BoxError::from));
        BoxCloneSyncService::new(stack.map_err(BoxError::from))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

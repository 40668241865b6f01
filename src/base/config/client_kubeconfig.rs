//! The kubeconfig with which clients use the gateway instead of the API server.

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use kube_client::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};

use crate::config::{
    Address, Config, PemError, PemFile, Redacted, UpstreamConfig, UpstreamConfigError,
    upstream::{has_host_and_port, is_at_loopback},
};

/// What a client needs to reach a gateway.
#[derive(Clone, Debug)]
pub struct ClientAccess {
    /// The URL at which clients reach the gateway. Over plain HTTP they need no user, and none is written.
    pub server: Uri,
    /// The authorities that sign the gateway's certificate; `None` for those of the client's system.
    pub certificate_authority: Option<PemFile>,
    /// Whether the gateway trusts its clients (`clients.mode: trusted`): then it needs no credentials of theirs, not
    /// even over TLS, and drops those that they send. None are written. `None` if its configuration is not at hand.
    pub is_trusted: Option<bool>,
    /// The kubeconfig whose user and namespace are used.
    pub user_of: UpstreamConfig,
}

/// Why no kubeconfig could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientAccessError {
    #[error("the gateway's address {0} is no URL like https://gateway.example:8443")]
    Server(Redacted),
    #[error(
        "the URL of {0} contains a user or a password, which kubectl does not support in a server's address; the user \
         of a kubeconfig has them: --kubeconfig and --context name it"
    )]
    UserInfo(Redacted),
    #[error("the configuration has several listeners ({0}); name the URL of one with --server")]
    SeveralListeners(String),
    #[error(
        "the listener {0} is no address that a kubeconfig can name; say at which URL clients reach it with --server, \
         like https://gateway.example:8443"
    )]
    UnnamedListener(Address),
    #[error("cannot read the gateway's certificate authority")]
    ReadAuthority(#[source] io::Error),
    #[error("cannot use the gateway's certificate authority")]
    Authority(#[source] PemError),
    #[error("cannot read the kubeconfig whose user is to be taken")]
    Kubeconfig(#[source] UpstreamConfigError),
    #[error("the kubeconfig has no context {0:?} with a user; --context names another one")]
    NoUser(String),
    #[error("cannot write the kubeconfig")]
    Write(#[source] serde_saphyr::ser::Error),
}

impl Config {
    /// The URL at which clients on this machine, or on others, reach the gateway.
    ///
    /// # Errors
    /// The listeners do not say it: there are several, or one that no URL can name.
    pub fn client_url(&self) -> Result<Uri, ClientAccessError> {
        let [listener] = &self.listeners[..] else {
            let addresses: Vec<_> = self.listeners.iter().map(|listener| listener.address.to_string()).collect();
            return Err(ClientAccessError::SeveralListeners(addresses.join(", ")));
        };
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let unnamed = || ClientAccessError::UnnamedListener(listener.address.clone());
        match &listener.address {
            Address::Tcp(address) if !address.ip().is_unspecified() && address.port() != 0 => {
                format!("{scheme}://{address}").parse().map_err(|_| unnamed())
            }
            Address::Tcp(_) | Address::Unix(_) => Err(unnamed()),
        }
    }
}

/// A user, and the namespace that it works in.
type User = (AuthInfo, Option<String>);

/// In front of a kubeconfig for a gateway with TLS, if there is none whose user could be taken.
const WITHOUT_USER: &str = "# Without a user, as a gateway with `clients.mode: trusted` takes it: there is no \
                            kubeconfig whose user could\n# be taken. For a gateway with `clients.mode: delegated` name \
                            one with --kubeconfig.\n";
/// In front of a kubeconfig with a user, for a gateway that may not need one.
const WITH_USER: &str = "# With the user of a kubeconfig. A gateway with `clients.mode: trusted` needs none: --config \
                         with its configuration leaves the credentials out.\n";
/// The name of the cluster, the user and the context.
const NAME: &str = "kube-fanout";

impl ClientAccess {
    /// The kubeconfig, with one cluster, one context and at most one user, including that user's credentials.
    ///
    /// # Errors
    /// The address, the authority or the user's kubeconfig cannot be used.
    pub async fn kubeconfig(&self) -> Result<String, ClientAccessError> {
        let is_tls = match self.server.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(ClientAccessError::Server(Redacted::url(&self.server))),
        };
        // Also in the path: an unescaped / in a password begins one.
        if self.server.to_string().contains('@') {
            return Err(ClientAccessError::UserInfo(Redacted::url(&self.server)));
        }
        if !has_host_and_port(&self.server) || self.server.query().is_some() {
            return Err(ClientAccessError::Server(Redacted::url(&self.server)));
        }
        let authority = self.authority().await?;
        let user = match (is_tls, self.is_trusted == Some(true)) {
            (true, false) => self.user()?,
            (true, true) => Some((AuthInfo::default(), self.namespace())),
            (false, _) => Some(User::default()),
        };
        // Trusted gateways with TLS are on loopback addresses alone.
        let may_be_trusted = is_tls && self.is_trusted.is_none() && user.is_some() && is_at_loopback(&self.server);
        let text = self.written(authority, user)?;
        Ok(if may_be_trusted { format!("{WITH_USER}{text}") } else { text })
    }

    /// The kubeconfig for an authority in base64. No user is worth a word: it may have been wanted.
    fn written(&self, authority: Option<String>, user: Option<User>) -> Result<String, ClientAccessError> {
        let cluster = Cluster {
            server: Some(self.server.to_string().trim_end_matches('/').to_owned()),
            certificate_authority_data: authority,
            ..Cluster::default()
        };
        let is_without_user = user.is_none();
        let (user, namespace) = user.unwrap_or_default();
        let context =
            Context { cluster: NAME.to_owned(), user: Some(NAME.to_owned()), namespace, ..Context::default() };
        let kubeconfig = Kubeconfig {
            api_version: Some("v1".to_owned()),
            kind: Some("Config".to_owned()),
            clusters: vec![NamedCluster { name: NAME.to_owned(), cluster: Some(cluster), ..NamedCluster::default() }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext { name: NAME.to_owned(), context: Some(context), ..NamedContext::default() }],
            current_context: Some(NAME.to_owned()),
            ..Kubeconfig::default()
        };
        let text = serde_saphyr::to_string(&kubeconfig).map_err(ClientAccessError::Write)?;
        Ok(if is_without_user { format!("{WITHOUT_USER}{text}") } else { text })
    }

    async fn authority(&self) -> Result<Option<String>, ClientAccessError> {
        let Some(bundle) = &self.certificate_authority else { return Ok(None) };
        let pem = bundle.read().await.map_err(ClientAccessError::ReadAuthority)?;
        let authorities = bundle.authorities(&pem).map_err(ClientAccessError::Authority)?;
        // Not the file as it is: it may contain a key, too.
        let pem = authorities.iter().map(|authority| {
            let base64 = STANDARD.encode(authority);
            let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
        });
        Ok(Some(STANDARD.encode(pem.collect::<String>())))
    }

    /// The namespace of the context; `None` if there is no kubeconfig, or none that says it.
    fn namespace(&self) -> Option<String> {
        self.user().ok().flatten().and_then(|(_, namespace)| namespace)
    }

    /// The user of a context, and the namespace that it works in; `None` if there is no kubeconfig, and none was asked
    /// for.
    fn user(&self) -> Result<Option<User>, ClientAccessError> {
        let found = self.user_of.kubeconfig().map_err(ClientAccessError::Kubeconfig)?;
        let Kubeconfig { contexts, auth_infos, current_context, .. } = match found {
            Some(found) => found,
            None if self.user_of.context.is_some() => Kubeconfig::default(),
            None => return Ok(None),
        };
        let name = self.user_of.context.clone().or(current_context).unwrap_or_default();
        let context = contexts.into_iter().find(|context| context.name == name).and_then(|named| named.context);
        let Some(Context { user: Some(user), namespace, .. }) = context else {
            return Err(ClientAccessError::NoUser(name));
        };
        let user = auth_infos.into_iter().find(|named| named.name == user).and_then(|named| named.auth_info);
        user.map(|user| Some((user, namespace))).ok_or(ClientAccessError::NoUser(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};
    use kube_client::config::KubeConfigOptions;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: 'https://api.example'}}]
contexts: [{name: one, context: {cluster: c, user: jane, namespace: team}}, {name: bare, context: {cluster: c}}]
users: [{name: jane, user: {token: secret}}]
";

    fn access(server: &'static str, folder: &tempfile::TempDir, context: Option<&str>) -> ClientAccess {
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let user_of = UpstreamConfig { kubeconfig: Some(path), context: context.map(str::to_owned) };
        ClientAccess { server: Uri::from_static(server), certificate_authority: None, is_trusted: None, user_of }
    }

    #[tokio::test]
    async fn credentials_are_written_only_for_https_urls() {
        let folder = tempfile::tempdir().unwrap();
        let text = access("https://gateway.example:8443", &folder, None).kubeconfig().await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(kubeconfig.current_context.as_deref(), Some(NAME));
        assert_eq!(kubeconfig.contexts[0].context.as_ref().unwrap().namespace.as_deref(), Some("team"));
        let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.as_deref();
        assert_eq!(server, Some("https://gateway.example:8443"));
        assert!(text.contains("token: secret"), "{text}");
        let text = access("http://127.0.0.1:8001", &folder, None).kubeconfig().await.unwrap();
        assert!(!text.contains("secret") && text.contains("http://127.0.0.1:8001"), "{text}");
        let (kubeconfig, options) = (Kubeconfig::from_yaml(&text).unwrap(), KubeConfigOptions::default());
        let client = kube_client::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        assert_eq!(client.cluster_url, "http://127.0.0.1:8001/");
    }

    #[tokio::test]
    async fn no_credentials_are_written_for_a_gateway_in_trusted_mode() {
        let folder = tempfile::tempdir().unwrap();
        let access = access("https://127.0.0.1:8443", &folder, None);
        let text = access.kubeconfig().await.unwrap();
        assert!(text.starts_with("# With the user") && text.contains("--config") && text.contains("secret"), "{text}");
        let access = ClientAccess { is_trusted: Some(false), ..access };
        let text = access.kubeconfig().await.unwrap();
        assert!(text.contains("secret") && !text.contains('#'), "the mode is known: {text}");
        let text = ClientAccess { is_trusted: Some(true), ..access }.kubeconfig().await.unwrap();
        assert!(!text.contains("secret") && !text.contains('#'), "{text}");
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(kubeconfig.contexts[0].context.as_ref().unwrap().namespace.as_deref(), Some("team"));
        let client = kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        assert_eq!(client.unwrap().cluster_url, "https://127.0.0.1:8443/");
    }

    /// As on a machine where nothing but the gateway is used.
    #[tokio::test]
    async fn without_a_kubeconfig_a_comment_says_that_there_is_no_user() {
        let server = Uri::from_static("https://127.0.0.1:8443");
        let access =
            ClientAccess { server, certificate_authority: None, is_trusted: None, user_of: UpstreamConfig::default() };
        let text = access.written(None, Some(User::default())).unwrap();
        assert!(!text.contains('#'), "{text}");
        let text = access.written(None, None).unwrap();
        assert!(text.starts_with("# Without a user") && text.contains("--kubeconfig"), "{text}");
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let client = kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        assert_eq!(client.unwrap().cluster_url, "https://127.0.0.1:8443/");
    }

    #[test]
    fn the_listener_decides_the_url() {
        let tls = "tls: {certFile: /c, keyFile: /k}";
        let delegated = "clients: {mode: delegated}\n";
        for (fields, expected) in [
            ("", Ok("http://127.0.0.1:8001/")),
            ("listeners: [{address: 'localhost:7000'}]", Ok("http://127.0.0.1:7000/")),
            (&*format!("listeners: [{{address: '[::1]:7443', {tls}}}]"), Ok("https://[::1]:7443/")),
            (&*format!("{delegated}listeners: [{{address: '10.0.0.7:8443', {tls}}}]"), Ok("https://10.0.0.7:8443/")),
            (
                &*format!("{delegated}listeners: [{{address: '0.0.0.0:8443', {tls}}}]"),
                Err("0.0.0.0:8443 is no address"),
            ),
            ("listeners: [{address: '127.0.0.1:0'}]", Err("127.0.0.1:0 is no address")),
            ("listeners: [{address: 'unix:/run/s'}]", Err("unix:/run/s is no address")),
            (
                "listeners: [{address: '127.0.0.1:1'}, {address: '127.0.0.1:2'}]",
                Err("(127.0.0.1:1, 127.0.0.1:2); name the URL of one with --server"),
            ),
        ] {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
            let url = Config::parse(&text, &Overrides::default()).unwrap().client_url();
            match (url, expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (url, _) => panic!("{fields}: {url:?}"),
            }
        }
    }

    #[tokio::test]
    async fn unusable_urls_contexts_and_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (server, context, expected) in [
            ("gateway.example:8443", None, "gateway.example:8443"),
            ("https://jane:secret@gateway.example", None, "https://gateway.example/ contains a user"),
            ("jane:secret@gateway.example:8443", None, "gateway.example:8443"),
            ("https://jane:se/cret@gateway.example", None, "https://gateway.example contains a user"),
            ("https://gateway.example:65536", None, "https://gateway.example:65536/ is no URL like"),
            ("https://gateway.example?token=secret", None, "https://gateway.example/ is no URL like"),
            ("https://gateway.example", Some("two"), "\"two\""),
            ("https://gateway.example", Some("bare"), "\"bare\""),
        ] {
            let error = access(server, &folder, context).kubeconfig().await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("cret"), "{error}");
        }
        let authority = folder.path().join("ca.crt");
        let signer = rcgen::generate_simple_self_signed(["gateway.example".to_owned()]).unwrap();
        let (key, certificate) = (signer.signing_key.serialize_pem(), signer.cert.pem());
        std::fs::write(&authority, format!("{key}{certificate}")).unwrap();
        let certificate_authority = Some(PemFile(authority.clone()));
        let both = ClientAccess { certificate_authority, ..access("http://127.0.0.1:1", &folder, None) };
        let written = Kubeconfig::from_yaml(&both.kubeconfig().await.unwrap()).unwrap();
        let data = written.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
        let pem = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
        assert_eq!(pem.replace("\r\n", "\n").trim(), certificate.replace("\r\n", "\n").trim(), "and no key");
        std::fs::write(&authority, "no certificate").unwrap();
        let certificate_authority = Some(PemFile(authority));
        let access = ClientAccess { certificate_authority, ..access("https://gateway.example", &folder, None) };
        assert!(matches!(access.kubeconfig().await, Err(ClientAccessError::Authority(_))));
    }
}

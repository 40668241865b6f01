//! Checks the files that a configuration names: whether they exist and can be used together.

use rustls::pki_types::CertificateDer;

use crate::config::{
    ClientsConfig, Config, DelegatedConfig, FrontProxyConfig, IdentityConfig, PemFile, Problem, Problems, Redacted,
    TlsFiles, UpstreamConfig, UpstreamConfigError, is_clear_text,
};
use crate::telemetry::Chain;

impl Config {
    /// Reads every file that is named: certificates with their keys, authorities, kubeconfigs. Files that only the
    /// environment names (kubectl's own kubeconfig, a pod's service account) are not checked.
    ///
    /// # Errors
    /// Every file that cannot be used.
    pub async fn check_files(&self) -> Result<(), Problems> {
        let mut check = FileCheck::of(self);
        for (index, listener) in self.listeners.iter().enumerate() {
            if let Some(tls) = &listener.tls {
                check.pair(&format!("listeners[{index}].tls"), &tls.files).await;
            }
        }
        if let Some(tls) = &self.admin.tls {
            check.pair("admin.tls", &tls.files).await;
        }
        match self.upstream {
            UpstreamConfig { kubeconfig: Some(_), .. } => {
                check.kubeconfig("upstream.kubeconfig", Some(&self.upstream)).await;
            }
            UpstreamConfig { context: Some(_), .. } => check.kubeconfig("upstream.context", Some(&self.upstream)).await,
            UpstreamConfig { kubeconfig: None, context: None } => {}
        }
        if let Some(bundle) = self.cache.peers.as_ref().and_then(|peers| peers.ca.as_ref()) {
            check.authorities("cache.peers.caFile", bundle).await;
        }
        check.fallback(self).await;
        if let ClientsConfig::Delegated(delegated) = &self.clients {
            check.delegated(delegated).await;
        }
        check.end()
    }

    /// The same for the kubeconfig that is found without being named.
    pub(super) async fn check_unnamed(&self) -> Result<(), Problems> {
        let mut check = FileCheck::of(self);
        check.kubeconfig("upstream.kubeconfig", Some(&self.upstream)).await;
        check.end()
    }
}

/// Collects problems.
struct FileCheck {
    problems: Vec<Problem>,
    /// Whether clients' credentials are sent to the servers of kubeconfigs.
    asks_for_clients: bool,
    /// Whether a front proxy's certificate is shown to upstream.
    shows_certificate: bool,
}

impl FileCheck {
    fn of(config: &Config) -> Self {
        let delegated = match &config.clients {
            ClientsConfig::Trusted(_) => None,
            ClientsConfig::Delegated(delegated) => Some(delegated),
        };
        let identity = delegated.and_then(|delegated| delegated.identity.as_ref());
        Self {
            problems: Vec::new(),
            asks_for_clients: delegated.is_some(),
            shows_certificate: matches!(identity, Some(IdentityConfig::FrontProxy(_))),
        }
    }

    fn end(self) -> Result<(), Problems> {
        if self.problems.is_empty() { Ok(()) } else { Err(Problems(self.problems)) }
    }

    async fn delegated(&mut self, config: &DelegatedConfig) {
        let authentication = &config.authentication;
        let client_ca = match &authentication.client_ca {
            Some(bundle) => self.authorities("clients.authentication.clientCAFile", bundle).await,
            None => Vec::new(),
        };
        if let Some(front) = &authentication.request_header {
            let field = "clients.authentication.requestHeader";
            let authorities = self.authorities(&format!("{field}.caFile"), &front.ca).await;
            // Otherwise every client with a certificate could pose as any user.
            if front.allowed_names.is_empty() && authorities.iter().any(|authority| client_ca.contains(authority)) {
                let found = "missing, and caFile has an authority that clientCAFile has too";
                self.problem(&format!("{field}.allowedNames"), found, "the names of the front proxies' certificates");
            }
        }
        self.kubeconfig("clients.authentication.kubeconfig", authentication.reviews.as_ref()).await;
        self.kubeconfig("clients.authorization.kubeconfig", config.authorization.reviews.as_ref()).await;
        if let Some(IdentityConfig::FrontProxy(FrontProxyConfig { files, .. })) = &config.identity {
            self.pair("clients.identity.frontProxy", files).await;
        }
    }

    async fn fallback(&mut self, config: &Config) {
        if let Some(fallback) = &config.fallback
            // What cannot be resolved is a problem of its own.
            && let Ok(access) = config.upstream.resolve().await
        {
            self.problems.extend(fallback.trusted(access).await.err());
        }
    }

    async fn authorities(&mut self, field: &str, bundle: &PemFile) -> Vec<CertificateDer<'static>> {
        let pem = match bundle.read().await {
            Ok(pem) => pem,
            Err(error) => {
                self.problem(field, &Chain(&error).to_string(), "");
                return Vec::new();
            }
        };
        bundle.authorities(&pem).unwrap_or_else(|error| {
            self.problem(field, &Chain(&error).to_string(), "certificates of authorities, in PEM");
            Vec::new()
        })
    }

    async fn pair(&mut self, field: &str, files: &TlsFiles) {
        match files.read().await {
            Ok(pem) => {
                if let Err(error) = files.certified_key(&pem) {
                    self.problem(field, &Chain(&error).to_string(), "a certificate and its key, in PEM");
                }
            }
            Err(error) => self.problem(field, &Chain(&error).to_string(), ""),
        }
    }

    async fn kubeconfig(&mut self, field: &str, server: Option<&UpstreamConfig>) {
        let Some(server) = server else { return };
        match server.resolve().await {
            Ok(access) if access.accept_invalid_certs && self.asks_for_clients => {
                let found = "it has insecure-skip-tls-verify, though clients.mode is delegated";
                let allowed = "certificate-authority, with tls-server-name for a certificate of another name";
                self.problem(field, found, allowed);
            }
            Ok(access) if self.asks_for_clients && is_clear_text(&access) => {
                let found =
                    format!("it sends clients' credentials to {} without TLS", Redacted::url(&access.cluster_url));
                self.problem(field, &found, "https, or http to a loopback address");
            }
            Ok(access) if self.shows_certificate && field.starts_with("upstream.") && !is_https(&access) => {
                let found = format!(
                    "clients.identity.frontProxy shows no certificate to {}",
                    Redacted::url(&access.cluster_url)
                );
                self.problem(field, &found, "https, or clients.identity.impersonation");
            }
            Ok(_) => {}
            Err(error) => {
                let contexts = server.contexts().join(", ");
                let is_unknown = matches!(error, UpstreamConfigError::NoContext(_));
                let allowed = if contexts.is_empty() || !is_unknown {
                    String::new()
                } else {
                    format!("one of the contexts {contexts}")
                };
                self.problem(field, &Chain(&error).to_string(), &allowed);
            }
        }
    }

    fn problem(&mut self, field: &str, found: &str, allowed: &str) {
        self.problems.push(Problem::new(field, found, allowed));
    }
}

fn is_https(access: &kube_client::Config) -> bool {
    access.cluster_url.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    use crate::config::{API_VERSION, KIND, Overrides};

    /// A certificate and a key of each name; returns the certificates.
    fn write(folder: &Path, names: &[&str]) {
        for name in names {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(folder.join(format!("{name}.crt")), made.cert.pem()).unwrap();
            fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
        }
    }

    async fn problems(folder: &Path, text: &str) -> Vec<String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}").replace("DIR", folder.to_str().unwrap());
        let config = Config::parse(&text, &Overrides::default()).unwrap();
        match config.check_files().await {
            Ok(()) => Vec::new(),
            Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
        }
    }

    const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}],
users: [{name: c, user: {}}], contexts: [{name: c, context: {cluster: c, user: c}}]}";

    const DELEGATED: &str = "
listeners: [{address: '0.0.0.0:443', tls: {certFile: DIR/server.crt, keyFile: DIR/server.key}}]
admin: {tls: {certFile: DIR/server.crt, keyFile: DIR/server.key}}
upstream: {kubeconfig: DIR/kubeconfig}
clients:
  mode: delegated
  authentication:
    clientCAFile: DIR/ca.crt
    requestHeader: {caFile: DIR/front.crt}
    kubeconfig: DIR/kubeconfig
  authorization: {kubeconfig: DIR/kubeconfig}
  identity: {frontProxy: {certFile: DIR/proxy.crt, keyFile: DIR/proxy.key}}
";

    #[tokio::test]
    async fn files_that_fit_are_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["server", "ca", "front", "proxy"]);
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG).unwrap();
        assert_eq!(problems(folder.path(), DELEGATED).await, [""; 0]);
    }

    #[tokio::test]
    async fn every_file_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let found = problems(folder.path(), DELEGATED).await;
        let fields = [
            "listeners[0].tls: ",
            "admin.tls: ",
            "upstream.kubeconfig: ",
            "clients.authentication.clientCAFile: ",
            "clients.authentication.requestHeader.caFile: ",
            "clients.authentication.kubeconfig: ",
            "clients.authorization.kubeconfig: ",
            "clients.identity.frontProxy: ",
        ];
        assert_eq!(found.len(), fields.len(), "{found:#?}");
        for (problem, field) in found.iter().zip(fields) {
            assert!(problem.starts_with(field) && problem.contains(folder.path().to_str().unwrap()), "{problem}");
            assert_eq!(problem.matches("os error").count(), 1, "{problem}");
            assert!(!problem.contains('"') && !problem.contains('\''), "{problem}");
        }
    }

    #[tokio::test]
    async fn files_that_do_not_fit_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(folder.path(), &["server", "ca", "front", "proxy"]);
        fs::copy(path("server.key"), path("proxy.key")).unwrap();
        fs::copy(path("server.key"), path("ca.crt")).unwrap();
        fs::write(path("kubeconfig"), KUBECONFIG.replace("current-context: c", "current-context: d")).unwrap();
        let found = problems(folder.path(), DELEGATED).await.join("\n");
        for start in [
            "upstream.kubeconfig: the kubeconfig has no context \"d\"; allowed: one of the contexts c",
            "clients.authentication.clientCAFile: no PEM certificate in ",
            "clients.identity.frontProxy: the key in ",
        ] {
            assert!(found.lines().any(|line| line.starts_with(start)), "{start}\nin {found}");
        }
    }

    #[tokio::test]
    async fn a_missing_context_is_reported_with_the_existing_ones() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG).unwrap();
        let found = problems(folder.path(), "upstream: {kubeconfig: DIR/kubeconfig, context: d}").await;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("upstream.kubeconfig: ") && found[0].contains("one of the contexts c"),
            "{found:#?}"
        );
        // The result depends on this machine's kubeconfig, but the context is in none.
        let found = problems(folder.path(), "upstream: {context: no-context-of-that-name}").await;
        assert!(found.len() == 1 && found[0].starts_with("upstream.context: "), "{found:#?}");
    }

    #[tokio::test]
    async fn servers_that_receive_client_identities_must_be_verified() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["server", "ca", "front", "proxy"]);
        let insecure = KUBECONFIG.replace("127.0.0.1:1'", "127.0.0.1:1', insecure-skip-tls-verify: true");
        fs::write(folder.path().join("kubeconfig"), insecure).unwrap();
        let found = problems(folder.path(), DELEGATED).await;
        let fields = ["upstream.kubeconfig", "clients.authentication.kubeconfig", "clients.authorization.kubeconfig"];
        assert_eq!(found.len(), fields.len(), "{found:#?}");
        for (problem, field) in found.iter().zip(fields) {
            assert!(problem.starts_with(&format!("{field}: it has insecure-skip-tls-verify")), "{problem}");
        }
        assert_eq!(problems(folder.path(), "upstream: {kubeconfig: DIR/kubeconfig}").await, [""; 0]);
    }

    #[tokio::test]
    async fn credentials_of_clients_are_sent_over_tls() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["server", "ca", "front", "proxy"]);
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG.replace("https://127.0.0.1:1", "http://api:1")).unwrap();
        let found = problems(folder.path(), DELEGATED).await;
        let fields = ["upstream.kubeconfig", "clients.authentication.kubeconfig", "clients.authorization.kubeconfig"];
        assert_eq!(found.len(), fields.len(), "{found:#?}");
        for (problem, field) in found.iter().zip(fields) {
            let start = format!("{field}: it sends clients' credentials to http://api:1/ without TLS; allowed: ");
            assert!(problem.starts_with(&start), "{problem}");
        }
        assert_eq!(problems(folder.path(), "upstream: {kubeconfig: DIR/kubeconfig}").await, [""; 0]);
        // To a proxy of this machine, where only a certificate needs TLS.
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG.replace("https:", "http:")).unwrap();
        let found = problems(folder.path(), DELEGATED).await;
        let start = "upstream.kubeconfig: clients.identity.frontProxy shows no certificate to http://127.0.0.1:1/";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
    }

    #[tokio::test]
    async fn an_authority_of_clients_and_front_proxies_needs_names() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["server", "ca", "front", "proxy"]);
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG).unwrap();
        let both = ["ca.crt", "front.crt"].map(|name| fs::read(folder.path().join(name)).unwrap()).concat();
        fs::write(folder.path().join("ca.crt"), both).unwrap();
        let found = problems(folder.path(), DELEGATED).await;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with("clients.authentication.requestHeader.allowedNames: missing"), "{found:#?}");
        let named = DELEGATED.replace("front.crt}", "front.crt, allowedNames: [front-proxy]}");
        assert_eq!(problems(folder.path(), &named).await, [""; 0]);
    }
}

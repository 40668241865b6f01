//! Turns the configuration of upstream into kube-client's: which server, which credentials.

use std::{env, io, net::IpAddr, path::PathBuf};

use http::HeaderValue;
use kube_client::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret, SecretString};

use crate::config::{
    FallbackConfig, Redacted, ServerAddress,
    fields::{ANY_FILE, Fields, Maybe, Parsed, Refused, Text, about, unexpanded},
    kubeconfig_file::{self, MalformedKubeconfig},
};

/// More servers than the control plane of any usual cluster has.
pub(super) const SERVERS_MAX: usize = 16;

pub(super) const SERVER: Parsed<ServerAddress> = Parsed {
    allowed: ServerAddress::ALLOWED,
    parse: |text| text.parse().map_err(|why| Refused { why: format!(": {why}"), allowed: None }),
    pattern: "^[^/@?#]+:[0-9]+$",
};

/// The API server. If neither field is set, it is found as kubectl finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamConfig {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

/// Why configuration and environment yield no upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamConfigError {
    #[error("cannot read the kubeconfig {}{}", path.display(), unexpanded(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Malformed(MalformedKubeconfig),
    #[error("the kubeconfig has no context {0:?}")]
    NoContext(String),
    #[error("the server {0} of the kubeconfig has no scheme, no host or no valid port; write https://HOST:PORT")]
    Server(Redacted),
    #[error("the token of the kubeconfig's user is not a token (line break or control character in it)")]
    Token,
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Redacted),
    #[error(
        "{0}; name one in one of these ways:\n  --kubeconfig FILE\n  \
         KUBECONFIG=FILE in the environment, as for kubectl\n  \
         upstream.kubeconfig: FILE in the configuration of --config"
    )]
    NotFound(NoKubeconfig),
    #[error("there is no kubeconfig, and the service account of this pod cannot be used")]
    ServiceAccount(#[source] InClusterError),
}

/// No kubeconfig was named, and there is none where kubectl looks. Contains the paths where it could have been. How one
/// is named depends on the command.
#[derive(Debug, thiserror::Error)]
#[error("there is no kubeconfig ({}), and this is no pod of a cluster", absent(.0))]
pub struct NoKubeconfig(Vec<PathBuf>);

fn absent(paths: &[PathBuf]) -> String {
    let absent = paths.iter().map(|path| format!("{} is not there{}", path.display(), unexpanded(path)));
    let absent = absent.collect::<Vec<_>>().join(", ");
    if absent.is_empty() { "HOME is not set".to_owned() } else { absent }
}

impl From<InClusterError> for UpstreamConfigError {
    /// Every pod has the variables, and nothing else has them.
    fn from(error: InClusterError) -> Self {
        if matches!(error, InClusterError::ReadEnvironmentVariable(_)) {
            Self::NotFound(NoKubeconfig(kubectl_paths()))
        } else {
            Self::ServiceAccount(error)
        }
    }
}

impl From<KubeconfigError> for UpstreamConfigError {
    /// kube-client's own words for a file that cannot be read quote its path twice, and its cause.
    fn from(error: KubeconfigError) -> Self {
        if let KubeconfigError::ReadConfig(source, path) = error {
            Self::Read { path, source }
        } else if let KubeconfigError::LoadContext(name) = error {
            Self::NoContext(name)
        } else {
            Self::Kubeconfig(Redacted::new(&error))
        }
    }
}

/// A token without white space at its ends, which YAML's blocks of text add. kube-client would panic at any other that
/// a header cannot carry.
fn usable(token: &SecretString) -> Result<SecretString, UpstreamConfigError> {
    let token = token.expose_secret().trim();
    HeaderValue::from_str(token).map_err(|_| UpstreamConfigError::Token)?;
    Ok(token.to_owned().into())
}

impl UpstreamConfig {
    pub(super) fn fields(
        &mut self,
        servers: &mut Vec<ServerAddress>,
        fallback: &mut Option<FallbackConfig>,
        fields: &mut Fields<'_>,
    ) {
        const FOUND: &str =
            "the one that kubectl finds: `$KUBECONFIG`, `~/.kube/config`, otherwise the pod's service account";
        fields.value("kubeconfig", about("a file").default(FOUND), &mut self.kubeconfig, &Maybe(ANY_FILE));
        let text = about("a context of the kubeconfig").default("the current one");
        fields.value("context", text, &mut self.context, &Maybe(Text));
        let text = about(
            "1 to 16 addresses `HOST:PORT` of API servers of that cluster, dialled in place of the \
                          kubeconfig's address; see *Several API servers*",
        )
        .default("none: the address of the kubeconfig");
        fields.set("servers", text, servers, &SERVER);
        fields.length("servers", 1, Some(SERVERS_MAX));
        fields.optional("fallback", fallback, FallbackConfig::fields);
    }

    /// The named kubeconfig, or else what kubectl would find: `$KUBECONFIG`, the home directory's, the cluster in
    /// which the gateway runs as a pod. A requested context must be in a kubeconfig.
    ///
    /// # Errors
    /// A kubeconfig exists and cannot be used, or none is found.
    pub async fn resolve(&self) -> Result<kube_client::Config, UpstreamConfigError> {
        let kubeconfig = match self.kubeconfig()? {
            Some(kubeconfig) => kubeconfig,
            None if self.context.is_some() => Kubeconfig::default(),
            None => return Ok(kube_client::Config::incluster()?),
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        if config.cluster_url.scheme().is_none() || !has_host_and_port(&config.cluster_url) {
            return Err(UpstreamConfigError::Server(Redacted::url(&config.cluster_url)));
        }
        config.auth_info.token = config.auth_info.token.map(|token| usable(&token)).transpose()?;
        Ok(config)
    }

    /// The name of the kubeconfig's user; `None` if there is no kubeconfig, or its context has no user.
    pub fn user(&self) -> Option<String> {
        let kubeconfig = self.kubeconfig().ok().flatten()?;
        let name = self.context.clone().or(kubeconfig.current_context)?;
        kubeconfig.contexts.into_iter().find(|context| context.name == name)?.context?.user
    }

    /// The names of the available contexts; empty if there is no kubeconfig, or it cannot be read.
    pub(super) fn contexts(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig().ok().flatten().unwrap_or_default();
        kubeconfig.contexts.into_iter().map(|context| context.name).collect()
    }

    /// The named kubeconfig, or the one that kubectl finds; `None` if there is none.
    ///
    /// # Errors
    /// A kubeconfig exists and cannot be used.
    pub(super) fn kubeconfig(&self) -> Result<Option<Kubeconfig>, UpstreamConfigError> {
        match &self.kubeconfig {
            Some(path) => kubeconfig_file::read_named(path).map(Some),
            None => merged(kubectl_paths()),
        }
    }
}

/// Whether requests to a server cross a network without TLS. Loopback is none: a proxy or a sidecar of this machine.
pub fn is_clear_text(access: &kube_client::Config) -> bool {
    access.cluster_url.scheme_str() != Some("https") && !is_at_loopback(&access.cluster_url)
}

/// The access without the authorities of the system, if there is no TLS that needs them: a system may have none, like
/// the image, and kube-client fails then even for a server without TLS.
#[must_use]
pub fn with_needed_authorities(mut access: kube_client::Config) -> kube_client::Config {
    if access.cluster_url.scheme_str() == Some("http") && access.proxy_url.is_none() {
        access.root_cert.get_or_insert_default();
    }
    access
}

/// Whether the host of a URL is this machine, by its name or its address.
pub(super) fn is_at_loopback(url: &http::Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a URL names a host, and its port is none or a number up to 65535: the parser takes any text.
pub fn has_host_and_port(url: &http::Uri) -> bool {
    let Some(authority) = url.authority() else { return false };
    let host_and_port = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, after)| after);
    let port = host_and_port.strip_prefix(authority.host()).unwrap_or_default();
    !authority.host().is_empty() && (matches!(port, "" | ":") || authority.port().is_some())
}

/// The paths that kubectl reads: the files of `$KUBECONFIG`, else the one in the home directory.
pub(super) fn kubectl_paths() -> Vec<PathBuf> {
    let listed = env::var_os("KUBECONFIG").unwrap_or_default();
    let paths: Vec<_> = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() { env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect() } else { paths }
}

/// Merges those that exist; the first one takes precedence. `None` if none exists.
fn merged(paths: Vec<PathBuf>) -> Result<Option<Kubeconfig>, UpstreamConfigError> {
    let mut all: Option<Kubeconfig> = None;
    for path in paths {
        let next = match kubeconfig_file::read(&path) {
            Err(UpstreamConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
            next => next?,
        };
        all = Some(match all {
            Some(first) => first.merge(next)?,
            None => next,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn kubeconfig(folder: &Path) -> UpstreamConfig {
        let path = folder.join("kubeconfig");
        std::fs::write(&path, KUBECONFIG).unwrap();
        UpstreamConfig { kubeconfig: Some(path), context: None }
    }

    #[tokio::test]
    async fn the_named_kubeconfig_and_context_win() {
        let folder = tempfile::tempdir().unwrap();
        let mut upstream = kubeconfig(folder.path());
        assert_eq!(upstream.resolve().await.unwrap().cluster_url, "http://127.0.0.1:1/");
        upstream.context = Some("two".to_owned());
        assert_eq!(upstream.resolve().await.unwrap().cluster_url, "http://127.0.0.1:2/");
    }

    #[tokio::test]
    async fn tokens_are_trimmed_and_have_no_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let resolved = async |server: &str, token: &str| {
            let text = KUBECONFIG.replace("http://127.0.0.1:1", server);
            let mut kubeconfig: Kubeconfig = serde_saphyr::from_str(&text).unwrap();
            for user in &mut kubeconfig.auth_infos {
                user.auth_info.get_or_insert_default().token = Some(token.to_owned().into());
            }
            std::fs::write(&path, serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
            UpstreamConfig { kubeconfig: Some(path.clone()), context: None }.resolve().await
        };
        let token = resolved("http://127.0.0.1:1", "abc\n").await.unwrap().auth_info.token.unwrap();
        assert_eq!(token.expose_secret(), "abc");
        assert!(matches!(resolved("http://127.0.0.1:1", "a\nb").await, Err(UpstreamConfigError::Token)));
        for server in ["127.0.0.1:1", "https://127.0.0.1:65536", "https://api.example:port"] {
            let error = resolved(server, "abc").await.unwrap_err().to_string();
            assert!(error.contains(" of the kubeconfig has no scheme, no host or no valid port"), "{server}: {error}");
        }
        for server in ["https://127.0.0.1:65535", "https://[::1]:6443", "https://api.example:", "https://[::1]"] {
            assert!(resolved(server, "abc").await.is_ok(), "{server}");
        }
    }

    #[tokio::test]
    async fn a_named_kubeconfig_that_cannot_be_used_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut upstream = kubeconfig(folder.path());
        upstream.context = Some("three".to_owned());
        assert!(matches!(upstream.resolve().await, Err(UpstreamConfigError::NoContext(name)) if name == "three"));
        upstream.kubeconfig = Some(folder.path().join("missing"));
        assert!(matches!(upstream.resolve().await, Err(UpstreamConfigError::Read { .. })));
        upstream.kubeconfig = Some("~/kubeconfig".into());
        let error = upstream.resolve().await.unwrap_err().to_string();
        assert!(error.contains("~/kubeconfig (~ is only replaced by a shell"), "{error}");
    }

    #[test]
    fn the_first_file_wins_and_missing_ones_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("one"), "current-context: one").unwrap();
        std::fs::write(path("two"), "current-context: two").unwrap();
        std::fs::write(path("broken"), "{").unwrap();
        let context = |names: &[&str]| {
            let found = merged(names.iter().map(|name| path(name)).collect());
            found.map(|found| found.map(|kubeconfig| kubeconfig.current_context.unwrap()))
        };
        assert_eq!(context(&["missing", "two", "one"]).unwrap().as_deref(), Some("two"));
        assert_eq!(context(&["missing"]).unwrap(), None);
        assert!(context(&["one", "broken"]).is_err());
    }

    const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: 'http://127.0.0.1:1'}}
- {name: two, cluster: {server: 'http://127.0.0.1:2'}}
users: [{name: user, user: {}}]
contexts:
- {name: one, context: {cluster: one, user: user}}
- {name: two, context: {cluster: two, user: user}}
";
}

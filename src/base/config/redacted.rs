//! Errors of kube-client about credentials, without the content of files and the output of plugins that some of them
//! quote.

use std::error::Error;

use http::Uri;
use kube_client::{
    client::{AuthError, RustlsTlsError},
    config::{KubeconfigError, LoadDataError},
};
use rustls::pki_types::pem;

/// What an error says, safe to be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Redacted(String);

/// The maximum length of what a plugin writes to its standard error, in characters.
const STDERR_MAX: usize = 500;

impl Redacted {
    /// The words for an error and its causes, which kube-client's errors include.
    #[must_use]
    pub fn new(error: &(dyn Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        Self(causes.find_map(fixed).unwrap_or_else(|| error.to_string()))
    }

    /// A URL without the password that it may have, wherever its author has put it: without a scheme, for example, all
    /// of it may be read as a path.
    #[must_use]
    pub fn url(url: &Uri) -> Self {
        Self::text(&url.to_string())
    }

    /// The same for a text that may be a URL: without all up to the last `@`, and without a query.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + "://".len()));
        let rest = rest.rsplit_once('@').map_or(rest, |(_, bare)| bare);
        Self(format!("{scheme}{}", rest.split(['?', '#']).next().unwrap_or_default()))
    }

    /// What is wrong with a PEM file: the error of the parser quotes a line of it, which may be a whole key.
    #[expect(clippy::wildcard_enum_match_arm, reason = "there may be more kinds")]
    pub(super) fn pem(error: &pem::Error) -> Self {
        let words = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no END line",
            pem::Error::IllegalSectionStart { .. } => "a BEGIN line does not end with -----",
            pem::Error::Base64Decode(_) => "a section is not base64",
            pem::Error::NoItemsFound => "no items found",
            _ => "not PEM",
        };
        Self(words.to_owned())
    }

    /// A service's error: only those about credentials are replaced.
    #[must_use]
    pub fn service(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
        if error.is::<AuthError>() { Box::new(Self::new(&*error)) } else { error }
    }
}

/// The words in place of an error that quotes content, which may be secret; `None` for an error that quotes nothing.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others quote nothing")]
fn fixed(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<AuthError>() {
        return of_plugin(error);
    }
    if let Some(error) = error.downcast_ref::<pem::Error>() {
        return Some(format!("the client certificate or its key: {}", Redacted::pem(error)));
    }
    if error.downcast_ref::<RustlsTlsError>().is_some_and(lacks_authorities) {
        return Some(NO_AUTHORITIES.to_owned());
    }
    let data = |field: &str| format!("{field}-data is not base64");
    match error.downcast_ref::<KubeconfigError>()? {
        KubeconfigError::LoadCertificateAuthority(LoadDataError::DecodeBase64(_)) => {
            Some(data("certificate-authority"))
        }
        KubeconfigError::LoadClientCertificate(LoadDataError::DecodeBase64(_)) => Some(data("client-certificate")),
        KubeconfigError::LoadClientKey(LoadDataError::DecodeBase64(_)) => Some(data("client-key")),
        KubeconfigError::ParseCertificates(_) => Some("certificate-authority is not PEM".to_owned()),
        _ => None,
    }
}

/// As in the image of the gateway.
const NO_AUTHORITIES: &str = "it names no certificate-authority, and this system has no authorities to trust in its \
                              place; write it into the kubeconfig, or name a file with authorities in SSL_CERT_FILE";

/// Whether there are no authorities of the system, which are needed if none are named. The words are those of the
/// verifier, which has no kind of its own for that.
fn lacks_authorities(error: &RustlsTlsError) -> bool {
    matches!(error, RustlsTlsError::AddRootCertificate(why) if why.to_string().contains("No CA certificates"))
}

/// A plugin's standard output has tokens, and so may its arguments and its environment.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others quote nothing")]
fn of_plugin(error: &AuthError) -> Option<String> {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(STDERR_MAX).collect();
            let said = if said.is_empty() { "nothing on its standard error".to_owned() } else { said };
            Some(format!("the kubeconfig's credential plugin failed with {}: {said}", out.status))
        }
        AuthError::AuthExecStart(error) => Some(error.to_string()),
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            Some("the output of the kubeconfig's credential plugin is not an ExecCredential".to_owned())
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            Some("the expirationTimestamp of the kubeconfig's credential plugin is not a time".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_client::{Config, client::ConfigExt};

    use crate::config::{PemFile, TlsFiles, TlsPem};

    const SECRET: &str = "SUPERSECRET";

    /// The error for a kubeconfig's user with these fields.
    fn told(user: &serde_json::Value) -> String {
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info = serde_json::from_value(user.clone()).unwrap();
        let error = config.auth_layer().err().or_else(|| config.rustls_client_config().err()).unwrap();
        Redacted::new(&error).to_string()
    }

    #[test]
    fn plugin_errors_contain_no_output_and_no_environment() {
        let plugin = |script: String| {
            serde_json::json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
                "env": [{"name": "KEY", "value": SECRET}], "interactiveMode": "Never",
            }})
        };
        for (script, expected) in [
            (format!("echo {SECRET}; echo 'no  login' >&2; exit 3"), "failed with exit status: 3: no login"),
            (format!("echo '{{\"status\": {SECRET}'"), "is not an ExecCredential"),
            (format!("echo '{{\"status\": {{\"token\": [\"{SECRET}\"]}}}}'"), "is not an ExecCredential"),
        ] {
            let told = told(&plugin(script));
            assert!(told.contains(expected) && !told.contains(SECRET), "{told}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_redacted() {
        for (url, expected) in [
            ("https://api:6443", "https://api:6443/"),
            ("https://jane:SUPERSECRET@api:6443/prefix?token=SUPERSECRET", "https://api:6443/prefix"),
            ("jane:SUPERSECRET@api:6443", "api:6443"),
            ("//jane:SUPERSECRET@api:6443/prefix", "api:6443/prefix"),
            ("api:6443", "api:6443"),
            ("https://jane:SUPER/SECRET@api:6443", "https://api:6443"),
        ] {
            assert_eq!(Redacted::url(&url.parse().unwrap()).to_string(), expected, "{url}");
        }
    }

    #[test]
    fn a_password_in_what_is_no_url_is_redacted() {
        for (text, expected) in [
            ("jane:SUPERSECRET@api host", "api host"),
            ("https://ja ne:SUPER?SEC@RET@api:port/x?token=SUPERSECRET", "https://api:port/x"),
            ("https://jane:SUPER#SECRET@", "https://"),
            ("gateway=http:///jane:SUPERSECRET@[::1", "gateway=http://[::1"),
            ("/run/admin.sock", "/run/admin.sock"),
            ("", ""),
        ] {
            assert!(text.parse::<Uri>().is_err() || !text.contains(SECRET), "{text}");
            assert_eq!(Redacted::text(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_key_on_one_line_is_redacted() {
        let key = format!("-----BEGIN PRIVATE KEY----- {SECRET}\n-----END PRIVATE KEY-----\n");
        let files = TlsFiles { cert_file: "/c".into(), key_file: "/k".into() };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = TlsPem { cert: made.cert.pem().into_bytes(), key: key.clone().into_bytes() };
        let bytes = format!("{:?}", SECRET.as_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        for error in
            [files.certified_key(&pem).unwrap_err(), PemFile("/k".into()).authorities(key.as_bytes()).unwrap_err()]
        {
            let source = error.source().unwrap().to_string();
            assert_eq!(source, "a BEGIN line does not end with -----");
            assert!(!format!("{error:?}").contains(bytes), "{error:?}");
        }
        let certificate = encoded(&made.cert.pem());
        let told = told(&serde_json::json!({"client-certificate-data": certificate, "client-key-data": encoded(&key)}));
        assert_eq!(told, "the client certificate or its key: a BEGIN line does not end with -----");
        let told =
            self::told(&serde_json::json!({"client-certificate-data": "x", "client-key-data": format!("{SECRET}!")}));
        assert!(!told.contains(SECRET), "{told}");
    }

    fn encoded(pem: &str) -> String {
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem)
    }
}

//! An HTTP client that returns responses unchanged.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube_client::config::KubeConfigOptions;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::time::{Duration, timeout};

use crate::certificates::ADMIN_TOKEN;

/// Longer than any response takes.
const ANSWER_MAX: Duration = Duration::from_secs(70);

/// A server or the gateway, and the credentials for it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) base: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Sent with every request.
    token: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Endpoint {
    /// As the admin.
    pub(crate) fn direct(base: &str, authority: &Path) -> Result<Self> {
        let tls = tls_config(Some(authority), None)?;
        Ok(Self { token: Some(ADMIN_TOKEN.to_owned()), ..Self::new(base, tls, Protocol::Http1) })
    }

    /// As the account of a token.
    pub(crate) fn with_token(base: &str, authority: &Path, token: &str) -> Result<Self> {
        Ok(Self { token: Some(token.to_owned()), ..Self::showing(base, authority, None, Protocol::Http1)? })
    }

    pub(crate) fn plain(base: &str) -> Result<Self> {
        Ok(Self::new(base, tls_config(None, None)?, Protocol::Http1))
    }

    /// With the certificate in this file; requests add their own headers.
    pub(crate) fn showing(base: &str, authority: &Path, certificate: Option<&Path>, how: Protocol) -> Result<Self> {
        Ok(Self::new(base, tls_config(Some(authority), certificate)?, how))
    }

    fn new(base: &str, tls: rustls::ClientConfig, how: Protocol) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match how {
            Protocol::Http1 => builder.enable_http1().build(),
            Protocol::Http2 => builder.enable_http2().build(),
        };
        let client = Client::builder(TokioExecutor::new()).http2_only(how == Protocol::Http2).build(connector);
        Self { base: base.to_owned(), client, token: None }
    }

    /// The head of the response; the body is still to be read.
    pub(crate) async fn open(&self, ask: &Ask) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(&ask.method).uri(format!("{}{}", self.base, ask.path));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let answer = self.client.request(request.body(Full::new(ask.body.clone()))?);
        timeout(ANSWER_MAX, answer).await.context("no answer")?.with_context(|| ask.path.clone())
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Result<Answer> {
        let (head, body) = self.open(ask).await?.into_parts();
        let body = timeout(ANSWER_MAX, body.collect()).await.context("no end of the body")?;
        let body = body.with_context(|| format!("body of {}{}", self.base, ask.path))?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.send(&Ask::get(path)).await
    }

    /// The document at a path that must exist.
    pub(crate) async fn json(&self, path: &str) -> Result<Value> {
        self.get(path).await?.expect_success(path)
    }

    /// A write that must succeed. A PATCH is sent as a merge patch.
    pub(crate) async fn write(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = Bytes::from(body.to_string());
        let ask = Ask { method, path: path.to_owned(), headers: Vec::new(), body }.header("content-type", content);
        self.send(&ask).await?.expect_success(path)
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Result<Value> {
        self.write(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.write(Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value> {
        self.write(Method::DELETE, path, &serde_json::json!({"gracePeriodSeconds": 0})).await
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn expect_success(&self, path: &str) -> Result<Value> {
        anyhow::ensure!((200..300).contains(&self.status), "{path}: {} {}", self.status, self.text());
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Trusts one authority, and presents the certificate in a file with the key next to it.
pub(crate) fn tls_config(authority: Option<&Path>, certificate: Option<&Path>) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(authority) = authority {
        roots.add(CertificateDer::from_pem_file(authority)?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some(path) = certificate else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_file(path.with_extension("key"))?;
    Ok(builder.with_client_auth_cert(vec![CertificateDer::from_pem_file(path)?], key)?)
}

/// The version of an object or a collection.
pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// A kube client for an endpoint's kubeconfig.
pub(crate) async fn kube(kubeconfig: &Path) -> Result<kube::Client> {
    let kubeconfig = kube_client::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

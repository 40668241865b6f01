//! The contents of secrets and credentials, which are never logged at any level.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use kube_fanout::{
    sim::Sim,
    telemetry::{LogFormat, log_subscriber},
};
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::{
    delegated::delegated,
    harness::{
        Client, Gateway, Route,
        guarded::{GATEWAY_TOKEN, Guarded},
        until,
    },
};

const TOKEN: &str = "b3BhcXVlLXRva2Vu-of-jane";
const UNKNOWN_TOKEN: &str = "dG9rZW4tb2Ytbm9ib2R5";
const PASSWORD: &str = "amFuZTpwYXNzd29yZA==";
/// The content of the secret, and the content that a client writes into another one.
const CONTENT: &str = "Y29udGVudC1vZi1hLXNlY3JldA==";
const WRITTEN: &str = "d3JpdHRlbi1pbnRvLWEtc2VjcmV0";

const SECRETS: &str = "/api/v1/secrets?resourceVersion=0";
const SECRET: &str = "/api/v1/namespaces/default/secrets/s";

/// Collects the log.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn secret(name: &str, content: &str) -> Value {
    json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "type": "Opaque", "data": {"key": content},
    })
}

/// Reads and writes in every way, with valid and with invalid credentials.
async fn use_secrets(client: &Client, name: &str) {
    let jane = format!("Bearer {TOKEN}");
    let jane = [("authorization", jane.as_str())];
    let served = async || {
        let answer = client.request("GET", SECRETS, &jane, Bytes::new()).await;
        (answer.route == Route::Served).then(|| answer.text().contains(CONTENT))
    };
    assert!(until("the cache is filled", served).await);
    let read = client.request("GET", SECRET, &jane, Bytes::new()).await;
    assert!(matches!(read.route, Route::Forwarded(_)) && read.text().contains(CONTENT), "{}", read.route);
    let written = secret(name, WRITTEN).to_string();
    let created = client.request("POST", "/api/v1/namespaces/default/secrets", &jane, written.into()).await;
    assert!(created.status.is_success() && created.text().contains(WRITTEN), "{}", created.text());
    for path in ["/api/v1/secrets?watch=1&resourceVersion=0", "/api/v1/secrets?watch=1&resourceVersion=0&limit=x"] {
        let watch = client.open_with(path, &jane).await;
        if let Ok(mut watch) = watch {
            assert!(watch.line().await.unwrap().unwrap().contains("ADDED"));
        }
    }
    for authorization in [format!("Bearer {UNKNOWN_TOKEN}"), format!("Basic {PASSWORD}")] {
        let answer = client.request("GET", SECRETS, &[("authorization", &authorization)], Bytes::new()).await;
        assert!(answer.status.is_client_error(), "{}", answer.status);
    }
}

#[tokio::test]
async fn trace_shows_no_credentials_and_no_content_of_secrets() {
    // Upstream over HTTP/1.1, then over HTTP/2.
    for tls in [false, true] {
        let sim = Sim::new();
        sim.create(secret("s", CONTENT)).unwrap();
        let (upstream, mut access) = if tls {
            Guarded::start_with_tls(sim.clone()).await
        } else {
            let upstream = Guarded::start(sim.clone()).await;
            let url = format!("http://{}", upstream.address);
            (upstream, kube_client::Config::new(url.parse().unwrap()))
        };
        upstream.add_user(TOKEN, "jane");
        for verb in ["get", "list", "watch", "create"] {
            upstream.grant("jane", verb, "secrets");
        }
        access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
        let gateway = Gateway::start_in_front_of(access, |config| config.clients = delegated()).await;
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = log_subscriber(LogFormat::Json, LevelFilter::TRACE, move || writer.clone());
        let logged = tracing::subscriber::set_default(subscriber.with(gateway.client.log()));
        use_secrets(&gateway.client, "first").await;
        use_secrets(&gateway.client.over_http2(), "second").await;
        drop(logged);

        let text = lines.text();
        for target in ["access", "kube_fanout_gateway::", "h2::"] {
            assert!(text.contains(&format!(r#""target":"{target}"#)), "nothing is logged by {target}");
        }
        for hidden in [TOKEN, UNKNOWN_TOKEN, PASSWORD, GATEWAY_TOKEN, CONTENT, WRITTEN] {
            let shown: Vec<_> = text.lines().filter(|line| line.contains(hidden)).take(5).collect();
            assert!(shown.is_empty(), "{hidden} is shown, tls {tls}: {shown:#?}");
        }
    }
}

//! Certificates change while clients read: the gateway's own, and the authorities of its clients' certificates.
//!
//! The gateway has its own copies of the files, which are replaced. Connected clients continue, including watches. New
//! clients see the new certificate; the new authority accepts them, and the old one no longer does once it is removed.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::gateways::{Asserts, Delegated};
use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, Protocol},
    gateway::{Gateway, PATIENCE, unique_agent},
    report::Tally,
    servers::POLL,
};

const LIST: &str = "/api/v1/namespaces/conf/pods?resourceVersion=0";
/// Always forwarded.
const GET: &str = "/api/v1/namespaces/conf/pods/pod-03";
const WATCH: &str =
    "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=120&fieldSelector=metadata.name%3Dpod-03";
/// The files are checked every ten seconds.
const ROTATED_WITHIN: std::time::Duration = PATIENCE;

/// Clients that connected before anything changes.
struct Connected<'a> {
    gateway: &'a Gateway,
    clients: Vec<(&'static str, Endpoint)>,
    requests: usize,
}

pub(crate) async fn rotation(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let old = copied(certificates, "rotation")?;
    let new = Certificates::make(&subfolder(certificates, "rotated")?)?;
    let delegated = Delegated::start("gateway-rotation", Asserts::FrontProxy, None, &side.server, &old).await?;
    delegated.gateway.warm("/api/v1/pods").await?;
    let client = |trusted: &Certificates, shown: &Certificates, how| {
        let (authority, certificate) = (trusted.file("ca.crt"), shown.file("cert.crt"));
        Endpoint::showing(&delegated.secure, Path::new(&authority), Some(Path::new(&certificate)), how)
    };
    // Created before the files change, since clients read the files now.
    let mut connected = Connected {
        gateway: &delegated.gateway,
        clients: vec![
            ("HTTP/1.1", client(certificates, certificates, Protocol::Http1)?),
            ("HTTP/2", client(certificates, certificates, Protocol::Http2)?),
        ],
        requests: 0,
    };
    connected.go_on("before", 200, &mut tally).await?;
    let watcher = client(certificates, certificates, Protocol::Http1)?;
    let mut watch = watcher.open(&Ask::get(WATCH).header("user-agent", &unique_agent("rotation"))).await?;
    timeout(PATIENCE, watch.body_mut().frame()).await?.context("the first event")??;

    let both = fs::read_to_string(certificates.file("ca.crt"))? + &fs::read_to_string(new.file("ca.crt"))?;
    replace(&old, "ca.crt", &both)?;
    for file in ["server.crt", "server.key"] {
        replace(&old, file, &fs::read_to_string(new.file(file))?)?;
    }
    // A new connection for each attempt, because a refused client is not used again.
    connected.until("the new certificates are there", 200, || client(&new, &new, Protocol::Http1), &mut tally).await?;
    connected.go_on("with the new certificates", 200, &mut tally).await?;
    let late = client(&new, certificates, Protocol::Http2)?;
    tally.equal("an old client, connected anew", &200, &late.get(LIST).await?.status);

    replace(&old, "ca.crt", &fs::read_to_string(new.file("ca.crt"))?)?;
    connected
        .until("the old authority is gone", 401, || client(&new, certificates, Protocol::Http1), &mut tally)
        .await?;
    tally.equal("a new client", &200, &client(&new, &new, Protocol::Http2)?.get(LIST).await?.status);
    // A client whose authority was removed is no longer accepted, even on an existing connection.
    connected.go_on("without their authority", 401, &mut tally).await?;

    let label = json!({"metadata": {"labels": {"rotated": connected.requests.to_string()}}});
    side.server.endpoint.patch(GET, &label).await?;
    let event = timeout(PATIENCE, watch.body_mut().frame()).await;
    tally.holds("a watch goes on", matches!(event, Ok(Some(Ok(_)))), || format!("no event but {event:?}"));
    tally.note(format!("{} requests while certificates changed", connected.requests));
    Ok(tally)
}

impl Connected<'_> {
    /// Each of the clients gets `status`: the list from memory, unless it is refused, and the get from upstream.
    async fn go_on(&mut self, when: &str, status: u16, tally: &mut Tally) -> Result<()> {
        for (how, client) in &self.clients {
            for (path, by) in [(LIST, if status == 200 { "served" } else { "forwarded" }), (GET, "forwarded")] {
                self.requests += 1;
                let agent = unique_agent("rotation");
                let answer = client.send(&Ask::get(path).header("user-agent", &agent)).await?;
                let outcome = self.gateway.outcome(&agent).await?;
                let what = format!("{how}, {path}, {when}");
                tally.equal(&what, &(status, by), &(answer.status, outcome.by.as_str()));
                tally.answered(&outcome);
            }
        }
        Ok(())
    }

    /// Repeats until a new client gets `status`.
    async fn until(
        &mut self,
        what: &str,
        status: u16,
        client: impl Fn() -> Result<Endpoint>,
        tally: &mut Tally,
    ) -> Result<()> {
        let started = Instant::now();
        loop {
            // An error counts as a refusal: a client that only trusts the new certificate cannot connect with the old
            // one in use.
            if client()?.get(LIST).await.is_ok_and(|answer| answer.status == status) {
                return Ok(());
            }
            anyhow::ensure!(started.elapsed() < ROTATED_WITHIN, "{what}: not after {ROTATED_WITHIN:?}");
            // The last requests may already see what the next client will.
            if status == 200 {
                self.go_on(what, 200, tally).await?;
            }
            sleep(POLL).await;
        }
    }
}

/// Copies of the files, which can change without affecting other scenarios.
pub(super) fn copied(certificates: &Certificates, name: &str) -> Result<Certificates> {
    let folder = subfolder(certificates, name)?;
    for file in fs::read_dir(&certificates.folder)? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), folder.join(file.file_name()))?;
        }
    }
    Ok(Certificates { folder })
}

fn subfolder(certificates: &Certificates, name: &str) -> Result<std::path::PathBuf> {
    let folder = certificates.folder.join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// Replaces a file atomically, like tools that mount secrets.
pub(super) fn replace(certificates: &Certificates, file: &str, text: &str) -> Result<()> {
    let aside = certificates.file(&format!("{file}.next"));
    fs::write(&aside, text)?;
    Ok(fs::rename(aside, certificates.file(file))?)
}

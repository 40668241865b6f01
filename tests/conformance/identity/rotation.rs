//! Certificates change while clients read: the gateway's own, and those that clients are believed by.
//!
//! The gateway has files of its own, which others take the place of. Whoever is connected goes on, with a watch too; whoever
//! connects meets the new certificate, and is believed by the new authority, and no longer by the old one once it is gone.

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
/// Only upstream answers it.
const GET: &str = "/api/v1/namespaces/conf/pods/pod-03";
const WATCH: &str =
    "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=120&fieldSelector=metadata.name%3Dpod-03";
/// The files are looked at every ten seconds.
const ROTATED_WITHIN: std::time::Duration = PATIENCE;

/// Clients that have connected before anything changes.
struct Connected<'a> {
    gateway: &'a Gateway,
    clients: Vec<(&'static str, Endpoint)>,
    requests: usize,
}

pub(crate) async fn rotation(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let old = copied(certificates)?;
    let new = Certificates::make(&subfolder(certificates, "rotated")?)?;
    let delegated = Delegated::start("gateway-rotation", Asserts::FrontProxy, None, &side.server, &old).await?;
    delegated.gateway.warm("/api/v1/pods").await?;
    let client = |trusted: &Certificates, shown: &Certificates, how| {
        let (authority, certificate) = (trusted.file("ca.crt"), shown.file("cert.crt"));
        Endpoint::showing(&delegated.secure, Path::new(&authority), Some(Path::new(&certificate)), how)
    };
    // Before the files change: these are what the clients have read.
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
    // A connection each time: one that was refused is not asked again.
    connected.until("the new certificates are there", 200, || client(&new, &new, Protocol::Http1), &mut tally).await?;
    connected.go_on("with the new certificates", 200, &mut tally).await?;
    let late = client(&new, certificates, Protocol::Http2)?;
    tally.equal("an old client, connected anew", &200, &late.get(LIST).await?.status);

    replace(&old, "ca.crt", &fs::read_to_string(new.file("ca.crt"))?)?;
    connected
        .until("the old authority is gone", 401, || client(&new, certificates, Protocol::Http1), &mut tally)
        .await?;
    tally.equal("a new client", &200, &client(&new, &new, Protocol::Http2)?.get(LIST).await?.status);
    // Whoever was believed by the old authority is not any more, however long he has been connected.
    connected.go_on("without their authority", 401, &mut tally).await?;

    let label = json!({"metadata": {"labels": {"rotated": connected.requests.to_string()}}});
    side.server.endpoint.patch(GET, &label).await?;
    let event = timeout(PATIENCE, watch.body_mut().frame()).await;
    tally.holds("a watch goes on", matches!(event, Ok(Some(Ok(_)))), || format!("no event but {event:?}"));
    tally.note(format!("{} requests while certificates changed", connected.requests));
    Ok(tally)
}

impl Connected<'_> {
    /// Each of them is answered with `status`: the list by memory, unless he is nobody any more, the get by upstream.
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

    /// Goes on until a new client is answered with `status`.
    async fn until(
        &mut self,
        what: &str,
        status: u16,
        client: impl Fn() -> Result<Endpoint>,
        tally: &mut Tally,
    ) -> Result<()> {
        let started = Instant::now();
        loop {
            // An error is one, too: who trusts the new certificate alone does not connect to the old one.
            if client()?.get(LIST).await.is_ok_and(|answer| answer.status == status) {
                return Ok(());
            }
            anyhow::ensure!(started.elapsed() < ROTATED_WITHIN, "{what}: not after {ROTATED_WITHIN:?}");
            // The last ones may see what the next client will.
            if status == 200 {
                self.go_on(what, 200, tally).await?;
            }
            sleep(POLL).await;
        }
    }
}

/// Files that may change without anybody else noticing.
fn copied(certificates: &Certificates) -> Result<Certificates> {
    let folder = subfolder(certificates, "rotation")?;
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

/// As tools that mount secrets do it: at once.
fn replace(certificates: &Certificates, file: &str, text: &str) -> Result<()> {
    let aside = certificates.file(&format!("{file}.next"));
    fs::write(&aside, text)?;
    Ok(fs::rename(aside, certificates.file(file))?)
}

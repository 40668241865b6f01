//! A front-proxy certificate of the authority of clients' certificates: the server would take every client for the
//! certificate's own user, here an administrator.
//!
//! A server with SelfSubjectReviews reveals this, and the gateway does not start. An older server answers an
//! administrator's review with 404, which reveals nothing: then no client is forwarded with that certificate. If it
//! comes in place of a good one while the gateway runs, the good one stays in use.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep};

use super::{
    gateways::{Asserts, Delegated},
    rotation::{copied, replace},
};
use crate::{
    Side,
    certificates::Certificates,
    client::{Endpoint, Protocol},
    gateway::PATIENCE,
    report::Tally,
    servers::POLL,
};

/// Neither the certificate's user nor the token's may read them.
const SECRETS: &str = "/api/v1/namespaces/conf/secrets";
const NAMESPACES: &str = "/api/v1/namespaces";
/// Answered by the server to anyone.
const VERSION: &str = "/version";
/// What the log says of that certificate: with SelfSubjectReviews, and without. Not of files of which only one has been
/// replaced yet.
const REFUSALS: [&str; 2] =
    ["every client would act as that user", "takes every client for the certificate's own user"];

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    later(side, certificates, &mut tally).await?;
    let started =
        Delegated::start("gateway-misplaced", Asserts::MisplacedProxy, None, &side.server, certificates).await;
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    if side.server.endpoint.get(reviews).await?.status != 404 {
        tally.holds("the gateway does not start", started.is_err(), || "but it has started".to_owned());
        return Ok(tally);
    }
    let delegated = started?;
    let (authority, certificate) = (certificates.file("ca.crt"), certificates.file("cert.crt"));
    for how in [Protocol::Http1, Protocol::Http2] {
        let of = |base: &str| Endpoint::showing(base, Path::new(&authority), Some(Path::new(&certificate)), how);
        let (direct, through) = (of(&side.server.endpoint.base)?, of(&delegated.secure)?);
        tally.equal("directly", &403, &direct.get(SECRETS).await?.status);
        for path in [SECRETS, NAMESPACES, VERSION] {
            let answer = through.get(path).await?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            tally.equal(&format!("{how:?}, {path}"), &503, &answer.status);
            tally.holds(path, text.contains("front-proxy certificate"), || text.clone());
        }
    }
    let ready = Endpoint::plain(&format!("http://{}", delegated.gateway.admin().context("no admin port")?))?;
    let ready = ready.get("/readyz").await?;
    let text = String::from_utf8_lossy(&ready.body).into_owned();
    tally.equal("/readyz", &500, &ready.status);
    tally.holds("/readyz", text.contains("[-]frontProxy failed: the API server has not shown yet"), || text.clone());
    Ok(tally)
}

/// The files of the gateway's certificate hold that one for a while, and a good one before and after.
async fn later(side: &Side, certificates: &Certificates, tally: &mut Tally) -> Result<()> {
    let files = copied(certificates, "misplaced")?;
    let delegated = Delegated::start("gateway-replaced", Asserts::FrontProxy, None, &side.server, &files).await?;
    let admin = Endpoint::plain(&format!("http://{}", delegated.gateway.admin().context("no admin port")?))?;
    let (authority, certificate) = (certificates.file("ca.crt"), certificates.file("cert.crt"));
    let through = |how| Endpoint::showing(&delegated.secure, Path::new(&authority), Some(Path::new(&certificate)), how);
    let clients = [through(Protocol::Http1)?, through(Protocol::Http2)?];
    let put = |from: &str| {
        ["crt", "key"].into_iter().try_for_each(|kind| {
            let text = fs::read_to_string(certificates.file(&format!("{from}.{kind}")))?;
            replace(&files, &format!("front-proxy.{kind}"), &text)
        })
    };
    let told = || REFUSALS.iter().map(|text| delegated.gateway.has_told(text)).sum::<usize>();
    put("masters-proxy")?;
    let started = Instant::now();
    while told() == 0 {
        anyhow::ensure!(started.elapsed() < PATIENCE, "the log has none of {REFUSALS:?}");
        for client in &clients {
            tally.equal(&format!("masters-proxy in the files, {SECRETS}"), &403, &client.get(SECRETS).await?.status);
        }
        sleep(POLL).await;
    }
    // Those in use: nothing is replaced.
    for restored in [false, true] {
        if restored {
            put("front-proxy")?;
        }
        for client in &clients {
            tally.equal(&format!("restored: {restored}, {SECRETS}"), &403, &client.get(SECRETS).await?.status);
        }
        tally.equal("/readyz", &200, &admin.get("/readyz").await?.status);
    }
    tally.equal("replaced certificates", &0, &delegated.gateway.has_told("front-proxy certificate replaced"));
    Ok(())
}

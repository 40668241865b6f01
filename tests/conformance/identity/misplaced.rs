//! A front-proxy certificate of the authority of clients' certificates: the server would take every client for the
//! certificate's own user, here an administrator.
//!
//! A server with SelfSubjectReviews says so, and the gateway does not start. An older one lets an administrator ask for
//! what it does not have, and says nothing: then no client is forwarded with that certificate.

use std::path::Path;

use anyhow::{Context, Result};

use super::gateways::{Asserts, Delegated};
use crate::{
    Side,
    certificates::Certificates,
    client::{Endpoint, Protocol},
    report::Tally,
};

/// Neither the certificate's user nor the token's may read them.
const SECRETS: &str = "/api/v1/namespaces/conf/secrets";
const NAMESPACES: &str = "/api/v1/namespaces";
/// Answered by the server to anyone.
const VERSION: &str = "/version";

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
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

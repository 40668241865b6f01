//! Discovery and OpenAPI in every form, asked again and again, before and after a definition comes, changes and goes:
//! what the gateway keeps, and lets the server confirm, is what the server sends.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Side,
    client::{Answer, Ask},
    compare::{Rules, differences},
    gateway::PATIENCE,
    objects,
    report::Tally,
};

const PATHS: [&str; 11] = [
    "/version",
    "/api",
    "/apis",
    "/api/v1",
    "/apis/apps",
    "/apis/apps/v1?timeout=32s",
    "/apis/conf.example.com/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/apps/v1",
    "/openapi/v3/apis/conf.example.com/v1",
];
const FORMS: [&str; 6] = [
    "*/*",
    "application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];
const ENCODINGS: [&str; 2] = ["gzip", "identity"];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULES: Rules = Rules { any_order: false, any_version: false };

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let (mut tally, direct) = (Tally::default(), &side.server.endpoint);
    let definition = format!("{DEFINITIONS}/novelties.conf.example.com");
    same(side, "at first", &mut tally).await?;
    same(side, "again", &mut tally).await?;
    direct.create(DEFINITIONS, &objects::definition("novelties", "Novelty", "Namespaced", false)).await?;
    objects::served(direct, "/apis/conf.example.com/v1/novelties").await?;
    same(side, "with a new definition", &mut tally).await?;
    let mut changed = direct.json(&definition).await?;
    changed["spec"]["names"]["shortNames"] = json!(["nov"]);
    direct.write(Method::PUT, &definition, &changed).await?;
    same(side, "with a changed one", &mut tally).await?;
    direct.delete(&definition).await?;
    same(side, "without it", &mut tally).await?;
    Ok(tally)
}

async fn same(side: &Side, when: &str, tally: &mut Tally) -> Result<()> {
    for path in PATHS {
        for accept in FORMS {
            for encoding in ENCODINGS {
                let ask = Ask::get(path).header("accept", accept).header("accept-encoding", encoding);
                let found = compared(side, &ask).await?;
                tally.compared(&format!("{when}: {path}, {accept}, {encoding}"), found);
            }
        }
    }
    Ok(())
}

/// The differences between the server's answer and the gateway's. The server's own may change at any time: it builds
/// these documents a while after a definition has changed.
async fn compared(side: &Side, ask: &Ask) -> Result<Vec<String>> {
    let (direct, gateway, started) = (&side.server.endpoint, &side.gateway.endpoint, Instant::now());
    let is_same = |one: &Answer, other: &Answer| differences(RULES, one, other).is_empty();
    loop {
        let (before, through, after) = (direct.send(ask).await?, gateway.send(ask).await?, direct.send(ask).await?);
        if is_same(&before, &after) {
            return Ok(differences(RULES, &before, &through));
        }
        ensure!(started.elapsed() < PATIENCE, "{ask:?} is answered in another way each time");
    }
}

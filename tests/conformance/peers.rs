//! A further replica has its state from those that are there, over TLS and with rights of its own: it costs the API
//! server watches, and no list.

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint},
    gateway::{Gateway, PATIENCE},
    ports::free_port,
    report::Tally,
    servers::{POLL, Server},
};

/// More than all small requests of a fill return.
const OBJECTS: usize = 300;
const PART: &str = "/api/v1/namespaces/conf/configmaps";
const COLLECTION: &str = "/api/v1/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What the API server's metrics count for each object that it returns in a list, or as an initial event.
const RETURNED: [&str; 3] = [
    "apiserver_init_events_total{",
    "apiserver_cache_list_returned_objects_total{",
    "apiserver_storage_list_returned_objects_total{",
];
const WATCHES: &str = "apiserver_longrunning_requests{";

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let direct = &side.server.endpoint;
    for number in 0..OBJECTS {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("peers-{number}"),
            "labels": {"peers": "yes"}}, "data": {"state": "first"}});
        direct.create(PART, &map).await?;
    }
    let tally = replicas(&side.server, certificates).await;
    direct.delete(&format!("{PART}?labelSelector=peers")).await?;
    tally
}

async fn replicas(server: &Server, certificates: &Certificates) -> Result<Tally> {
    let (mut tally, watches) = (Tally::default(), Cost::read(&server.endpoint).await?.watches);
    let ports = [free_port()?, free_port()?, free_port()?];
    let first = started("peers-1", ports[0], &ports, server, certificates).await?;
    warm(&first).await?;
    let second = started("peers-2", ports[1], &ports, server, certificates).await?;
    warm(&second).await?;

    let before = Cost::read(&server.endpoint).await?;
    let third = started("peers-3", ports[2], &ports, server, certificates).await?;
    warm(&third).await?;
    let cost = Cost::read(&server.endpoint).await?.since(&before);
    tally.holds("objects that a third replica costs", cost.objects < 10, || format!("{cost:?}"));
    let watches = settled(&server.endpoint, watches + 3 * 2).await?.saturating_sub(watches);
    tally.equal("watches of three replicas with two caches each", &6, &watches);
    tally.equal("caches that were filled by peers", &2, &filled_by_peers(&third).await?);
    for accept in ["application/json", PROTOBUF] {
        let ask = Ask::get(format!("{COLLECTION}?resourceVersion=0")).header("accept", accept);
        let (expected, told) = (server.endpoint.send(&ask).await?, third.endpoint.send(&ask).await?);
        tally.holds(accept, items(&expected.body) == items(&told.body), || "other objects than upstream's".to_owned());
    }
    // The same without peers shows that the measure sees a list.
    let before = Cost::read(&server.endpoint).await?;
    let port = free_port()?;
    let alone = started("peers-none", port, &[], server, certificates).await?;
    warm(&alone).await?;
    let alone = Cost::read(&server.endpoint).await?.since(&before);
    tally.holds("objects that a gateway without peers costs", alone.objects >= 2 * OBJECTS, || format!("{alone:?}"));
    tally.note(format!(
        "a replica with peers costs {} objects of {OBJECTS} in two encodings, one without {}",
        cost.objects, alone.objects
    ));
    Ok(tally)
}

/// A list without its version, which may differ: it rises with writes to other resources.
fn items(list: &[u8]) -> Option<&[u8]> {
    let at = list.windows(7).position(|window| window == b"peers-0")?;
    Some(&list[at..])
}

/// What upstream has done so far for config maps.
#[derive(Clone, Copy, Debug)]
struct Cost {
    objects: usize,
    watches: usize,
}

impl Cost {
    async fn read(server: &Endpoint) -> Result<Self> {
        let text = server.get("/metrics").await?.text();
        let sum = |name: &str| -> usize {
            let rows = text.lines().filter(|row| row.starts_with(name) && row.contains(r#"resource="configmaps""#));
            let watches = rows.filter(|row| name != WATCHES || row.contains(r#"verb="WATCH""#));
            watches.filter_map(|row| row.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
        };
        Ok(Self { objects: RETURNED.into_iter().map(sum).sum(), watches: sum(WATCHES) })
    }

    fn since(&self, before: &Self) -> Self {
        Self { objects: self.objects.saturating_sub(before.objects), ..*self }
    }
}

/// The number of open watches, once it is `expected`: the watches of proofs end within seconds.
async fn settled(server: &Endpoint, expected: usize) -> Result<usize> {
    let started = Instant::now();
    loop {
        let Cost { watches, .. } = Cost::read(server).await?;
        if watches == expected || started.elapsed() > PATIENCE {
            return Ok(watches);
        }
        sleep(POLL).await;
    }
}

async fn filled_by_peers(gateway: &Gateway) -> Result<usize> {
    let admin = Endpoint::plain(&format!("http://{}", gateway.admin().context("no admin port")?))?;
    let text = admin.get("/metrics").await?.text();
    let is_fill = |row: &&str| row.starts_with("kube_fanout_cache_fills_total{") && row.contains(r#"source="peer""#);
    Ok(text.lines().filter(is_fill).count())
}

/// Fills the caches in both encodings.
async fn warm(gateway: &Gateway) -> Result<()> {
    gateway.warm(COLLECTION).await?;
    gateway.warm_as(COLLECTION, PROTOBUF).await
}

/// A replica that asks those at `ports`, among them itself.
async fn started(
    name: &str,
    port: u16,
    ports: &[u16],
    server: &Server,
    certificates: &Certificates,
) -> Result<Gateway> {
    let upstream =
        certificates.kubeconfig_of(&format!("{name}-upstream"), &server.endpoint.base, "conformance-gateway")?;
    let file = |name: &str| certificates.file(name);
    let addresses: Vec<_> = ports.iter().map(|port| format!("\"https://127.0.0.1:{port}\"")).collect();
    let peers = if addresses.is_empty() {
        String::new()
    } else {
        format!("cache: {{peers: {{addresses: [{}], caFile: \"{}\"}}}}", addresses.join(", "), file("ca.crt"))
    };
    let fields = format!(
        "listeners: [{{address: \"127.0.0.1:{port}\", tls: {{certFile: \"{}\", keyFile: \"{}\"}}}}]\n\
         upstream: {{kubeconfig: \"{}\"}}\nclients: {{mode: delegated}}\n{peers}",
        file("server.crt"),
        file("server.key"),
        upstream.display(),
    );
    Gateway::delegated(name, &fields, &format!("https://127.0.0.1:{port}"), certificates).await
}

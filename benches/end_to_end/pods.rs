//! Pods of a realistic size, and changes to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use http::Method;
use load::workload;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::{client::Endpoint, sizes::Sizes};

/// The number of connections that write concurrently.
const WRITERS: usize = 16;
/// The number of applications to which the pods belong; a namespace contains the pods of a tenth of them.
const APPLICATIONS: usize = 50;
/// The annotation with the time at which a change was sent, in nanoseconds.
pub(crate) const SENT: &str = "bench/sent";

/// The path of the pod with this index.
pub(crate) fn path(sizes: &Sizes, index: usize) -> String {
    let (namespace, name) = (index % sizes.namespaces, index / sizes.namespaces);
    format!("/api/v1/namespaces/load-{namespace}/pods/pod-{name}")
}

/// Creates the namespaces and pods.
pub(crate) async fn seed(endpoint: &Endpoint, sizes: &Sizes) -> Result<()> {
    let mut connection = endpoint.connect(false).await?;
    for namespace in 0..sizes.namespaces {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("load-{namespace}")}});
        connection.write(Method::POST, "/api/v1/namespaces", &namespace).await?;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (endpoint, sizes, next) = (endpoint.clone(), sizes.clone(), next.clone());
        writers.spawn(async move {
            let mut connection = endpoint.connect(false).await?;
            loop {
                let index = next.fetch_add(1, Relaxed);
                if index >= sizes.pods {
                    return Ok::<_, anyhow::Error>(());
                }
                let path = path(&sizes, index);
                let (collection, _) = path.rsplit_once('/').unwrap_or_default();
                connection.write(Method::POST, collection, &pod(&sizes, index)).await?;
                connection.write(Method::PATCH, &format!("{path}/status"), &workload::status(index)).await?;
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(())
}

/// Changes the pods of `indices` one after the other, `rate` per second.
pub(crate) async fn change(
    endpoint: &Endpoint,
    sizes: &Sizes,
    indices: impl IntoIterator<Item = usize>,
    rate: f64,
) -> Result<()> {
    const LANES: usize = 4;
    let indices: Vec<_> = indices.into_iter().collect();
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let paths: Vec<_> = indices.iter().skip(lane).step_by(LANES).map(|index| path(sizes, *index)).collect();
        let endpoint = endpoint.clone();
        lanes.spawn(async move {
            let mut connection = endpoint.connect(false).await?;
            let period = Duration::from_secs_f64(LANES as f64 / rate);
            sleep(period.mul_f64(lane as f64 / LANES as f64)).await;
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for path in paths {
                ticks.tick().await;
                let change = json!({"metadata": {"annotations": {SENT: now().to_string()}}});
                connection.write(Method::PATCH, &path, &change).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    Ok(())
}

/// Nanoseconds since 1970: a clock that all processes share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until `done` returns true, at most for `limit`.
pub(crate) async fn until(limit: Duration, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() && started.elapsed() < limit {
        sleep(Duration::from_millis(20)).await;
    }
}

/// A pod as `kube-fanout load` makes them, which compresses as those of production clusters do.
pub(crate) fn pod(sizes: &Sizes, index: usize) -> Value {
    let mut pod = workload::pod(index % APPLICATIONS, index);
    pod["metadata"]["name"] = format!("pod-{}", index / sizes.namespaces).into();
    pod["metadata"]["labels"]["tier"] = ["web", "db", "cache"][index % 3].into();
    pod["spec"]["nodeName"] = format!("node-{}", index % sizes.nodes()).into();
    pod
}

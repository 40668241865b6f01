//! An informer as it runs in a pod. It finds its API server by `KUBECONFIG`, or by `KUBERNETES_SERVICE_HOST`,
//! `KUBERNETES_SERVICE_PORT` and the files of its service account, prints the number of pods, and ends when it is told
//! of the pod that its argument names. A second argument is the namespace to follow alone.

use std::{
    env,
    io::{self, Write},
    pin::pin,
};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let awaited = env::args().nth(1).context("the name of a pod is missing")?;
    let client = Client::try_from(Config::infer().await?)?;
    let pods: Api<Pod> = match env::args().nth(2) {
        Some(namespace) => Api::namespaced(client, &namespace),
        None => Api::all(client),
    };
    let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    let mut known = 0_usize;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitApply(_)) => known += 1,
            Ok(watcher::Event::InitDone) => writeln!(io::stdout(), "synced {known}")?,
            Ok(watcher::Event::Apply(pod)) if pod.name_any() == awaited => return Ok(()),
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::Init) => {}
            Err(error) => writeln!(io::stderr(), "{error:?}")?,
        }
    }
    bail!("the watch has ended")
}

//! The rows whose clients are those of `kube-fanout load`.

use std::{future::pending, time::Duration};

use anyhow::{Result, ensure};
use kube_fanout::{
    config::UpstreamConfig,
    load::{self, LoadOptions, Profile, Report, Server},
};

use crate::{client::Endpoint, world::World};

/// The head of a profile. An API server may need minutes for the watch-lists of a storm.
const PROFILE: &str = "apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\ntimeout: 10m\n";

/// Puts the load of these workloads (YAML) on a server for `duration`, from when all watches are established. Fails if
/// a request does.
pub(crate) async fn drive(world: &World, endpoint: &Endpoint, workloads: &str, duration: Duration) -> Result<Report> {
    let url = endpoint.url();
    let kubeconfig = Some(world.certificates.kubeconfig("load", &url)?);
    let profile = Profile::parse("bench", &format!("{PROFILE}workloads: [{workloads}]\n"))?.lasting(Some(duration));
    let server = Server { url: Some(url), access: UpstreamConfig { kubeconfig, context: None }, ..Server::default() };
    let options = LoadOptions { any_cluster: true, ..LoadOptions::new(profile, server) };
    let report = load::load(&options, pending()).await?;
    for workload in report.endpoints.iter().flat_map(|endpoint| &endpoint.workloads) {
        ensure!(workload.errors.is_empty(), "{}: {:?}", workload.name, workload.errors);
    }
    Ok(report)
}

//! The command-line flags of API servers and of etcd. The benches start the same servers, with further flags.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use memchr::memmem;

use crate::certificates::Certificates;

/// The flags of every API server: its port, the port of its etcd, and the certificates.
pub(crate) fn api_server(port: u16, etcd: u16, certificates: &Certificates) -> Vec<String> {
    let file = |name: &str| certificates.file(name);
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--requestheader-client-ca-file={}", file("front-ca.crt")),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]
}

/// Further flags of `kube-apiserver`.
pub(crate) fn full(certificates: &Certificates) -> Vec<String> {
    let file = |name: &str| certificates.file(name);
    vec![
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

/// Further flags of `apiextensions-apiserver`, which has the server of `kubeconfig` authenticate and authorize clients.
pub(crate) fn custom_resources(kubeconfig: &Path) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--authentication-skip-lookup=true".to_owned(),
        "--enable-priority-and-fairness=false".to_owned(),
        // These plugins watch types that a 1.20 server does not have; without them the server is never ready.
        "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy".to_owned(),
    ]
}

/// The flag that makes a server select by `shardSelector`; none for one that is too old.
pub(crate) fn shards(program: &Path) -> Result<Option<String>> {
    let help = Command::new(program).arg("--help").output().with_context(|| program.display().to_string())?;
    let is_known = memmem::find(&help.stdout, b"ShardedListAndWatch").is_some();
    Ok(is_known.then(|| "--feature-gates=ShardedListAndWatch=true".to_owned()))
}

/// The flags of an etcd with its data in this folder, and with these ports for clients and peers.
pub(crate) fn etcd(data: &Path, clients: u16, peers: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://127.0.0.1:{clients}"),
        format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peers}"),
    ]
}

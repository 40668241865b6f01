//! `kube-fanout demo`, as a newcomer runs it.

use std::process::Stdio;

use kube_fanout::status::GatewayStatus;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpListener, UnixStream},
};

use crate::harness::{
    process::{ask, finished, kube_fanout},
    until, within,
};

/// In a container from scratch, or on a small Debian.
#[tokio::test]
async fn the_demo_shows_savings_on_a_system_without_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let admin = folder.path().join("admin.sock");
    let mut command =
        kube_fanout(&["demo", "--objects", "30", "--watches", "20", "--listen", "127.0.0.1:0", "--admin-listen"]);
    command.arg(format!("unix:{}", admin.display())).env("SSL_CERT_FILE", "/none").env("SSL_CERT_DIR", "/none");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = within("the first line", lines.next_line()).await.unwrap().unwrap();
    assert_eq!(first, "An embedded API server holds 30 objects; 20 of them change each second.");
    let fanned_out = async || {
        UnixStream::connect(&admin).await.ok()?;
        let answer = ask(&admin, "/status.json").await;
        let status: GatewayStatus = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        Some(status.savings).filter(|savings| savings.watchers == 20)
    };
    let savings = until("all watches are open", fanned_out).await;
    assert!(savings.upstream_watches < 20 && savings.watches_avoided > 0, "{savings:?}");
}

/// As with a gateway beside the demo: both listen on the same addresses unless told otherwise.
#[tokio::test]
async fn an_address_in_use_comes_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = finished(&mut kube_fanout(&["demo", "--objects", "1", "--listen", &address])).await;
    let text = String::from_utf8(output.stderr).unwrap();
    let told = format!("cannot listen on {address}, where another process listens: end it, or name another address");
    assert!(output.status.code() == Some(1) && text.contains(&told), "{text}");
}

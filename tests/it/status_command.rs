//! `kube-fanout status` against ports of several kinds: what it says is what to do.

use std::path::PathBuf;

use kube_fanout::config::{Address, ListenerTls, TlsPolicy};
use rcgen::{BasicConstraints, IsCa};
use tempfile::TempDir;

use crate::{
    admin::Scene,
    harness::{
        certificates::write_certificate,
        process::{finished, kube_fanout},
        serving::{answering, closing},
    },
};

/// The exit code and both outputs.
async fn said(args: &[&str]) -> (Option<i32>, String) {
    let output = finished(kube_fanout(&["status"]).args(args)).await;
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// A gateway whose admin port has a certificate for `localhost`.
struct Secured {
    port: u16,
    certificate: PathBuf,
    /// Another one.
    other: PathBuf,
    _scene: Scene,
    _folder: TempDir,
}

impl Secured {
    async fn start(is_ca: IsCa) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = write_certificate(folder.path(), "localhost", is_ca);
        let certificate = files.cert_file.clone();
        let other = write_certificate(folder.path(), "other", IsCa::NoCa).cert_file;
        let tls = ListenerTls { files, policy: TlsPolicy::default(), client_certificates: false };
        let scene = Scene::start(|config| config.admin.tls = Some(tls)).await;
        Self { port: port(&scene), certificate, other, _scene: scene, _folder: folder }
    }
}

fn port(scene: &Scene) -> u16 {
    let Address::Tcp(address) = scene.address else { panic!("{}", scene.address) };
    address.port()
}

#[tokio::test]
async fn trouble_with_tls_comes_with_what_to_do() {
    let secured = Secured::start(IsCa::NoCa).await;
    let of_authority = Secured::start(IsCa::Ca(BasicConstraints::Unconstrained)).await;
    let plain = Scene::start(|_| {}).await;
    let port = secured.port;
    let [trusted, other] = [&secured.certificate, &secured.other].map(|path| path.to_str().unwrap());
    let local = format!("https://localhost:{port}");
    let by_address = format!("https://127.0.0.1:{port}");
    let without = format!("http://localhost:{port}");
    let not_spoken = format!("https://localhost:{}", self::port(&plain));
    let ca = format!("https://localhost:{}", of_authority.port);
    let own = of_authority.certificate.to_str().unwrap();
    for (admin, authority, words) in [
        (&local, None, "that this system does not trust; name the file of that authority with --certificate-authority"),
        (&local, Some(other), "not issued by an authority in the file of --certificate-authority"),
        (&by_address, Some(trusted), "for other names, or has none as subject alternative names; use one of its names"),
        (&without, Some(trusted), "speaks TLS, and --admin does not: write https:// in front"),
        (&not_spoken, Some(trusted), "does not answer in TLS; if it speaks plain HTTP, write http:// in place of"),
        (&ca, Some(own), "that of an authority (CA:TRUE), which cannot be a server's"),
    ] {
        let mut args = vec!["--admin", admin.as_str()];
        args.extend(authority.into_iter().flat_map(|file| ["--certificate-authority", file]));
        let (code, text) = said(&args).await;
        assert!(code == Some(5) && text.contains(words), "{args:?}: {code:?} {text}");
        assert!(text.contains(admin) && !text.contains("--admin names another one"), "{args:?}: {text}");
    }
    let (code, text) = said(&["--admin", &local, "--certificate-authority", trusted]).await;
    assert!(code == Some(0) && text.contains(", ready,"), "{text}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_explained_without_its_password() {
    for (args, words) in [
        (&["--admin", "/run/admin.sock"][..], "for the socket at this path, write unix:/run/admin.sock\n"),
        (&["--admin", "./admin.sock"], "write unix:./admin.sock\n"),
        (&["--admin=~/admin.sock"], "write unix:~/admin.sock (~ is only replaced by a shell"),
        (&["--admin", "65536"], "a port is at most 65535"),
        (&["--admin", "localhost:65536"], "localhost:65536 is not an address"),
        (&["--admin", "https://localhost:port"], "https://localhost:port is not an address"),
        (&["--admin", "ftp://gateway"], "ftp://gateway is not an address"),
        (&["--admin", "https://user:secret@gateway:9090"], "the URL of https://gateway:9090 contains a user or"),
        (&["--admin", "user:secret@gateway:9090"], "the URL of gateway:9090 contains a user or"),
        (&["--admin", "https://user:secret@gate way"], "https://gate way is not an address"),
        (&["https://user:secret@gateway"], "unexpected argument 'https://gateway' found"),
        (&["--admin", "9090", "--certificate-authority", "/none"], "/none: No such file"),
        (&["--admin", "9090", "--certificate-authority", "/dev/null"], "no PEM certificate in /dev/null"),
        (&["--admin", "9090", "--token-file=~/token"], "cannot read the token file ~/token (~ is only replaced"),
    ] {
        let (code, text) = said(args).await;
        assert!(code == Some(2) && text.contains(words) && !text.contains("secret"), "{args:?}: {code:?} {text}");
    }
    let (code, text) = said(&["--admin", "unix:~/admin.sock"]).await;
    assert!(code == Some(5) && text.contains("(~ is only replaced by a shell"), "{text}");
}

#[tokio::test]
async fn an_answer_other_than_a_status_is_explained() {
    let not_found = closing("404 Not Found", "404 page not found");
    let unauthorized = closing("401 Unauthorized", "no token");
    for (answer, path, words) in [
        (not_found.clone(), "", "it is not the admin port of a gateway"),
        (not_found, "/metrics", "/status.json is added to the path of --admin"),
        (unauthorized, "", "answers 401 Unauthorized: no token; --token-file names a file"),
        (closing("200 OK", "<html>"), "", "the answer is not a status"),
    ] {
        let (address, _serving) = answering(answer).await;
        let (code, text) = said(&["--admin", &format!("http://{address}{path}")]).await;
        assert!(code == Some(1) && text.contains(words), "{path}: {code:?} {text}");
    }
}

/// As in the image of the gateway.
#[tokio::test]
async fn a_system_without_authorities_needs_none_without_tls() {
    let plain = Scene::start(|_| {}).await;
    let mut command = kube_fanout(&["status", "--admin", &port(&plain).to_string()]);
    let output = finished(command.env("SSL_CERT_FILE", "/none").env("SSL_CERT_DIR", "/none")).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut command = kube_fanout(&["status", "--admin", "https://127.0.0.1:1"]);
    let output = finished(command.env("SSL_CERT_FILE", "/none").env("SSL_CERT_DIR", "/none")).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("this system has no trusted authorities; name"), "{text}");
}

//! The built gateway as a process: blocked and closed pipes, log files, signals, and the `status` command.

use std::{path::Path, process::Stdio};

use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::future::join;
use kube_fanout::{
    config::TlsFiles,
    sim::{Features, Sim},
    status::GatewayStatus,
};
use rcgen::{BasicConstraints, IsCa};
use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, UnixStream},
    process::Command,
};

pub(crate) use crate::harness::process::{CLUSTER, Process, ask, ended, in_front_of, shown};
use crate::harness::{
    certificates::write_certificate,
    guarded::{GATEWAY_TOKEN, Guarded},
    process::{ask_as, finished, kube_fanout, send},
    until, within,
};

#[tokio::test]
async fn a_log_that_is_not_read_stops_nothing() {
    let mut gateway = Process::start("logging: {access: all}").await;
    for _ in 0..400 {
        let answer = gateway.get("/api/v1/pods?resourceVersion=0").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(gateway.admin("/livez").await.starts_with("HTTP/1.1 200"));
    // The process ends although most of its log is unread.
    gateway.send(Signal::TERM);
    let ended = within("the end of the process", gateway.child.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_hangup_without_a_configuration_file_is_a_drain() {
    let server = Sim::new().start().await.unwrap();
    let (mut child, admin, _folder) = in_front_of(&server.url()).await;
    let client = admin.with_file_name("client.sock");
    let answer = until("the gateway listens", async || {
        UnixStream::connect(&client).await.ok()?;
        Some(ask(&client, "/version").await)
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    send(&child, Signal::HUP);
    let ended = within("the end of the process", child.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_gateway_that_cannot_log_its_reads_is_not_ready() {
    let gateway = Process::start("audit: {path: /dev/full}").await;
    assert!(gateway.admin("/readyz").await.starts_with("HTTP/1.1 200"));
    let failed = async || {
        let answer = gateway.get("/api/v1/pods?resourceVersion=0").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(gateway.admin("/readyz").await).filter(|answer| answer.starts_with("HTTP/1.1 500"))
    };
    let answer = until("an event that cannot be written", failed).await;
    assert!(answer.contains("[-]audit failed: not ready\n"), "{answer}");
    gateway.get("/api/v1/pods?resourceVersion=0").await;
    let metrics = gateway.admin("/metrics").await;
    assert!(metrics.contains(r#"outcome="forwarded",reason="unaudited"} "#), "{metrics}");
    assert!(gateway.admin("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn why_a_gateway_does_not_start_is_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nupstream: {kubeconfig: /nowhere}\n";
    std::fs::write(&config, text).unwrap();
    let text = failed_run(&config).await;
    assert!(text.contains("Error: ") && text.contains("/nowhere"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("backtrace")).count(), 0, "{text}");
}

#[tokio::test]
async fn a_gateway_that_does_not_start_does_not_say_that_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let [config, kubeconfig, audit] =
        ["config.yaml", "kubeconfig", "none/audit.log"].map(|name| folder.path().join(name));
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", "http://127.0.0.1:1")).unwrap();
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\nupstream: {{kubeconfig: \"{}\"}}\naudit: {{path: \"{}\"}}\n",
        kubeconfig.display(),
        audit.display()
    );
    std::fs::write(&config, text).unwrap();
    let text = failed_run(&config).await;
    assert!(text.contains("cannot open the audit log") && !text.contains("serving"), "{text}");

    let output = finished(kube_fanout(&["check", "--config"]).arg(&config)).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && text.contains("line 6, column ") && text.contains("audit.path: "),
        "{text}"
    );
    assert!(!folder.path().join("none").exists());
}

#[tokio::test]
async fn a_gateway_whose_front_proxy_certificate_is_rejected_does_not_start() {
    // A server to which every client without a token is anonymous, whatever certificate it shows.
    let (server, access) = Guarded::start_with_tls(Sim::new()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let tls = |name: &str| {
        let TlsFiles { cert_file, key_file } = write_certificate(folder.path(), name, IsCa::NoCa);
        format!("certFile: \"{}\", keyFile: \"{}\"", cert_file.display(), key_file.display())
    };
    // Without authorities for clients, the gateway has no users to assert.
    let clients = write_certificate(folder.path(), "clients", IsCa::Ca(BasicConstraints::Unconstrained));
    let authority = BASE64.encode(&access.root_cert.unwrap()[0]);
    let authority = format!("-----BEGIN CERTIFICATE-----\n{authority}\n-----END CERTIFICATE-----\n");
    let (server, authority) = (format!("https://{}", server.address), BASE64.encode(authority));
    let cluster = format!("cluster: {{certificate-authority-data: {authority}, ");
    let kubeconfig = CLUSTER.replace("SERVER", &server).replace("cluster: {", &cluster);
    std::fs::write(file("kubeconfig"), kubeconfig.replace("user: {}", &format!("user: {{token: {GATEWAY_TOKEN}}}")))
        .unwrap();
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n\
         listeners: [{{address: \"127.0.0.1:0\", tls: {{{}}}}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n\
         upstream: {{kubeconfig: \"{}\"}}\n\
         clients: {{mode: delegated, authentication: {{clientCAFile: \"{}\"}}, authorization: {{}}, \
         identity: {{frontProxy: {{{}}}}}}}\n",
        tls("server"),
        file("kubeconfig").display(),
        clients.cert_file.display(),
        tls("front-proxy")
    );
    std::fs::write(file("config.yaml"), text).unwrap();
    let text = failed_run(&file("config.yaml")).await;
    for part in ["the certificate of clients.identity.frontProxy is not used", "--requestheader-client-ca-file"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("serving"), "{text}");
}

/// Runs a gateway that does not start, where errors come with backtraces; returns its standard error.
async fn failed_run(config: &Path) -> String {
    let output = finished(kube_fanout(&["run", "--config"]).arg(config).env("RUST_BACKTRACE", "1")).await;
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_changed_configuration_takes_effect_without_a_restart() {
    let mut gateway = Process::start("logging: {format: json, access: none}").await;
    let mut lines = BufReader::new(gateway.child.stderr.take().unwrap()).lines();
    let mut until_line = async |text: &str| loop {
        let line = within(text, lines.next_line()).await.unwrap().expect("a line of the log");
        if line.contains(text) {
            return line;
        }
    };
    gateway.get("/version?before").await;
    gateway.reload("logging: {format: json, access: all}\nlimits: {connections: 77}\ncache: {verifyInterval: 1h}");
    let line = until_line("configuration reloaded").await;
    assert!(line.contains(r#""fields":"limits.connections, limits.connectionsPerAddress, logging.access""#), "{line}");
    let line = until_line("need a restart").await;
    assert!(line.contains(r#""fields":"cache.verifyInterval""#), "{line}");
    let status = gateway.admin("/status.json").await.replace([' ', '\n'], "");
    assert!(status.contains(r#""needsRestart":["cache.verifyInterval"]"#), "{status}");
    assert!(gateway.admin("/").await.contains("fields of the configuration need a restart"));
    gateway.get("/version?after").await;
    // The first request that is logged.
    let line = until_line(r#""target":"access""#).await;
    assert!(line.contains(r#""path":"/version""#), "{line}");
    gateway.reload("logging: {format: json, access: most}");
    let line = until_line("configuration not reloaded").await;
    assert!(line.contains("line 6, column 25") && line.contains("all, notable, none"), "{line}");
    let failed = "\nkube_fanout_config_last_reload_successful 0\n";
    assert!(gateway.admin("/metrics").await.contains(failed));
    let (status, page) = (gateway.admin("/status.json").await, gateway.admin("/").await);
    assert!(status.contains(r#""failedAt": "2"#) && status.contains("all, notable, none"), "{status}");
    assert!(page.contains("the earlier one stays in effect") && page.contains("line 6, column 25"), "{page}");
    gateway.reload("logging: {format: json, access: none}");
    until_line("configuration reloaded").await;
    assert!(gateway.admin("/metrics").await.contains(&failed.replace('0', "1")));
    assert!(!gateway.admin("/").await.contains("the earlier one stays in effect"));
}

#[tokio::test]
async fn a_malformed_kubeconfig_shows_none_of_its_credentials() {
    let token = "SUPERSECRETTOKEN";
    let mut gateway = Process::start("").await;
    let mut lines = BufReader::new(gateway.child.stderr.take().unwrap()).lines();
    let kubeconfig = gateway.config.0.with_file_name("malformed");
    let malformed =
        format!("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    token: {token}\n   client-key: x\n");
    std::fs::write(&kubeconfig, malformed).unwrap();
    let told = format!("{}: line 7, column 4: this line's indentation", kubeconfig.display());
    let text = std::fs::read_to_string(&gateway.config.0).unwrap();
    let own = gateway.config.0.with_file_name("kubeconfig");
    let text = text.replace(own.to_str().unwrap(), kubeconfig.to_str().unwrap());
    std::fs::write(&gateway.config.0, &text).unwrap();
    gateway.send(Signal::HUP);
    let line = loop {
        let line = within("a reload", lines.next_line()).await.unwrap().expect("a line of the log");
        assert!(!line.contains(token), "{line}");
        if line.contains("configuration not reloaded") {
            break line;
        }
    };
    assert!(line.contains(&told), "{line}");
    let status = gateway.admin("/status.json").await;
    assert!(status.contains(&told) && !status.contains(token), "{status}");
    let status = shown(&gateway.admin, 0).await;
    assert!(status.contains(&told) && !status.contains(token), "{status}");
    let (config, kubeconfig) = (gateway.config.0.to_str().unwrap(), kubeconfig.to_str().unwrap());
    for arguments in [
        &["check", "--config", config][..],
        &["check", "--online", "--config", config],
        &["run", "--config", config],
        &["kubeconfig", "--server", "https://gateway.example", "--kubeconfig", kubeconfig],
        &["load", "--profile", "kubelets", "--kubeconfig", kubeconfig],
    ] {
        let output = finished(&mut kube_fanout(arguments)).await;
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8(all).unwrap();
        assert!(all.contains(&told) && !all.contains(token) && !output.status.success(), "{arguments:?}: {all}");
    }
}

#[tokio::test]
async fn a_file_for_another_mode_needs_a_restart_as_a_whole() {
    let gateway = Process::start("").await;
    let status = async || {
        let answer = gateway.admin("/status.json").await;
        serde_json::from_str::<GatewayStatus>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let before = status().await.configuration;
    gateway.reload("clients: {mode: delegated}\nlogging: {access: all}");
    let needs = async || Some(status().await.reload.needs_restart).filter(|fields| !fields.is_empty());
    let needs = until("the reload", needs).await;
    assert_eq!(needs, ["clients.mode", "logging.access"], "not what only has another default");
    assert_eq!(status().await.configuration, before);
    assert!(gateway.admin("/metrics").await.contains("\nkube_fanout_config_fields_needing_restart "), "{needs:?}");
    gateway.reload("");
    until("the file is in effect", async || status().await.reload.needs_restart.is_empty().then_some(())).await;
    assert!(gateway.admin("/metrics").await.contains("\nkube_fanout_config_fields_needing_restart 0\n"));
}

#[tokio::test]
async fn a_cache_that_becomes_excluded_ends_and_limits_follow_the_file() {
    let gateway = Process::start("").await;
    let list = "/api/v1/pods?resourceVersion=0";
    let has = async |line: &str| gateway.admin("/metrics").await.contains(line).then_some(());
    let served = r#"verb="list",resource="pods",outcome="served",reason="""#;
    let served = async || {
        gateway.get(list).await;
        has(served).await
    };
    until("the cache answers", served).await;
    let mut watch = UnixStream::connect(&gateway.client).await.unwrap();
    let head = "GET /api/v1/pods?watch=true&resourceVersion=0 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    watch.write_all(head.as_bytes()).await.unwrap();
    until("the watch is open", async || {
        has(r#"kube_fanout_watchers{resource="pods",version="v1",encoding="json"} 1"#).await
    })
    .await;
    gateway.reload("cache: {exclude: [pods], prewarm: [configmaps]}\nlimits: {connections: 100, answerBytes: 1Gi}");
    let mut events = String::new();
    within("the end of the watch", watch.read_to_string(&mut events)).await.unwrap();
    assert!(events.starts_with("HTTP/1.1 200") && events.contains("ADDED"), "{events}");
    gateway.get(list).await;
    until("reads are forwarded", async || has(r#"outcome="forwarded",reason="excluded""#).await).await;
    has("kube_fanout_limit{limit=\"connections\"} 100\n").await.unwrap();
    let warm =
        async || Some(gateway.admin("/readyz?verbose").await).filter(|ready| ready.contains("[+]cache/configmaps"));
    until("what is to be warm is started", warm).await;
    gateway.reload("");
    until("memory answers again", async || {
        gateway.get(list).await;
        has("kube_fanout_limit{limit=\"connections\"} 10000\n").await?;
        has("kube_fanout_cache_objects{resource=\"pods\",version=\"v1\",encoding=\"json\"} 1\n").await
    })
    .await;
}

#[tokio::test]
async fn a_misspelt_prewarmed_resource_is_reported() {
    let mut gateway = Process::start("cache: {prewarm: [pods, deployment.apps]}\nlogging: {format: json}").await;
    let mut lines = BufReader::new(gateway.child.stderr.take().unwrap()).lines();
    let told = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("a line of the log");
            if line.contains("cache.prewarm") {
                return line;
            }
        }
    };
    let line = within("what is said of the name", told).await;
    assert!(line.contains(r#""resource":"deployment.apps""#) && line.contains("write the plural name"), "{line}");
}

#[tokio::test]
async fn a_misspelt_excluded_resource_is_reported() {
    let fields = "cache: {exclude: [secret, pods]}\nlimits: {connections: 5000, watchesPerClient: 5}";
    let mut gateway = Process::start(fields).await;
    let log = ended(&mut gateway.child).await;
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!(warnings.len() == 2 && warnings[0].contains("secrets may be meant"), "{log}");
    assert!(warnings[0].contains("cache.exclude[0]"), "{log}");
    assert!(warnings[1].contains("limits.watchesPerClient") && warnings[1].contains("no effect"), "{log}");
}

#[tokio::test]
async fn a_first_fill_by_list_is_no_restart() {
    let sim = Sim::new();
    sim.set_features(Features { watch_list: false, ..Features::default() });
    let gateway = Process::in_front_of(sim, "").await;
    gateway.get("/api/v1/pods?resourceVersion=0").await;
    let status = async || {
        let answer = gateway.admin("/status.json").await;
        let status: GatewayStatus = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let [cache] = status.caches.try_into().ok()?;
        Some(cache).filter(|cache| cache.state == "ready")
    };
    let cache = until("the cache is filled", status).await;
    assert_eq!(cache.restarts.len(), 1, "watch-list was tried: {:?}", cache.restarts);
    assert!(cache.last_restart.is_none(), "{:?}", cache.last_restart);
}

#[tokio::test]
async fn the_status_equals_the_metrics_and_names_are_text() {
    let gateway = Process::start("").await;
    let hostile = "<script>alert(1)</script>";
    let pods = "/api/v1/pods?resourceVersion=0";
    for _ in 0..3 {
        let answer = within("a list", ask_as(&gateway.client, pods, hostile)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    gateway.get("/api/v1/pods").await;
    let status = async || {
        let answer = gateway.admin("/status.json").await;
        let status: GatewayStatus = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        Some(status).filter(|status| status.reads.served == 3 && status.reads.forwarded == 1)
    };
    let status = until("finished requests are counted", status).await;
    let metrics = gateway.admin("/metrics").await;
    let has = |line: &str| assert!(metrics.contains(&format!("{line}\n")), "{line} in {metrics}");
    let [cache] = &status.caches[..] else { panic!("{:?}", status.caches) };
    let labels = r#"resource="pods",version="v1",encoding="json""#;
    has(&format!("kube_fanout_cache_objects{{{labels}}} {}", cache.objects));
    has(&format!("kube_fanout_cache_object_bytes{{{labels}}} {}", cache.bytes.objects));
    has(&format!("kube_fanout_upstream_watches{{{labels}}} {}", cache.upstream_watches));
    has(&format!("kube_fanout_response_bytes_total{{verb=\"list\",outcome=\"served\"}} {}", status.savings.bytes));
    assert_eq!((cache.state.as_str(), cache.objects, status.savings.lists), ("ready", 1, 3));
    assert_eq!(cache.upstream_watches, 1);
    let reasons: Vec<_> = status.forwarded.iter().map(|row| (row.reason.as_str(), row.requests)).collect();
    assert_eq!(reasons, [("most_recent", 1)]);
    let client = status.clients.iter().find(|client| client.user_agent == hostile).expect("the client is listed");
    assert_eq!((client.served, client.forwarded), (3, 0));
    let connections = status.limits.iter().find(|limit| limit.name == "connections").unwrap();
    assert_eq!(connections.most, Some(10_000));
    assert!(status.gateway.memory_bytes > 1 << 20 && status.gateway.cpu_seconds > 0.0, "{:?}", status.gateway);

    let page = gateway.admin("/").await;
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains(hostile), "{page}");

    let text = shown(&gateway.admin, 0).await;
    assert!(text.contains("pods") && text.contains("most_recent") && text.contains(", ready,"), "{text}");
}

#[tokio::test]
async fn the_status_command_distinguishes_an_unready_gateway_from_none() {
    let gateway = Process::start("audit: {path: /dev/full}").await;
    let failed = async || {
        gateway.get("/api/v1/pods?resourceVersion=0").await;
        Some(gateway.admin("/readyz").await).filter(|answer| answer.starts_with("HTTP/1.1 500"))
    };
    until("an event that cannot be written", failed).await;
    let text = shown(&gateway.admin, 3).await;
    assert!(text.contains("NOT READY") && text.contains("failed    audit"), "{text}");
    let nowhere = format!("unix:{}", gateway.admin.with_extension("nowhere").display());
    for watch in [&[][..], &["--watch"]] {
        let output = finished(kube_fanout(&["status", "--admin", &nowhere]).args(watch)).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(5) && said.contains("--admin names another one"), "{said}");
    }
}

#[tokio::test]
async fn a_port_without_a_host_is_a_local_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("tok");
    // As `echo admin > tok` writes it.
    std::fs::write(&token, "admin\n").unwrap();
    let mut command = kube_fanout(&["status", "--admin", &port, "--token-file"]);
    let status = command.arg(&token).output();
    let asked = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4_096];
        let read = stream.read(&mut head).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    };
    let (output, head) = within("the request", join(status, asked)).await;
    assert!(head.starts_with("GET /status.json "), "{head}");
    assert!(head.contains("\r\nauthorization: Bearer admin\r\n"), "{head}");
    assert_eq!(output.unwrap().status.code(), Some(3), "a status without a state does not count as ready");
}

#[tokio::test]
async fn a_reader_of_the_status_may_close_the_pipe_early() {
    let gateway = Process::start("").await;
    let address = format!("unix:{}", gateway.admin.display());
    for watch in [&[][..], &["--watch"]] {
        let mut command = kube_fanout(&["status", "--admin", &address]);
        let command = command.args(watch).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = within("the end of the command", child.wait_with_output()).await.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn a_kubeconfig_leads_to_the_listener_of_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let head = "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n";
    let printed = async |listeners: &str, args: &[&str]| {
        std::fs::write(&config, format!("{head}listeners: [{listeners}]\n")).unwrap();
        finished(kube_fanout(&["kubeconfig", "--config"]).arg(&config).args(args)).await
    };
    let (one, two) = ("{address: '127.0.0.1:7001'}", "{address: '127.0.0.1:7001'}, {address: 'unix:/run/s'}");
    for (listeners, args, server) in [
        (one, &[][..], "http://127.0.0.1:7001"),
        (one, &["--server", "http://localhost:7002"], "http://localhost:7002"),
        (two, &["--server", "http://localhost:7002"], "http://localhost:7002"),
    ] {
        let output = printed(listeners, args).await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(&format!("server: {server}\n")), "{text}");
    }
    let output = printed(two, &[]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("several listeners (127.0.0.1:7001, unix:/run/s)"), "{error}");
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_made_is_misuse_and_shows_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let listener =
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nlisteners: [{address: 'unix:/run/s'}]\n";
    std::fs::write(&config, listener).unwrap();
    for (args, words) in [
        (&["--server", "gateway:8443"][..], "is no URL like"),
        (&["--server", "https://jane:secret@gateway"], "the URL of https://gateway/ contains a user or a password"),
        (&["--server", "https://jane:secret@gate way"], "invalid value 'https://gate way' for '--server <URL>'"),
        (&["--server", "https://jane:secret@gateway:port"], "the URL of https://gateway:port/ contains a user"),
        (&["--server", "https://gateway:65536"], "the gateway's address https://gateway:65536/ is no URL like"),
        (&["https://jane:secret@gateway"], "unexpected argument 'https://gateway' found"),
        (&["--server", "https://gateway", "--certificate-authority", "/none"], "/none"),
        (&["--server", "https://gateway", "--kubeconfig", "/none"], "/none"),
        (&["--config", config.to_str().unwrap()], "with --server"),
    ] {
        let output = finished(kube_fanout(&["kubeconfig"]).args(args)).await;
        let (said, error) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        assert!(output.status.code() == Some(2) && error.contains(words), "{args:?}: {error}");
        assert!(said.is_empty() && !error.contains("secret"), "{args:?}: {error}");
    }
}

#[tokio::test]
async fn without_a_kubeconfig_the_last_lines_say_how_to_name_one() {
    let home = tempfile::tempdir().unwrap();
    let said = async |command: &mut Command| {
        command.env("HOME", home.path()).env_remove("KUBERNETES_SERVICE_HOST");
        let output = finished(command).await;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let looked = format!("({} is not there), and", home.path().join(".kube/config").display());
    for (args, way) in [
        (&["run"][..], "upstream.kubeconfig: FILE in the configuration of --config"),
        (&["load", "--profile", "kubelets"], "--url http://HOST:PORT"),
    ] {
        let text = said(kube_fanout(args).env_remove("KUBECONFIG")).await;
        assert!(text.contains(&looked), "{text}");
        assert_eq!(text.contains("--config"), args == ["run"], "{args:?} does not have it: {text}");
        let last: Vec<_> = text.lines().rev().take(3).map(str::trim_start).collect();
        let ways = [way, "KUBECONFIG=FILE in", "--kubeconfig FILE"];
        assert!(last.iter().zip(ways).all(|(line, way)| line.starts_with(way)), "{text}");
    }
    // As kubectl takes them.
    for text in [
        said(kube_fanout(&["run"]).env("KUBECONFIG", "~/x")).await,
        said(kube_fanout(&["run", "--kubeconfig", "~/x"]).env_remove("KUBECONFIG")).await,
    ] {
        assert!(text.contains("~/x") && text.contains("~ is only replaced by a shell"), "{text}");
    }
}

#[tokio::test]
async fn a_report_stays_until_there_is_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    std::fs::write(&report, "the last one").unwrap();
    // No server is there.
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", "http://127.0.0.1:1")).unwrap();
    let mut command = kube_fanout(&["load", "--profile", "controllers", "--kubeconfig"]);
    let output = finished(command.arg(kubeconfig).arg("--output").arg(&report)).await;
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(std::fs::read_to_string(report).unwrap(), "the last one");
}

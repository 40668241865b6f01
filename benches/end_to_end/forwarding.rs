//! A forwarded request through the gateway, compared with nginx.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::Result;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::{
    certificates::Certificates,
    client::{Ask, Connection, Endpoint},
    latency::percentile,
    ports::free_port,
    process,
    processes::Process,
    servers,
    table::{self, Line},
    world::World,
};

const NGINX: &str = "/usr/sbin/nginx";
/// How often nginx is polled while it ends, and the time between two polls.
const LOOKS: usize = 40;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// nginx as a proxy in front of the API server, with TLS and kept connections on both sides.
struct Nginx {
    endpoint: Endpoint,
    process: Process,
    version: String,
}

impl Nginx {
    async fn start(world: &World) -> Result<Option<Self>> {
        if !Path::new(NGINX).exists() {
            return Ok(None);
        }
        let (port, folder) = (free_port()?, world.folder());
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(port, &world.upstream.url, &world.certificates, folder))?;
        let arguments =
            ["-c", &config.display().to_string(), "-e", &folder.join("nginx-errors.log").display().to_string()];
        let mut process = Process::start("nginx", NGINX, arguments, folder)?;
        let endpoint = Endpoint::tls(port, Path::new(&world.certificates.file("ca.crt")))?;
        servers::wait(&mut process, async || endpoint.connect(false).await.is_ok()).await?;
        let version = Command::new(NGINX).arg("-v").output()?.stderr;
        Ok(Some(Self { endpoint, process, version: String::from_utf8_lossy(&version).trim().to_owned() }))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked to end, it ends its workers as well. It may have ended already.
        self.process.signal(Signal::TERM).ok();
        for _ in 0..LOOKS {
            if self.process.check().is_err() {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn configuration(port: u16, upstream: &str, certificates: &Certificates, folder: &Path) -> String {
    let (server, (certificate, key)) = (
        upstream.rsplit('/').next().unwrap_or_default(),
        (certificates.file("server.crt"), certificates.file("server.key")),
    );
    let (scheme, folder) = (upstream.split(':').next().unwrap_or_default(), folder.display());
    format!(
        "daemon off; worker_processes 2; pid {folder}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         upstream api {{ server {server}; keepalive 64; keepalive_requests 1000000; }}\n\
         server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         keepalive_requests 1000000;\n\
         location / {{ proxy_pass {scheme}://api; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_buffering off; }} }} }}\n"
    )
}

/// A get that only upstream can answer: directly, through the gateway and through nginx, in turns.
pub(crate) async fn added(world: &World) -> Result<Vec<Line>> {
    let nginx = Nginx::start(world).await?;
    let mut servers = vec![Target::new(&world.upstream.endpoint, 0).await?];
    servers.push(Target::new(&world.gateway.endpoint, world.gateway.id()).await?);
    match &nginx {
        Some(nginx) => servers.push(Target::new(&nginx.endpoint, nginx.process.id()).await?),
        None => table::say("NO NGINX TO COMPARE FORWARDING WITH: apt-get install nginx"),
    }
    let requests = world.sizes.requests;
    for server in &mut servers {
        server.times.clear();
        server.before = process::cpu(server.id);
    }
    for _ in 0..requests {
        for server in &mut servers {
            server.request().await?;
        }
    }
    let cpu = |server: &Target| (process::cpu(server.id) - server.before).as_secs_f64() * 1e6 / requests as f64;
    let cpus: Vec<_> = servers.iter().map(cpu).collect();
    let medians: Vec<_> = servers.iter_mut().map(|server| percentile(&mut server.times, 50)).collect();
    let added = |at: usize| medians[at] - medians[0];
    let mut cpu = Line::new("forwarded get: CPU of the proxy", "us CPU", cpus[1]);
    let mut latency = Line::new("forwarded get: p50 latency added", "us", added(1));
    if let Some(nginx) = &nginx {
        cpu = cpu.baseline(cpus[2]).times_baseline(1.0);
        latency = latency.baseline(added(2)).times_baseline(1.0);
        for line in [&mut cpu, &mut latency] {
            line.name.push_str(&format!(" (baseline: {})", nginx.version.trim_start_matches("nginx version: ")));
        }
    }
    Ok(vec![cpu, latency])
}

struct Target {
    connection: Connection,
    id: u32,
    before: Duration,
    /// In microseconds.
    times: Vec<f64>,
}

impl Target {
    async fn new(endpoint: &Endpoint, id: u32) -> Result<Self> {
        let (connection, before) = (endpoint.connect(false).await?, Duration::ZERO);
        let mut target = Self { connection, id, before, times: Vec::new() };
        for _ in 0..20 {
            target.request().await?;
        }
        Ok(target)
    }

    async fn request(&mut self) -> Result<()> {
        let (started, ask) = (Instant::now(), Ask::json("/api/v1/namespaces/load-0/pods/pod-0"));
        self.connection.read(&ask).await?;
        self.times.push(started.elapsed().as_secs_f64() * 1e6);
        Ok(())
    }
}

//! A run: endpoints, objects, turns, report.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    Assertion, Condition, EndpointError, LoadError, Named, Profile, Report,
    assertion::Rates,
    churn::Churn,
    demand::Demand,
    endpoint::{Endpoint, Fallback},
    failure::ErrorKind,
    processes::Process,
    profile::{ChurnResource, ChurnWork, Work},
    progress::Progress,
    recorder::{Recorded, Recorder},
    report::AssertionReport,
    rounds::take_turns,
    seed, servers,
    side::Side,
    turn::Course,
};
use base::config::{Redacted, UpstreamConfig, UpstreamConfigError};

/// The default number of turns of each of two endpoints: several, so that changes on the machine affect both.
const TURNS: usize = 3;
/// The size of objects that are only read, in bytes.
const SEED_BYTES: u64 = 4 << 10;

/// A server, as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// `None` for the server of the kubeconfig.
    pub url: Option<String>,
    /// The source of TLS settings and credentials. Not used for a plain HTTP URL.
    pub access: UpstreamConfig,
    /// Other addresses of the server, tried in this order for connections that it refuses. May be empty.
    pub fallbacks: Vec<Fallback>,
    /// Whether each connection begins at the address behind the one of the last, instead of at the first.
    pub is_spread: bool,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub profile: Profile,
    pub url: Server,
    /// The server that it is compared with, in turns.
    pub against: Option<Server>,
    /// The server for writes; `None` for the one whose turn it is.
    pub writes: Option<Server>,
    /// The number of turns of each endpoint. `None` for one, or three of each of two endpoints.
    pub turns: Option<usize>,
    /// The number of pods besides the profile's own objects.
    pub seed_objects: usize,
    pub processes: Vec<Named<u32>>,
    /// URLs of metrics.
    pub metrics: Vec<Named<String>>,
    pub assertions: Vec<Condition>,
    /// Whether the cluster need not look like a test cluster.
    pub any_cluster: bool,
}

impl LoadOptions {
    /// One server, which has to look like a test cluster, and nothing besides the profile.
    pub fn new(profile: Profile, url: Server) -> Self {
        Self {
            profile,
            url,
            against: None,
            writes: None,
            turns: None,
            seed_objects: 0,
            processes: Vec::new(),
            metrics: Vec::new(),
            assertions: Vec::new(),
            any_cluster: false,
        }
    }
}

/// Measures until the profile's duration is over or `shutdown` resolves.
///
/// # Errors
/// Nothing can be measured. Later failures are part of the report.
pub async fn load(options: &LoadOptions, shutdown: impl Future<Output = ()>) -> Result<Report, LoadError> {
    let stop = CancellationToken::new();
    // Boxed because it is large, and would make every future that awaits it large.
    let mut measured = Box::pin(measure(options, &stop));
    tokio::pin!(shutdown);
    tokio::select! {
        report = &mut measured => report,
        () = &mut shutdown => {
            stop.cancel();
            measured.await
        }
    }
}

async fn measure(options: &LoadOptions, stop: &CancellationToken) -> Result<Report, LoadError> {
    let assertions = assertions(options)?;
    refuse_same(options)?;
    let run = format!("{:06x}", fastrand::u32(..1 << 24));
    let sides = sides(options, &run).await?;
    let mut notes = servers::check(options.any_cluster, &sides).await?;
    let churns = churns(&options.profile, &run);
    let workloads = &options.profile.workloads;
    let demands: Vec<_> = workloads.iter().map(|workload| Demand::new(workload, &churns)).collect();
    notes.extend(demands.iter().zip(workloads).filter_map(|(demand, workload)| demand.note(workload)));
    let mut seeds: Vec<_> = churns.iter().flatten().cloned().collect();
    if options.seed_objects > 0 {
        seeds.push(Arc::new(Churn::new(&only_there(options.seed_objects), &run, churns.len())));
    }
    let turns = options.turns.unwrap_or(if sides.len() == 1 { 1 } else { TURNS }).max(1);
    let course = Course {
        duration: options.profile.duration / u32::try_from(turns).unwrap_or(u32::MAX),
        profile: options.profile.clone(),
        churns,
        demands,
        processes: processes(options).await?,
        progress: Progress::new(&options.profile),
        stop: stop.clone(),
    };
    // Both addresses lead to one storage, so objects that are written through one are there for the other.
    let writes = &sides[0].writes;
    course.progress.show("creating objects");
    let filled = if seeds.is_empty() { Ok(()) } else { seed::fill(writes, &run, &seeds, stop).await };
    let reports = match &filled {
        Ok(()) => take_turns(&course, &sides, turns).await,
        Err(_) => Vec::new(),
    };
    course.progress.show("deleting objects");
    let left = if seeds.is_empty() { None } else { clean_up(&sides, &run, &seeds).await };
    course.progress.end();
    if let Err(failure) = filled {
        let left = left.map(|left| format!("; {left}")).unwrap_or_default();
        let has_answer = matches!(failure.kind, ErrorKind::Status(_));
        return Err(LoadError::Seed { failure: failure.to_string(), left, has_answer });
    }
    let mut report = Report::new(&options.profile, stop.is_cancelled(), reports);
    (report.left, report.notes) = (left, notes);
    report.assertions = assertions.iter().map(|assertion| evaluate(assertion, &course, &sides[0], &report)).collect();
    Ok(report)
}

fn assertions(options: &LoadOptions) -> Result<Vec<Assertion>, LoadError> {
    let conditions: Vec<_> =
        options.assertions.iter().map(|condition| condition.assertions(&options.profile)).collect();
    // A condition about nothing would hold.
    if conditions.iter().any(Vec::is_empty) {
        return Err(LoadError::NoCalls);
    }
    let assertions = conditions.concat();
    let names: Vec<_> = options.profile.workloads.iter().map(|workload| &*workload.name).collect();
    let mut of_one = assertions.iter().filter_map(|assertion| assertion.workload.as_deref());
    match of_one.find(|name| !names.contains(name)) {
        Some(name) => Err(LoadError::NoWorkload(name.to_owned(), names.join(", "))),
        None => Ok(assertions),
    }
}

fn refuse_same(options: &LoadOptions) -> Result<(), LoadError> {
    let names = options.processes.iter().map(|named| &named.name);
    let mut names: Vec<_> = names.chain(options.metrics.iter().map(|named| &named.name)).collect();
    names.sort();
    match names.windows(2).find(|names| names[0] == names[1]) {
        Some(same) => Err(LoadError::SameProcess(same[0].clone())),
        None => Ok(()),
    }
}

async fn sides(options: &LoadOptions, run: &str) -> Result<Vec<Side>, LoadError> {
    let mut sides = Vec::new();
    let writes = match &options.writes {
        Some(server) => Some(server.endpoint("writes").await?),
        None => None,
    };
    for (name, server) in [("url", Some(&options.url)), ("against", options.against.as_ref())] {
        let Some(server) = server else { continue };
        let endpoint = server.endpoint(name).await?;
        let recorders = options.profile.workloads.iter().map(|_| Arc::new(Recorder::of_run(run))).collect();
        sides.push(Side { writes: writes.clone().unwrap_or_else(|| endpoint.clone()), endpoint, recorders });
    }
    Ok(sides)
}

impl Server {
    async fn endpoint(&self, name: &'static str) -> Result<Arc<Endpoint>, LoadError> {
        let url = self
            .url
            .as_deref()
            .map(|url| url.parse().map_err(|_| EndpointError::Url(Redacted::text(url))))
            .transpose()?;
        let config = match url {
            Some(url) if http::Uri::scheme_str(&url) != Some("https") => kube_client::Config::new(url),
            url => {
                let named = Redacted::text(self.url.as_deref().unwrap_or("the kubeconfig's server"));
                let mut config = self.access.resolve().await.map_err(|error| {
                    if let UpstreamConfigError::NotFound(none) = error {
                        LoadError::NoKubeconfig(named, none)
                    } else {
                        LoadError::Access(named, error)
                    }
                })?;
                config.cluster_url = url.unwrap_or_else(|| config.cluster_url.clone());
                config
            }
        };
        Ok(Arc::new(Endpoint::new(name, &config)?.with_fallbacks(self.fallbacks.clone(), self.is_spread)))
    }
}

fn churns(profile: &Profile, run: &str) -> Vec<Option<Arc<Churn>>> {
    let churn = |(index, work): (usize, &Work)| match work {
        Work::Churn(work) => Some(Arc::new(Churn::new(work, run, index))),
        Work::Get { .. }
        | Work::List(_)
        | Work::Watch(_)
        | Work::Informer(_)
        | Work::SlowReader(_)
        | Work::Reconnect(_) => None,
    };
    profile.workloads.iter().map(|workload| &workload.work).enumerate().map(churn).collect()
}

fn only_there(objects: usize) -> ChurnWork {
    ChurnWork {
        resource: ChurnResource::Pods,
        objects,
        bytes: SEED_BYTES,
        updates: 1,
        creates: 0,
        deletes: 0,
        nodes: 0,
    }
}

async fn processes(options: &LoadOptions) -> Result<Vec<Process>, LoadError> {
    let mut processes: Vec<_> = options.processes.iter().map(Process::of_id).collect();
    for Named { name, value } in &options.metrics {
        let url: http::Uri = value.parse().map_err(|_| EndpointError::Url(Redacted::text(value)))?;
        let path = url.path().to_owned();
        // The path is that of the metrics alone, without any path of the kubeconfig's server.
        let origin = value.strip_suffix(&path).filter(|_| path != "/").unwrap_or(value).to_owned();
        let server = Server { url: Some(origin), access: options.url.access.clone(), ..Server::default() };
        let path = if path == "/" { "/metrics" } else { &path };
        processes.push(Process::of_metrics(name, server.endpoint("metrics").await?, path));
    }
    for process in &processes {
        if process.usage().await.is_none() {
            return Err(LoadError::NoUsage(process.name.clone()));
        }
    }
    Ok(processes)
}

/// What may be left, and how it can be deleted; `None` if nothing is. All servers show the same cluster: one may be
/// gone. First those that wrote the objects.
async fn clean_up(sides: &[Side], run: &str, seeds: &[Arc<Churn>]) -> Option<String> {
    let objects = seeds.iter().map(|seed| seed.created()).sum();
    let mut failure = None;
    let mut servers: Vec<&Arc<Endpoint>> = Vec::new();
    for server in sides.iter().map(|side| &side.writes).chain(sides.iter().map(|side| &side.endpoint)) {
        if !servers.iter().any(|known| Arc::ptr_eq(known, server)) {
            servers.push(server);
        }
    }
    for server in servers {
        match seed::clean_up(server, run, objects).await {
            Ok(()) => return None,
            Err(failed) => failure = failure.or(Some(failed)),
        }
    }
    let failure = failure?;
    let label = format!("{}={run}", crate::objects::RUN);
    // The reason as a comment of the shell: the line can be copied to its end.
    Some(format!("objects may be left; kubectl delete namespaces -l {label} # {failure}"))
}

fn evaluate(assertion: &Assertion, course: &Course, side: &Side, report: &Report) -> AssertionReport {
    let workloads = course.profile.workloads.iter().zip(&side.recorders);
    let mut all = Recorded::default();
    let is_meant = |name: &str| assertion.workload.as_ref().is_none_or(|workload| workload == name);
    workloads.filter(|(workload, _)| is_meant(&workload.name)).for_each(|(_, recorder)| all.add(&recorder.lock()));
    let mut rates = Rates::default();
    let reported = report.endpoints.first().into_iter().flat_map(|endpoint| &endpoint.workloads);
    for workload in reported.filter(|workload| is_meant(&workload.name)) {
        rates.requests += workload.requests_per_second;
        rates.events += workload.events_per_second;
    }
    AssertionReport::new(assertion, &assertion.evaluate(&all, rates), report.interrupted)
}

//! Pods. The Status column summarizes the states of all containers in one word.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    AGE, Conditions, Heading, NONE, Release, Row, Source, Unprintable,
    condition::{Condition, first_is_true},
    source::or_default,
};
use crate::encode::table::cell::moment;

const SUCCEEDED: Conditions =
    r#"[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}]"#;
const FAILED: Conditions = r#"[{"type":"Completed","status":"True","reason":"Failed","message":"The pod failed."}]"#;

pub(super) fn headings(release: Release) -> &'static [Heading] {
    const IP: Heading = ("IP", "string", 1);
    const NODE: Heading = ("Node", "string", 1);
    const NOMINATED: Heading = ("Nominated Node", "string", 1);
    const GATES: Heading = ("Readiness Gates", "string", 1);
    const READY: Heading = ("Ready", "string", 0);
    const STATUS: Heading = ("Status", "string", 0);
    match release {
        Release::V1_20 => &[READY, STATUS, ("Restarts", "integer", 0), AGE, IP, NODE, NOMINATED, GATES],
        Release::V1_36 => &[READY, STATUS, ("Restarts", "string", 0), AGE, IP, NODE, NOMINATED, GATES],
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Cow<'a, str>,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<IgnoredAny>,
    #[serde(borrow)]
    init_containers: Vec<InitContainer<'a>>,
    #[serde(borrow)]
    readiness_gates: Vec<ReadinessGate<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainer<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    restart_policy: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadinessGate<'a> {
    #[serde(borrow)]
    condition_type: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
    #[serde(borrow)]
    init_container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow)]
    container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow, rename = "podIPs")]
    pod_ips: Vec<PodIp<'a>>,
    #[serde(borrow)]
    nominated_node_name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct PodIp<'a> {
    #[serde(borrow, default)]
    ip: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    state: State<'a>,
    #[serde(borrow, default)]
    last_state: State<'a>,
    ready: bool,
    restart_count: i32,
    started: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State<'a> {
    #[serde(borrow)]
    waiting: Option<Waiting<'a>>,
    running: Option<IgnoredAny>,
    #[serde(borrow)]
    terminated: Option<Terminated<'a>>,
}

#[derive(Deserialize)]
struct Waiting<'a> {
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated<'a> {
    exit_code: i32,
    #[serde(default)]
    signal: i32,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    finished_at: Cow<'a, str>,
}

impl Terminated<'_> {
    /// The reason for its end: the reported one, or else its signal or exit code.
    fn word(&self) -> Cow<'_, str> {
        match self {
            Self { reason, .. } if !reason.is_empty() => Cow::Borrowed(reason),
            Self { signal: 0, exit_code, .. } => format!("ExitCode:{exit_code}").into(),
            Self { signal, .. } => format!("Signal:{signal}").into(),
        }
    }
}

impl State<'_> {
    /// The reason for waiting; empty if the container does not wait, or reports none.
    fn waits_for(&self) -> &str {
        self.waiting.as_ref().map_or("", |waiting| &waiting.reason)
    }
}

impl Status<'_> {
    fn is_true(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.is_true())
    }
}

/// How often containers were restarted, and when the last of them ended.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus<'_>) -> Result<(), Unprintable> {
        self.count += i64::from(container.restart_count);
        if let Some(Terminated { finished_at, .. }) = &container.last_state.terminated
            && !finished_at.is_empty()
        {
            self.last = self.last.max(Some(moment(finished_at)?));
        }
        Ok(())
    }
}

/// The combined state of a pod's containers.
struct Progress<'a> {
    release: Release,
    spec: &'a Spec<'a>,
    status: &'a Status<'a>,
    reason: Cow<'a, str>,
    ready: usize,
    restarts: Restarts,
}

impl<'a> Progress<'a> {
    fn of(release: Release, spec: &'a Spec<'a>, status: &'a Status<'a>) -> Result<Self, Unprintable> {
        let reason = if status.reason.is_empty() { &status.phase } else { &status.reason };
        let (reason, ready, restarts) = (Cow::Borrowed(&**reason), 0, Restarts::default());
        let mut progress = Self { release, spec, status, reason, ready, restarts };
        let is_gated = |condition: &Condition<'_>| condition.kind == "PodScheduled" && condition.reason == GATED;
        if release >= Release::V1_36 && status.conditions.iter().any(is_gated) {
            progress.reason = GATED.into();
        }
        let (is_initializing, of_sidecars) = progress.initialized()?;
        if !is_initializing || release >= Release::V1_36 && first_is_true(&status.conditions, "Initialized") {
            progress.restarts = of_sidecars;
            progress.run()?;
        }
        Ok(progress)
    }

    /// Returns whether an init container has not completed, and the restarts of the sidecars.
    fn initialized(&mut self) -> Result<(bool, Restarts), Unprintable> {
        let mut of_sidecars = Restarts::default();
        for (place, container) in self.status.init_container_statuses.iter().enumerate() {
            self.restarts.add(container)?;
            let is_sidecar = self.is_sidecar(&container.name);
            if is_sidecar {
                of_sidecars.add(container)?;
            }
            let state = &container.state;
            self.reason = match &state.terminated {
                Some(Terminated { exit_code: 0, .. }) => continue,
                _ if is_sidecar && container.started == Some(true) => {
                    self.ready += usize::from(container.ready);
                    continue;
                }
                Some(terminated) => format!("Init:{}", terminated.word()).into(),
                None => match state.waits_for() {
                    "" | "PodInitializing" => format!("Init:{place}/{}", self.spec.init_containers.len()).into(),
                    reason => format!("Init:{reason}").into(),
                },
            };
            return Ok((true, of_sidecars));
        }
        Ok((false, of_sidecars))
    }

    fn is_sidecar(&self, name: &str) -> bool {
        let container = self.spec.init_containers.iter().rfind(|container| container.name == name);
        container.is_some_and(|container| container.restart_policy == SIDECAR)
    }

    /// Reads the containers: the reason is that of the first one that does not run.
    fn run(&mut self) -> Result<(), Unprintable> {
        let (mut has_running, mut failure) = (false, None);
        for container in self.status.container_statuses.iter().rev() {
            self.restarts.add(container)?;
            let state = &container.state;
            match (state.waits_for(), &state.terminated) {
                ("", Some(terminated)) => {
                    self.reason = terminated.word();
                    if terminated.exit_code != 0 && self.release >= Release::V1_36 {
                        failure = Some(self.reason.clone());
                    }
                }
                ("", None) if container.ready && state.running.is_some() => {
                    has_running = true;
                    self.ready += 1;
                }
                ("", None) => {}
                (reason, _) => self.reason = Cow::Borrowed(reason),
            }
        }
        // One completed container does not make the pod Completed while others run or have failed.
        if self.reason == "Completed" {
            match failure.filter(|failure| !failure.is_empty()) {
                _ if has_running && self.status.is_true("Ready") => self.reason = "Running".into(),
                Some(failure) => self.reason = failure,
                None if has_running => self.reason = "NotReady".into(),
                None => {}
            }
        }
        Ok(())
    }

    fn total(&self) -> usize {
        let sidecars = self.spec.init_containers.iter().filter(|container| container.restart_policy == SIDECAR);
        self.spec.containers.len() + sidecars.count()
    }
}

/// The reason in the condition `PodScheduled` of a pod with scheduling gates.
const GATED: &str = "SchedulingGated";
/// The restart policy of a sidecar: an init container that keeps running beside the containers.
const SIDECAR: &str = "Always";

pub(super) fn print(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    let progress = Progress::of(release, &spec, &status)?;
    let is_over = matches!(&*status.phase, "Succeeded" | "Failed");
    row.text(&format!("{}/{}", progress.ready, progress.total()))?;
    row.text(match source.is_deleted() {
        true if status.reason == "NodeLost" => "Unknown",
        true if !is_over || release < Release::V1_36 => "Terminating",
        _ => &progress.reason,
    })?;
    let Restarts { count, last } = progress.restarts;
    match (release, last) {
        (Release::V1_20, _) => row.number(count),
        (Release::V1_36, Some(last)) if count != 0 => row.text(&format!("{count} ({} ago)", row.age_since(last)?))?,
        (Release::V1_36, _) => row.text(&count.to_string())?,
    }
    row.age(source.created())?;
    row.text_or(status.pod_ips.first().map_or("", |first| &first.ip), NONE)?;
    row.text_or(&spec.node_name, NONE)?;
    row.text_or(&status.nominated_node_name, NONE)?;
    let gates = &spec.readiness_gates;
    let open = gates.iter().filter(|gate| first_is_true(&status.conditions, &gate.condition_type)).count();
    row.text(&if gates.is_empty() { NONE.to_owned() } else { format!("{open}/{}", gates.len()) })?;
    row.conditions = match &*status.phase {
        "Succeeded" => Some(SUCCEEDED),
        "Failed" => Some(FAILED),
        _ => None,
    };
    Ok(())
}

//! Built-in objects in all states that a server accepts, generated at random from a seed.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Reasons that kubelets and others use, and one that is not in use.
const REASONS: [&str; 8] = [
    "Completed",
    "Error",
    "OOMKilled",
    "CrashLoopBackOff",
    "PodInitializing",
    "ImagePullBackOff",
    "ContainerCreating",
    "a<b>&\"\\\n\u{2028}é",
];
/// Times that are years ago, so that ages do not change while responses are compared, and one in the future.
const TIMES: [&str; 5] = [
    "2019-03-04T05:06:07Z",
    "2021-01-01T00:00:00Z",
    "2024-02-29T12:00:00Z",
    "1970-01-01T00:00:00Z",
    "2038-01-01T00:00:00Z",
];
/// Some of them are not as a server writes them.
const SIZES: [&str; 6] = ["1Gi", "1024Mi", "5G", "1500M", "0.5Ti", "1000000001"];
/// A target must not be the last one.
const AMOUNTS: [&str; 6] = ["1", "1500m", "2.5", "10k", "10000", "0"];
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// An object as it is created, and its status.
pub(crate) struct Odd {
    pub(crate) object: Value,
    pub(crate) status: Option<Value>,
    /// Whether it is deleted, but kept by its finalizer.
    pub(crate) is_deleted: bool,
}

/// Generates objects.
pub(crate) struct Chance(Rng);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// True in `percent` of a hundred cases.
    fn is(&mut self, percent: u32) -> bool {
        self.0.u32(..100) < percent
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())]
    }

    /// `count` different elements of `all`.
    fn some<T: Copy>(&mut self, all: &[T], count: usize) -> Vec<T> {
        let mut all = all.to_vec();
        self.0.shuffle(&mut all);
        all.truncate(count);
        all
    }

    fn metadata(&mut self, name: &str, is_deleted: bool) -> Value {
        let mut metadata = json!({"name": name, "labels": {"odd": self.of(&["a", "b"])}});
        if is_deleted {
            metadata["finalizers"] = json!(["example.com/stay"]);
        }
        metadata
    }

    fn terminated(&mut self) -> Value {
        let mut terminated = json!({"exitCode": self.of(&[0, 0, 1, 137, -3])});
        if self.is(60) {
            terminated["reason"] = json!(self.of(&REASONS));
        }
        if self.is(30) {
            terminated["signal"] = json!(self.of(&[9, 15, -1]));
        }
        if self.is(80) {
            terminated["finishedAt"] = json!(self.of(&TIMES));
        }
        terminated
    }

    fn state(&mut self) -> Value {
        let mut state = Map::new();
        let kind = self.of(&["none", "waiting", "running", "running", "terminated", "terminated", "two"]);
        if matches!(kind, "waiting" | "two") {
            let reason = if self.is(80) { json!({"reason": self.of(&REASONS)}) } else { json!({"message": "m"}) };
            state.insert("waiting".to_owned(), reason);
        }
        if matches!(kind, "running" | "two") {
            let running = if self.is(50) { json!({"startedAt": "2021-01-01T00:00:00Z"}) } else { json!({}) };
            state.insert("running".to_owned(), running);
        }
        if kind == "terminated" {
            state.insert("terminated".to_owned(), self.terminated());
        }
        state.into()
    }

    /// The statuses of most of `count` containers with this prefix.
    fn container_statuses(&mut self, prefix: &str, count: usize) -> Value {
        let mut statuses = Vec::new();
        for number in 0..count {
            if self.is(5) {
                continue;
            }
            let mut status = json!({
                "name": format!("{prefix}{number}"), "image": "i", "imageID": "", "ready": self.is(60),
                "restartCount": self.of(&[0, 0, 1, 7, i32::MAX]), "state": self.state(),
            });
            if self.is(40) {
                status["lastState"] = json!({"terminated": self.terminated()});
            }
            if self.is(60) {
                status["started"] = json!(self.is(60));
            }
            statuses.push(status);
        }
        statuses.into()
    }

    fn conditions(&mut self, kinds: &[&str]) -> Value {
        let mut conditions = Vec::new();
        for kind in kinds {
            if self.is(50) {
                let mut condition = json!({"type": kind, "status": self.of(&STATUSES)});
                if *kind == "PodScheduled" && self.is(20) {
                    condition["reason"] = json!("SchedulingGated");
                }
                conditions.push(condition);
            }
        }
        conditions.into()
    }

    pub(crate) fn pod(&mut self, number: usize) -> Odd {
        let is_deleted = self.is(25);
        let (init, running) = (self.of(&[0, 0, 0, 1, 2, 3]), self.of(&[1, 1, 2, 3]));
        let restarts = self.of(&["Always", "Never", "OnFailure"]);
        let mut spec = json!({"containers": containers("c", running), "restartPolicy": restarts});
        if init > 0 {
            let mut containers = containers("i", init);
            for container in &mut containers {
                if self.is(50) {
                    container["restartPolicy"] = json!("Always");
                }
            }
            spec["initContainers"] = containers.into();
        }
        let is_bound = self.is(50);
        if is_bound {
            spec["nodeName"] = json!("node-1");
        } else if self.is(10) {
            spec["schedulingGates"] = json!([{"name": "example.com/gate"}]);
        }
        let gates = self.of(&[0, 0, 1, 2]);
        let gate = |kind| json!({"conditionType": kind});
        let gates: Vec<_> =
            self.some(&["example.com/a", "example.com/b", "Ready"], gates).into_iter().map(gate).collect();
        spec["readinessGates"] = gates.into();
        let metadata = self.metadata(&format!("odd-{number:03}"), is_deleted);
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let status = self.is(95).then(|| self.pod_status(number, init, running, is_bound));
        Odd { object, status, is_deleted }
    }

    fn pod_status(&mut self, number: usize, init: usize, running: usize, is_bound: bool) -> Value {
        let phase = self.of(&["Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"]);
        let conditions = self.conditions(&["Initialized", "Ready", "PodScheduled", "example.com/a", "example.com/b"]);
        let mut status = json!({"phase": phase, "conditions": conditions});
        if self.is(20) {
            status["reason"] = json!(self.of(&["Evicted", "NodeLost", "NodeLost", "Shut<down>"]));
        }
        if self.is(90) {
            status["initContainerStatuses"] = self.container_statuses("i", init);
        }
        if self.is(90) {
            status["containerStatuses"] = self.container_statuses("c", running);
        }
        if self.is(50) {
            let ip = format!("10.1.{}.{}", number / 250, number % 250 + 1);
            status["podIP"] = json!(ip);
            if self.is(50) {
                status["podIPs"] = json!([{"ip": ip}, {"ip": "fd00::1"}]);
            }
        }
        if !is_bound && self.is(40) {
            status["nominatedNodeName"] = json!("node-2");
        }
        status
    }

    pub(crate) fn node(&mut self, number: usize) -> Odd {
        let mut metadata = self.metadata(&format!("odd-{number:02}"), false);
        for (label, value) in [
            ("node-role.kubernetes.io/worker", ""),
            ("node-role.kubernetes.io/control-plane", ""),
            ("node-role.kubernetes.io/etcd", "true"),
            ("kubernetes.io/role", "master"),
            ("kubernetes.io/role", ""),
        ] {
            if self.is(35) {
                metadata["labels"][label] = json!(value);
            }
        }
        let object =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": self.is(30)}});
        let kinds = ["InternalIP", "ExternalIP", "Hostname", "InternalIP", "ExternalIP", "InternalDNS"];
        let count = self.of(&[0, 1, 2, 4]);
        let addresses = self.some(&kinds, count);
        let address = |(at, kind)| json!({"type": kind, "address": format!("host<{number}>.{at}")});
        let addresses: Vec<_> = addresses.into_iter().enumerate().map(address).collect();
        let mut info = json!({
            "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "", "operatingSystem": "linux",
        });
        for field in ["kubeletVersion", "osImage", "kernelVersion", "containerRuntimeVersion", "architecture"] {
            info[field] = json!(self.of(&["", "v<1>", "x y"]));
        }
        let conditions = self.conditions(&["MemoryPressure", "Ready", "DiskPressure", "Ready"]);
        let status = json!({"conditions": conditions, "addresses": addresses, "nodeInfo": info});
        Odd { object, status: Some(status), is_deleted: false }
    }

    pub(crate) fn service(&mut self, number: usize) -> Odd {
        let kind = self.of(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]);
        let mut spec = json!({"type": kind});
        let (count, protocol) = (self.of(&[1, 1, 2, 4]), self.of(&["TCP", "UDP"]));
        let port = |number: i32| json!({"name": format!("p{number}"), "port": 80 + number, "protocol": protocol});
        if kind != "ExternalName" || self.is(50) {
            spec["ports"] = (0..count).map(port).collect();
        }
        match kind {
            "ExternalName" => spec["externalName"] = json!("a.example.com"),
            "ClusterIP" if self.is(30) => spec["clusterIP"] = json!("None"),
            _ => {}
        }
        if kind != "ExternalName" && self.is(40) {
            let count = self.of(&[1, 2, 3]);
            spec["externalIPs"] = json!(self.some(&["1.1.1.1", "2.2.2.2", "10.9.9.9"], count));
        }
        if self.is(60) {
            spec["selector"] = self.labels();
        }
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        let ingress = [
            json!({"ip": "9.9.9.9"}),
            json!({"ip": "10.9.9.9"}),
            json!({"hostname": "b.example.com"}),
            json!({"hostname": "a.example.com"}),
            json!({"ip": "8.8.8.8", "hostname": "both.example.com"}),
        ];
        let count = self.of(&[1, 2, 4]);
        let ingress: Vec<_> =
            self.some(&[0, 1, 2, 3, 4, 0], count).into_iter().map(|at: usize| ingress[at].clone()).collect();
        let status = (kind == "LoadBalancer" && self.is(70)).then(|| json!({"loadBalancer": {"ingress": ingress}}));
        Odd { object, status, is_deleted: false }
    }

    fn labels(&mut self) -> Value {
        let all = [("a", "1"), ("a-b", "2"), ("a.b", "3"), ("example.com/x", ""), ("B", "4")];
        let count = self.of(&[1, 2, 4]);
        self.some(&all, count)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// A selector that the labels of [`Self::template`] match.
    fn selector(&mut self) -> Value {
        let expressions = [
            json!({"key": "tier", "operator": "In", "values": ["web", "b", "10", "9", ""]}),
            json!({"key": "tier", "operator": "In", "values": ["b"]}),
            json!({"key": "app", "operator": "NotIn", "values": ["z", "Z", "a"]}),
            json!({"key": "app", "operator": "NotIn", "values": [""]}),
            json!({"key": "tier", "operator": "Exists"}),
            json!({"key": "B-b", "operator": "DoesNotExist"}),
            json!({"key": "example.com/x", "operator": "DoesNotExist"}),
        ];
        let count = self.of(&[0, 0, 1, 2, 4]);
        let chosen: Vec<_> =
            self.some(&[0, 1, 2, 3, 4, 5, 6], count).into_iter().map(|at: usize| expressions[at].clone()).collect();
        match (count, self.is(30)) {
            (0, _) | (_, false) => json!({"matchLabels": {"app": "web", "tier": "b"}, "matchExpressions": chosen}),
            (_, true) => json!({"matchExpressions": chosen}),
        }
    }

    fn template(&mut self) -> Value {
        let count = self.of(&[1, 1, 2, 3]);
        let mut spec = json!({"containers": containers("c", count)});
        if self.is(40) {
            spec["nodeSelector"] = self.labels();
        }
        json!({"metadata": {"labels": {"app": "web", "tier": "b"}}, "spec": spec})
    }

    pub(crate) fn workload(&mut self, kind: &str, number: usize) -> Odd {
        let mut spec = json!({"selector": self.selector(), "template": self.template()});
        if kind != "DaemonSet" && self.is(80) {
            spec["replicas"] = json!(self.of(&[0, 1, 5, 1000]));
        }
        if kind == "StatefulSet" {
            spec["serviceName"] = json!("x");
        }
        let (ready, some) = (self.of(&[2, 3, 900]), self.of(&[0, 1, 2]));
        let status = match kind {
            "DaemonSet" => {
                json!({
                    "currentNumberScheduled": ready, "numberMisscheduled": 0, "desiredNumberScheduled": some,
                    "numberReady": self.of(&[0, 5]), "updatedNumberScheduled": self.of(&[0, 6]),
                    "numberAvailable": self.of(&[0, 7]),
                })
            }
            "Deployment" => {
                json!({"replicas": 1000, "readyReplicas": ready, "updatedReplicas": some, "availableReplicas": some})
            }
            _ => json!({"replicas": 1000, "readyReplicas": ready}),
        };
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec});
        Odd { object, status: self.is(80).then_some(status), is_deleted: false }
    }

    pub(crate) fn job(&mut self, number: usize) -> Odd {
        let is_deleted = self.is(20);
        let mut template = self.template();
        template["spec"]["restartPolicy"] = json!("Never");
        let mut spec = json!({"template": template, "suspend": self.is(20)});
        if self.is(50) {
            spec["completions"] = json!(self.of(&[1, 5]));
        }
        if self.is(50) {
            spec["parallelism"] = json!(self.of(&[0, 1, 3]));
        }
        let start = self.of(&["2020-01-01T00:00:00Z", "2021-05-01T00:00:00Z"]);
        let end =
            self.of(&["2021-05-01T00:01:05Z", "2021-05-01T00:07:05Z", "2021-05-09T03:00:00Z", "2023-01-01T00:00:00Z"]);
        let is = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status,
                "lastTransitionTime": start, "lastProbeTime": start,
            })
        };
        let (done, status) = (spec["completions"].as_i64().unwrap_or(1), self.of(&["True", "False"]));
        let status = match self.of(&["none", "runs", "done", "failed", "suspended", "failing", "met"]) {
            "runs" => json!({"startTime": start, "succeeded": self.of(&[0, 3])}),
            "done" => json!({"startTime": start, "completionTime": end, "succeeded": done,
                "conditions": [is("SuccessCriteriaMet", "True"), is("Complete", "True")]}),
            "failed" => json!({"startTime": start, "conditions": [is("FailureTarget", "True"), is("Failed", "True")]}),
            "suspended" => json!({"conditions": [is("Suspended", status)]}),
            "failing" => json!({"startTime": start, "conditions": [is("FailureTarget", status)]}),
            "met" => json!({"startTime": start, "conditions": [is("SuccessCriteriaMet", "True")]}),
            _ => json!({}),
        };
        let metadata = self.metadata(&format!("odd-{number:02}"), is_deleted);
        let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
        Odd { object, status: Some(status), is_deleted }
    }

    pub(crate) fn cron_job(&mut self, number: usize) -> Odd {
        let mut template = self.template();
        template["spec"]["restartPolicy"] = json!("Never");
        let mut spec = json!({"schedule": self.of(&["* * * * *", "@hourly", "1,2 3-5 */6 7 0"]),
            "jobTemplate": {"spec": {"template": template}}});
        if self.is(40) {
            spec["suspend"] = json!(self.is(50));
        }
        if self.is(40) {
            spec["timeZone"] = json!(self.of(&["Etc/UTC", "Europe/Berlin"]));
        }
        let active = (0..self.of(&[0, 1, 3])).map(|job: i32| json!({"name": format!("job-{job}")}));
        let mut status = json!({"active": active.collect::<Vec<_>>()});
        if self.is(60) {
            status["lastScheduleTime"] = json!(self.of(&TIMES));
        } else if self.is(30) {
            // Not the same as none: the server writes it as null.
            status["lastScheduleTime"] = json!("0001-01-01T00:00:00Z");
        }
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec});
        Odd { object, status: Some(status), is_deleted: false }
    }

    /// Access modes, the storage class, which may be an annotation, and the mode of a volume or a claim.
    fn storage(&mut self, metadata: &mut Value) -> Value {
        let modes = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"];
        let count = self.of(&[1, 1, 2, 3]);
        let mut spec = json!({"accessModes": self.some(&modes, count)});
        if self.is(60) {
            spec["storageClassName"] = json!(self.of(&["", "fast", "slow"]));
        }
        if self.is(20) {
            metadata["annotations"] =
                json!({"a": "b", "volume.beta.kubernetes.io/storage-class": self.of(&["annotated", ""])});
        }
        if self.is(60) {
            spec["volumeMode"] = json!(self.of(&["Block", "Filesystem"]));
        }
        spec
    }

    pub(crate) fn volume(&mut self, number: usize) -> Odd {
        let is_deleted = self.is(20);
        let mut metadata = self.metadata(&format!("odd-{number:02}"), is_deleted);
        let mut spec = self.storage(&mut metadata);
        spec["capacity"] = json!({"storage": self.of(&SIZES)});
        spec["hostPath"] = json!({"path": "/x"});
        spec["persistentVolumeReclaimPolicy"] = json!(self.of(&["Retain", "Delete", "Recycle"]));
        if self.is(50) {
            spec["claimRef"] = json!({"namespace": self.of(&["", "odd"]), "name": self.of(&["", "a", "b-c"])});
        }
        let mut status = json!({"phase": self.of(&["Available", "Bound", "Released", "Failed", "Pending"])});
        if self.is(30) {
            status["reason"] = json!(self.of(&REASONS));
        }
        let object = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec});
        Odd { object, status: self.is(90).then_some(status), is_deleted }
    }

    pub(crate) fn claim(&mut self, number: usize) -> Odd {
        let is_deleted = self.is(20);
        let mut metadata = self.metadata(&format!("odd-{number:02}"), is_deleted);
        let mut spec = self.storage(&mut metadata);
        spec["resources"] = json!({"requests": {"storage": self.of(&SIZES)}});
        if self.is(60) {
            spec["volumeName"] = json!(self.of(&["pv-1", "pv-2"]));
        }
        let mut status = json!({"phase": self.of(&["Bound", "Pending", "Lost"])});
        if self.is(80) {
            // Statuses are not validated, not even by servers that do not know the last one.
            let modes = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod"];
            status["accessModes"] = json!(self.some(&modes, 2));
        }
        if self.is(80) {
            status["capacity"] = json!({"storage": self.of(&SIZES)});
        }
        let object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
        Odd { object, status: self.is(90).then_some(status), is_deleted }
    }

    pub(crate) fn ingress(&mut self, number: usize) -> Odd {
        let backend = json!({"service": {"name": "x", "port": {"number": 80}}});
        let mut spec = json!({"defaultBackend": backend});
        let hosts = ["", "a.example.com", "*.b.example.com", "c.example.com", "d.example.com", "e.example.com"];
        let count = self.of(&[0, 1, 2, 3, 4, 6]);
        let rule =
            |host| json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}});
        spec["rules"] = self.some(&hosts, count).into_iter().map(rule).collect();
        if self.is(50) {
            spec["ingressClassName"] = json!("nginx");
        }
        if self.is(40) {
            spec["tls"] = json!([{"hosts": ["a.example.com"], "secretName": "s"}]);
        }
        let ends = [
            json!({"ip": "9.9.9.9"}),
            json!({"ip": "10.9.9.9"}),
            json!({"hostname": "a-long-name.of-a-load-balancer.example.com"}),
            json!({"ip": "8.8.8.8", "hostname": "both.example.com"}),
        ];
        let count = self.of(&[0, 1, 2, 4]);
        let ends: Vec<_> = self.some(&[0, 1, 2, 3], count).into_iter().map(|at: usize| ends[at].clone()).collect();
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let object =
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec});
        Odd { object, status: self.is(80).then(|| json!({"loadBalancer": {"ingress": ends}})), is_deleted: false }
    }

    pub(crate) fn endpoint_slice(&mut self, number: usize) -> Odd {
        let port = |(at, kind): (usize, &str)| match kind {
            "number" => json!({"name": format!("p{at}"), "port": 80 + at}),
            "name" => json!({"name": format!("p{at}")}),
            _ => json!({"name": "", "port": 70 + at}),
        };
        let count = self.of(&[0, 1, 3, 4]);
        let ports: Vec<_> = self.some(&["number", "name", "none", "number"], count);
        let ports: Vec<_> = ports.into_iter().enumerate().map(port).collect();
        let endpoint = |at: usize| json!({"addresses": [format!("10.2.{number}.{at}")]});
        let endpoints: Vec<_> = (1..=self.of(&[0, 1, 3, 4, 9])).map(endpoint).collect();
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let mut object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": endpoints});
        if self.is(80) {
            object["ports"] = ports.into();
        }
        Odd { object, status: None, is_deleted: false }
    }

    pub(crate) fn autoscaler(&mut self, number: usize) -> Odd {
        let (mut metrics, mut measured) = (Vec::new(), Vec::new());
        for _ in 0..self.of(&[0, 1, 1, 2, 3, 5]) {
            let (metric, current) = self.metric();
            metrics.push(metric);
            if self.is(80) {
                measured.push(current);
            }
        }
        let mut spec = json!({"maxReplicas": self.of(&[3, 1000]), "metrics": metrics,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": self.of(&["Deployment", "Odd"]), "name": "x"}});
        if self.is(50) {
            spec["minReplicas"] = json!(self.of(&[1, 2]));
        }
        let status = json!({"currentReplicas": self.of(&[0, 2]), "desiredReplicas": 2, "currentMetrics": measured});
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
            "spec": spec});
        Odd { object, status: self.is(80).then_some(status), is_deleted: false }
    }

    /// A metric of an autoscaler, and what may be measured of it.
    fn metric(&mut self) -> (Value, Value) {
        let kind = self.of(&["Resource", "ContainerResource", "Pods", "Object", "External"]);
        let target = match (kind, self.is(50)) {
            ("Pods", _) | (_, true) => json!({"type": "AverageValue", "averageValue": self.of(&AMOUNTS[..5])}),
            ("Object" | "External", false) => json!({"type": "Value", "value": self.of(&AMOUNTS[..5])}),
            (_, false) => json!({"type": "Utilization", "averageUtilization": self.of(&[1, 80])}),
        };
        let mut current = Map::new();
        for field in ["averageValue", "value"] {
            if self.is(70) {
                current.insert(field.to_owned(), json!(self.of(&AMOUNTS)));
            }
        }
        if kind.ends_with("Resource") && self.is(70) {
            current.insert("averageUtilization".to_owned(), json!(self.of(&[0, 55, 240])));
        }
        let mut named = match kind {
            "Resource" => json!({"name": "cpu"}),
            "ContainerResource" => json!({"name": "memory", "container": "c"}),
            "Object" => {
                json!({"metric": {"name": "m"}, "describedObject": {"apiVersion": "v1", "kind": "K", "name": "n"}})
            }
            _ => json!({"metric": {"name": "m"}}),
        };
        let member = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        let mut measured = named.clone();
        named["target"] = target;
        measured["current"] = current.into();
        (json!({"type": kind, &member: named}), json!({"type": kind, &member: measured}))
    }

    /// An object of a resource without a status.
    pub(crate) fn plain(&mut self, kind: &str, number: usize) -> Odd {
        let values: Map<_, _> = (0..number % 4).map(|key| (format!("k{key}"), json!("YQ=="))).collect();
        let metadata = self.metadata(&format!("odd-{number:02}"), false);
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        match kind {
            "ConfigMap" => {
                object["data"] = values.into();
                object["binaryData"] = if self.is(50) { json!({"b": "AAAA"}) } else { json!({}) };
            }
            "Secret" => {
                object["data"] = values.into();
                object["type"] = json!(self.of(&["", "example.com/x<y>", "Opaque"]));
            }
            _ => object["secrets"] = values.keys().map(|name| json!({"name": name})).collect(),
        }
        Odd { object, status: None, is_deleted: false }
    }
}

fn containers(prefix: &str, count: usize) -> Vec<Value> {
    let container = |number: usize| {
        let image = format!("registry.example.com/{prefix}:v{number}");
        json!({"name": format!("{prefix}{number}"), "image": image})
    };
    (0..count).map(container).collect()
}

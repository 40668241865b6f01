//! `kube-fanout load`: what a profile says, what is measured and how, and the report's JSON.
//!
//! ```text
//! kube-fanout load --profile dashboards --seed-objects 1000 --url http://127.0.0.1:8001 --duration 30s --assert 'errors==0'
//! kube-fanout load --profile daemonsets --kubeconfig direct.yaml --against-kubeconfig gateway.yaml \
//!     --pid api-server=4711 --pid gateway=4712 --output report.json --assert 'event.delay.p99<200ms' --assert 'errors==0'
//! ```
//!
//! With nothing else on the machine, a gateway of the process's own in front of an embedded API server, and that server itself:
//! `kube-fanout load --demo --profile controllers`. There `url` is the gateway and `against` the server. All three share one process and
//! its CPU: compare what each adds under light load; what a gateway saves is CPU of a real API server (`--pid`, `--metrics`).
//!
//! It is a client like any other, of any API server. With `--against` (or `--against-kubeconfig`) it measures two, in turns: what else
//! happens on the machine falls on both. It ends with 0, with 2 if an `--assert` does not hold, with 1 if nothing could be measured.
//! Ctrl-C (or SIGTERM) ends it with the report of the time before. On a terminal, standard error shows rates and percentiles as they come.
//!
//! # Which clusters
//!
//! Load can take a control plane down. A cluster is taken for one for tests, and no other is measured without
//! `--i-know-this-is-a-test-cluster`, if
//!
//! * it is the embedded API server (of `kube-fanout demo`), by its `/version`;
//! * or its namespace `default` has the label: `kubectl label namespace default load.kube-fanout.io/test-cluster=true`;
//! * or all its nodes are of kind, k3d or minikube, or pretended by kwok (the first 20 are looked at).
//!
//! A loopback address is no sign of a test: the gateway listens there in front of production, as `kubectl proxy` and tunnels do.
//!
//! # What is written
//!
//! `churn` and `--seed-objects N` (pods of 4 KiB) write objects into a namespace of the run, `kube-fanout-load-RUN`. They all have the
//! labels `app.kubernetes.io/managed-by: kube-fanout-load` and `load.kube-fanout.io/run: RUN`, and are deleted at the end, also after
//! Ctrl-C and after an error. After a `kill -9` of the tool:
//! `kubectl delete namespaces -l app.kubernetes.io/managed-by=kube-fanout-load`. Pods name a scheduler that there is not, so that
//! they do not run. With `nodes: N` they are bound to nodes that there are not; a cluster with a pod garbage collector deletes those after a while.
//!
//! Objects are made on the server of `--url`, or of `--write-url`. With `--against`, both have to show the same cluster.
//! Changes are written to the server whose turn it is, or to that of `--write-url`: then both are measured under the same writes, and differ only in how events reach the watches.
//!
//! # Profiles
//!
//! YAML or JSON; every problem is named by line and column, with what is allowed. Six come with the program, by name: `kubelets`, `daemonsets`,
//! `controllers`, `dashboards`, `restart-storm`, `burn-in` (the files of `config/load/`, to be copied and changed).
//!
//! ```yaml
//! apiVersion: kube-fanout.io/v1alpha1
//! kind: LoadProfile
//! duration: 30s         # of measuring, on each server
//! settle: 5s            # how long events of the last writes are waited for, at most
//! timeout: 60s          # for a request, or for a watch to be opened
//! workloads:
//! - name: lists         # its kind of work unless it is given
//!   clients: 10         # requests under way at once, at most; for watches: how many
//!   rate: 5             # requests a second of all clients together
//!   http: 1.1           # or 2
//!   encoding: json      # protobuf, metadata, metadataProtobuf
//!   gzip: true
//!   list: {resource: deployments.v1.apps, namespace: a, version: any, limit: 500, labelSelector: a=b, fieldSelector: c=d}
//! - get: {resource: pods, namespace: a, version: mostRecent}
//! - clients: 1000
//!   rate: 200
//!   http: 2
//!   connections: 10     # that the clients share; one for 100 unless given. In HTTP/1.1 each has its own
//!   watch: {resource: pods, start: watchList, fieldSelector: "spec.nodeName=load-node-{client}"}
//! - rate: 20
//!   churn: {resource: pods, objects: 100, bytes: 4Ki, updates: 8, creates: 1, deletes: 1, nodes: 50}
//! ```
//!
//! | Work | What its clients do |
//! |---|---|
//! | `get` | one object after the other, of the first 500 that there are when a turn begins |
//! | `list` | a list, with all its pages if it has a `limit` (in JSON or metadata) |
//! | `watch` | one watch each, opened at the start of a turn as `start` says. A watch that the server ends is opened again the same way (after about a second if it failed); events that were received before are not counted again. `rate`: how many are opened a second; without it all at once |
//! | `churn` | writes to objects of the run (`configmaps` or `pods`): merge patches, creations and deletions in these proportions; `bytes`: as they are sent, the server adds defaults and the names of all fields |
//!
//! `version`: `any` (`resourceVersion=0`), `mostRecent` (none), `notOlderThan` (the newest when the turn begins). `start`: `now` (the newest
//! version when the turn begins: only changes come), `any` (`0`), `mostRecent` (none), `watchList` (`sendInitialEvents`; servers have it
//! from Kubernetes 1.32 on: the profiles `kubelets`, `daemonsets`, `restart-storm` and `burn-in` use it; with an older one, change `start` to `any`). `{client}` in a
//! selector is the client's number, from 0.
//!
//! # What is measured
//!
//! Watches are opened first, and until they stand nothing else is sent. Then requests are sent for the profile's time.
//!
//! * **Latency** counts from when a request was *due*. With a `rate` requests are due on a schedule that does not wait for answers: where
//!   all clients wait, those that are due meanwhile are late, and their lateness is latency. (Tools whose clients wait before they
//!   send the next one leave exactly those requests out that a pause of the server would have hit: coordinated omission.) A
//!   request that found no free client until `timeout` after the end is an error of kind `unsent`. Errors `unsent` and `timeout` also count
//!   as latency, with the time waited so far: a lower bound. Without a `rate` each client sends its next request when it has its answer, which measures throughput.
//! * Of a **list** with pages, latency is that of all pages; of a **watch**, that of its head.
//! * **Time to sync**, with `start: watchList`: until the bookmark at the end of the initial objects.
//! * **Event delay**: the tool writes the time, as it sends the write, into the annotation `load.kube-fanout.io/sent`; a watch that
//!   has the event takes the time again. Writer and watches are one process: there is one clock. The delay includes the
//!   write's own way to the server: it is what one controller sees of another's write. Deletions have no stamp. An object that somebody else changes, too, brings its stamp again.
//! * **Errors** by kind: `connect`, `handshake` (TLS, HTTP/2, credentials), `timeout`, `status_CODE`, `event_CODE` (an ERROR event), `stream`
//!   (broken before its end), `unsent`.
//! * **CPU and memory** of the processes that `--pid NAME=PID` names (by `/proc`, to 10 ms), or of those whose metrics
//!   `--metrics NAME=URL` names (`process_cpu_seconds_total`, `process_resident_memory_bytes`).
//!
//! A timer of this program may fire 2 ms late: a request whose client was free is not charged for that. `lagMax` tells how late the
//! program was at most: if it is not small, the program itself had too little CPU, and the figures are of that.
//!
//! # Conditions
//!
//! `--assert '[WORKLOAD:]METRIC OPERATOR BOUND'`, of the server of `--url`; without a workload, of all together. Metrics: `latency`, `firstByte`,
//! `sync`, `event.delay` with `.p50`, `.p90`, `.p99`, `.p99.9` (any percentile), `.mean`, `.max` and bounds like `200ms`; `requests`,
//! `requests.perSecond`, `events`, `events.perSecond`, `errors` and numbers. One of `<`, `<=`, `>`, `>=`, `==`. A condition on what was
//! not measured at all fails.
//!
//! # JSON
//!
//! `--output FILE`. Fields are only ever added. Times are in milliseconds, and null where there are none.
//!
//! | Field | Meaning |
//! |---|---|
//! | `apiVersion`, `kind` | `kube-fanout.io/v1alpha1`, `LoadReport` |
//! | `version`, `profile` | of the program; the profile's name |
//! | `interrupted` | it was ended before its time |
//! | `left` | what may not have been deleted, and why; null: nothing |
//! | `endpoints[]` | first `url`, then `against` (`name`); `url`, `turns`, `seconds` of measuring |
//! | `endpoints[].workloads[]` | `name`, `work`, `clients`, `connections`, `rate`, `http`, `encoding`, `gzip` as the profile has them |
//! | `….requests`, `….requestsPerSecond` | answered in full; of watches, opened, also again |
//! | `….bytes` | of bodies, as they came (compressed, if they were) |
//! | `….errors[]` | `kind`, `count`, and what the `first` of the kind said |
//! | `….latency`, `….firstByte`, `….sync`, `….eventDelay` | `count`, `mean`, `p50`, `p90`, `p99`, `p99.9`, `max` |
//! | `….events`, `….eventsPerSecond` | of objects, while requests were sent |
//! | `….watchesEnded` | ended by the server, as they should |
//! | `….lagMax` | how late the program itself was |
//! | `endpoints[].processes[]` | `name`; `cpuSeconds` while requests were sent, `openingCpuSeconds` while watches were opened, `residentBytes` at the end of a turn, the most |
//! | `assertions[]` | `assertion`, `value`, `unit`, `passed` |

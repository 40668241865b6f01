//! What to do when an alert of the chart fires (`helm/files/alerts.yaml`, `metrics.prometheusRule.enabled`).
//!
//! | Alert | Means | Look at | Do |
//! |---|---|---|---|
//! | `KubeFanoutCacheStale` | for five minutes upstream has shown nothing of a resource, not even a bookmark; reads of new versions are forwarded, watches are silent | `kube_fanout_reflector_restarts_total`, the log's `error`, the API server | mend the way to the API server; a gateway that alone is stale can be restarted, its clients go on elsewhere |
//! | `KubeFanoutCacheRestarts` | a cache is filled anew again and again, and its watches end each time | the cause in `kube_fanout_reflector_restarts_total`: `expired` and `too_large` come with more changes than upstream keeps, `denied` with rights that were taken away | raise upstream's watch cache or etcd's compaction interval, or put the resource in `cache.exclude` |
//! | `KubeFanoutWatchesLag` | clients read more slowly than objects change, and fall out of the history | `kube_fanout_cache_history_bytes` and `_changes`, user agents in the access log | raise `cache.history.bytes` or `.age`; mend the client |
//! | `KubeFanoutLimitReached` | clients were refused, had to wait, or were forwarded | the limit's row in [`super::operations`] | raise it where the table names a field, or find the client that takes so much |
//! | `KubeFanoutReadsForwarded` | memory answers less than a tenth of the reads | the label `reason` of `kube_fanout_requests_total`, and [`super::request_path`] | `denied` and `excluded`: give the gateway the rights, or take the resource out of `cache.exclude`; `not_reached`: raise `reads.freshnessWait` |
//! | `KubeFanoutAuditFails` | the audit log cannot be written: reads are forwarded and the gateway is not ready, or, with `audit.mode: bestEffort`, reads are not in the log | the disk of `audit.path`, the log's `error` | make room; a file that was moved away is made anew |
//! | `KubeFanoutReviewsFail` | TokenReviews or SubjectAccessReviews get no answer: requests are forwarded, and watches may end | `kube_fanout_access_reviews_total`, `kube_fanout_token_reviews_total`, rights of the gateway | grant `system:auth-delegator`; if upstream refuses for load, raise its limits or `authorization.allowedTTL` |
//! | `KubeFanoutCertificateNotReloaded` | a file of certificates has changed and cannot be used; the old one is | the log, which names the file; `kube-fanout check --config FILE` | mend the file before the old certificate ends |
//! | `KubeFanoutConfigNotReloaded` | the configuration file has changed and has problems: the old one is in effect, and the next restart would fail | the log's `error`; `kube-fanout check --config FILE` | mend the file; it is read again within five seconds |
//! | `KubeFanoutCacheDiffers` | `cache.verifyInterval` found an object in memory that was not what the API server has | the log's line `cache differs from upstream`, which names the object; whether etcd was restored | the cache was filled anew. If it comes again, put the resource in `cache.exclude` and report it |
//!
//! Without the operator for Prometheus the file can be a rule file as it is.

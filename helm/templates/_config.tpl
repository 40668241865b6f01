{{/* The gateway's configuration, and what follows from it. */}}

{{- define "kube-fanout.mode" -}}
{{- dig "clients" "mode" "trusted" .Values.config -}}
{{- end -}}

{{/* "true" if clients reach the gateway by the network. */}}
{{- define "kube-fanout.serves" -}}
{{- if and (ne .Values.kind "Sidecar") (eq (include "kube-fanout.mode" .) "delegated") }}true{{ end -}}
{{- end -}}

{{- define "kube-fanout.hasService" -}}
{{- if and (include "kube-fanout.serves" .) .Values.service.enabled }}true{{ end -}}
{{- end -}}

{{/* What a configuration without listeners gets, as JSON. */}}
{{- define "kube-fanout.listeners" -}}
{{- $listeners := list -}}
{{- if eq .Values.kind "Sidecar" -}}
{{- $listeners = append $listeners (dict "address" (printf "127.0.0.1:%d" (int .Values.ports.sidecar))) -}}
{{- else -}}
{{- if include "kube-fanout.serves" . -}}
{{- $tls := dict "certFile" "/etc/kube-fanout/tls/tls.crt" "keyFile" "/etc/kube-fanout/tls/tls.key" -}}
{{- $listeners = append $listeners (dict "address" (printf "0.0.0.0:%d" (int .Values.ports.https)) "tls" $tls) -}}
{{- end -}}
{{- if .Values.hostSocket.enabled -}}
{{- $listeners = append $listeners (dict "address" (printf "unix:%s/gateway.sock" .Values.hostSocket.directory)) -}}
{{- end -}}
{{- end -}}
{{- toJson $listeners -}}
{{- end -}}

{{- define "kube-fanout.config" -}}
{{- $config := dict "apiVersion" "kube-fanout.io/v1alpha1" "kind" "GatewayConfiguration" -}}
{{- $_ := set $config "admin" (dict "address" (printf "0.0.0.0:%d" (int .Values.ports.admin))) -}}
{{- $_ := set $config "listeners" (include "kube-fanout.listeners" . | fromJsonArray) -}}
{{- $cache := dict -}}
{{- if .Values.peers.enabled -}}
{{- $addresses := include "kube-fanout.peerAddresses" . | fromJsonArray -}}
{{- $_ := set $cache "peers" (dict "addresses" $addresses "caFile" "/etc/kube-fanout/tls/ca.crt") -}}
{{- end -}}
{{- if include "kube-fanout.inNamespaces" . -}}
{{- $_ := set $cache "trustedGroups" (include "kube-fanout.ownGroups" . | fromJsonArray) -}}
{{- end -}}
{{- with $cache }}{{ $_ := set $config "cache" . }}{{ end -}}
{{- if .Values.nodes.enabled -}}
{{- /* The gateways on nodes are one client: they have one service account. */ -}}
{{- $_ := set $config "limits" (dict "watchesPerClient" 100000) -}}
{{- end -}}
{{- $config = mustMergeOverwrite $config (deepCopy .Values.config) -}}
{{- if and (include "kube-fanout.inNamespaces" .) (dig "cache" "prewarm" false $config) -}}
{{- $_ := set $config.cache "prewarm" (include "kube-fanout.prewarm" . | fromJsonArray) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* "true" if replicas ask each other for the state of new caches. */}}
{{- define "kube-fanout.hasPeers" -}}
{{- if or .Values.peers.enabled (dig "cache" "peers" false .Values.config) }}true{{ end -}}
{{- end -}}

{{- define "kube-fanout.peersName" -}}
{{- include "kube-fanout.fullname" . }}-peers
{{- end -}}

{{/* Where replicas find each other, as JSON: first the ready ones, which most likely have the state, then all of them. The
clients' Service is left out where it leads a gateway to itself alone. */}}
{{- define "kube-fanout.peerAddresses" -}}
{{- $names := list -}}
{{- if and (include "kube-fanout.hasService" .) (ne .Values.service.internalTrafficPolicy "Local") -}}
{{- $names = append $names (include "kube-fanout.fullname" .) -}}
{{- end -}}
{{- $addresses := list -}}
{{- range append $names (include "kube-fanout.peersName" .) -}}
{{- $addresses = append $addresses (printf "https://%s.%s.svc:%d" . (include "kube-fanout.namespace" $) (int $.Values.service.port)) -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end -}}

{{/* HTTPS or HTTP: how health and metrics are asked for. */}}
{{- define "kube-fanout.adminScheme" -}}
{{- if (default (dict) .Values.config.admin).tls }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* The name of the object that holds the configuration. */}}
{{- define "kube-fanout.configName" -}}
{{- default (include "kube-fanout.fullname" .) .Values.configSecret.name -}}
{{- end -}}

{{- define "kube-fanout.configIsSecret" -}}
{{- if or .Values.configSecret.create .Values.configSecret.name }}true{{ end -}}
{{- end -}}

{{/* "selfSigned", "certManager", "existingSecret", or nothing. */}}
{{- define "kube-fanout.tlsSource" -}}
{{- if include "kube-fanout.serves" . -}}
{{- if .Values.tls.existingSecret }}existingSecret
{{- else if .Values.tls.certManager.enabled }}certManager
{{- else if .Values.tls.selfSigned.enabled }}selfSigned
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.tlsSecret" -}}
{{- default (printf "%s-tls" (include "kube-fanout.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* Names of the Service, as JSON; last the one that replicas find each other by. */}}
{{- define "kube-fanout.dnsNames" -}}
{{- $name := include "kube-fanout.fullname" . -}}
{{- $namespace := include "kube-fanout.namespace" . -}}
{{- list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace)
      (printf "%s.%s.svc.cluster.local" $name $namespace) (printf "%s.%s.svc" (include "kube-fanout.peersName" .) $namespace) | toJson -}}
{{- end -}}

{{/* Whole seconds of a duration such as 1m30s, rounded up. */}}
{{- define "kube-fanout.seconds" -}}
{{- $milliseconds := 0 -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- $milliseconds = add $milliseconds (mul (int64 $number) (get $units (trimPrefix $number .))) -}}
{{- end -}}
{{- div (add $milliseconds 999) 1000 -}}
{{- end -}}

{{/* The preStop hook's seconds; 0 where the API server does not know such a hook. */}}
{{- define "kube-fanout.preStopSeconds" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- int .Values.lifecycle.preStop.sleep.seconds -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{- define "kube-fanout.gracePeriod" -}}
{{- $drain := include "kube-fanout.seconds" (dig "drain" "timeout" "20s" .Values.config) | int -}}
{{- $needed := add $drain (include "kube-fanout.preStopSeconds" . | int) -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- add $needed 5 -}}
{{- else if le (int $given) (int $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but must exceed the %d s of preStop and config.drain.timeout: raise it, or shorten the drain" (int $given) (int $needed)) -}}
{{- else -}}
{{- int $given -}}
{{- end -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "kube-fanout.validate" -}}
{{- $mode := include "kube-fanout.mode" . -}}
{{- $listeners := .Values.config.listeners -}}
{{- if and (eq .Values.kind "Deployment") (eq $mode "trusted") -}}
{{- fail "kind is Deployment, but config.clients.mode is trusted, which serves only clients on the same machine: set it to delegated, or set kind to DaemonSet or Sidecar" -}}
{{- end -}}
{{- if and (eq .Values.kind "DaemonSet") (eq $mode "trusted") (not .Values.hostSocket.enabled) (not $listeners) -}}
{{- fail "kind is DaemonSet and config.clients.mode is trusted, but no process on the node can reach it: enable hostSocket, or hostNetwork with a listener on 127.0.0.1" -}}
{{- end -}}
{{- if and (eq .Values.kind "Sidecar") (eq $mode "delegated") -}}
{{- fail "kind is Sidecar, but config.clients.mode is delegated: a sidecar serves its own pod with the pod's permissions; set config.clients.mode to trusted" -}}
{{- end -}}
{{- if and .Values.hostSocket.enabled (ne .Values.kind "DaemonSet") -}}
{{- fail "hostSocket is enabled: kind must be DaemonSet, since two gateways on a node cannot share a socket" -}}
{{- end -}}
{{- if and .Values.hostNetwork (ne .Values.kind "DaemonSet") -}}
{{- fail "hostNetwork is enabled: kind must be DaemonSet, since two gateways on a node cannot share ports" -}}
{{- end -}}
{{- if and (include "kube-fanout.serves" .) (not (include "kube-fanout.tlsSource" .)) (not $listeners) -}}
{{- fail "config.clients.mode is delegated, but there is no certificate: set tls.existingSecret, or enable tls.certManager or tls.selfSigned" -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.enabled -}}
{{- fail "tls.existingSecret and tls.certManager.enabled are both set: use one" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is missing: set it to the name of an Issuer or ClusterIssuer" -}}
{{- end -}}
{{- if and .Values.rbac.namespaces (not (include "kube-fanout.inNamespaces" .)) -}}
{{- fail "rbac.namespaces is set, but the rights are for the whole cluster: set rbac.scope to namespaces" -}}
{{- end -}}
{{- if and .Values.configSecret.create (not .Values.configSecret.name) -}}
{{- fail "configSecret.create is true, but configSecret.name is missing" -}}
{{- end -}}
{{- if and (include "kube-fanout.hasService" .) $listeners -}}
{{- $served := false -}}
{{- range $listeners -}}
{{- if hasSuffix (printf ":%d" (int $.Values.ports.https)) (toString .address) }}{{ $served = true }}{{ end -}}
{{- end -}}
{{- if not $served -}}
{{- fail (printf "no listener in config.listeners has port %d, the Service's target: set ports.https, or service.enabled to false" (int .Values.ports.https)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.peers.enabled -}}
{{- if not (include "kube-fanout.serves" .) -}}
{{- fail "peers.enabled: replicas cannot reach each other: it needs config.clients.mode delegated, and kind Deployment or DaemonSet" -}}
{{- end -}}
{{- if not (include "kube-fanout.tlsSource" .) -}}
{{- fail "peers.enabled: replicas know each other by the ca.crt of the gateway's certificate: set tls.existingSecret, tls.certManager or tls.selfSigned, or give config.cache.peers yourself" -}}
{{- end -}}
{{- end -}}
{{- if .Values.nodes.enabled -}}
{{- if ne .Values.kind "Deployment" -}}
{{- fail "nodes.enabled: the gateways on nodes follow replicas: kind must be Deployment" -}}
{{- end -}}
{{- if not (and (include "kube-fanout.hasService" .) (include "kube-fanout.tlsSource" .)) -}}
{{- fail "nodes.enabled: the gateways on nodes reach the replicas by their Service, and know them by the ca.crt of their certificate: set service.enabled, and tls.existingSecret, tls.certManager or tls.selfSigned" -}}
{{- end -}}
{{- end -}}
{{- include "kube-fanout.validateConfig" . -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor are both enabled: each pod would be scraped twice" -}}
{{- end -}}
{{- if not (kindIs "invalid" .Values.podDisruptionBudget.minAvailable) -}}
{{- if not (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable) -}}
{{- fail "podDisruptionBudget.minAvailable and .maxUnavailable are both set: use one" -}}
{{- end -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not (or .Values.autoscaling.targetCPUUtilizationPercentage .Values.autoscaling.targetWatchersPerReplica) -}}
{{- fail "autoscaling is enabled without a target: set targetCPUUtilizationPercentage or targetWatchersPerReplica" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the gateway would refuse at its start: here, so that a rollout does not begin. */}}
{{- define "kube-fanout.validateConfig" -}}
{{- $config := .Values.config -}}
{{- $delegated := eq (include "kube-fanout.mode" .) "delegated" -}}
{{- $clients := default (dict) $config.clients -}}
{{- $ofOther := ternary (list "acceptHosts" "acceptOrigins") (list "authentication" "authorization" "identity") $delegated -}}
{{- range $ofOther -}}
{{- if hasKey $clients . -}}
{{- fail (printf "config.clients.%s is not allowed with config.clients.mode %s: remove it" . (include "kube-fanout.mode" $)) -}}
{{- end -}}
{{- end -}}
{{- $authentication := default (dict) $clients.authentication -}}
{{- if and $delegated (or $authentication.clientCAFile $authentication.requestHeader) (not $clients.identity) -}}
{{- fail "config.clients.identity is missing: users of config.clients.authentication.clientCAFile or .requestHeader are forwarded under it; set impersonation or frontProxy" -}}
{{- end -}}
{{- $admin := default (dict) $config.admin -}}
{{- if and (eq (default "none" $admin.metricsAuthorization) "delegated") (not $admin.tls) -}}
{{- fail "config.admin.metricsAuthorization is delegated, but config.admin.tls is missing: it is required so that tokens are not sent in clear text" -}}
{{- end -}}
{{- $cache := default (dict) $config.cache -}}
{{- $excluded := ternary (list "events" "events.events.k8s.io" "secrets") (list "events" "events.events.k8s.io") $delegated -}}
{{- $excluded = ternary $cache.exclude $excluded (hasKey $cache "exclude") -}}
{{- $clusterScoped := include "kube-fanout.clusterScoped" . | fromJsonArray -}}
{{- range include "kube-fanout.prewarm" . | fromJsonArray -}}
{{- if has .resource $excluded -}}
{{- fail (printf "config.cache.prewarm contains %s, which is excluded: set config.cache.exclude to a list without it" .resource) -}}
{{- end -}}
{{- if and (include "kube-fanout.inNamespaces" $) (has .resource $clusterScoped) -}}
{{- fail (printf "config.cache.prewarm contains %s, which no Role can grant: remove it, or set rbac.scope to cluster" .resource) -}}
{{- end -}}
{{- end -}}
{{- if and (include "kube-fanout.inNamespaces" .) (eq (default "auto" $cache.scope) "cluster") -}}
{{- fail "config.cache.scope is cluster, which Roles do not suffice for: set rbac.scope to cluster, or config.cache.scope to auto" -}}
{{- end -}}
{{- if and (eq (default "keep" $cache.staleWatches) "end") (not $cache.maxStaleness) -}}
{{- fail "config.cache.staleWatches is end, but config.cache.maxStaleness is missing: set it" -}}
{{- end -}}
{{- $audit := default (dict) $config.audit -}}
{{- if and $audit.mode (not $audit.path) -}}
{{- fail "config.audit.mode is set, but config.audit.path is missing" -}}
{{- end -}}
{{- if eq (int .Values.ports.https) (int .Values.ports.admin) -}}
{{- fail (printf "ports.https and ports.admin are both %d: use different ports" (int .Values.ports.https)) -}}
{{- end -}}
{{- end -}}

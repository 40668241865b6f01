{{/* What the gateway may read, and where. */}}

{{/* "cluster", or "namespaces" for Roles. */}}
{{- define "kube-fanout.rbacScope" -}}
{{- default (ternary "namespaces" "cluster" (eq .Values.kind "Sidecar")) .Values.rbac.scope -}}
{{- end -}}

{{- define "kube-fanout.inNamespaces" -}}
{{- if eq (include "kube-fanout.rbacScope" .) "namespaces" }}true{{ end -}}
{{- end -}}

{{/* The namespaces of the Roles, as JSON. */}}
{{- define "kube-fanout.rbacNamespaces" -}}
{{- default (list (include "kube-fanout.namespace" .)) .Values.rbac.namespaces | toJson -}}
{{- end -}}

{{/* Resources without a namespace that are in the default of rbac.resources, as JSON: a Role cannot grant them. Which
others have none is not known here; a rule for them in a Role has no effect. */}}
{{- define "kube-fanout.clusterScoped" -}}
{{- list "namespaces" "nodes" "persistentvolumes" "csidrivers.storage.k8s.io" "csinodes.storage.k8s.io"
      "ingressclasses.networking.k8s.io" "priorityclasses.scheduling.k8s.io" "runtimeclasses.node.k8s.io"
      "storageclasses.storage.k8s.io" | toJson -}}
{{- end -}}

{{/* Groups that the API server itself serves, in every version of it, as JSON. Not all of *.k8s.io: some of these are of
CRDs and aggregated APIs. */}}
{{- define "kube-fanout.ownGroups" -}}
{{- list "apps" "autoscaling" "batch" "coordination.k8s.io" "discovery.k8s.io" "networking.k8s.io" "policy"
      "rbac.authorization.k8s.io" "storage.k8s.io" | toJson -}}
{{- end -}}

{{/* config.cache.prewarm in its long form, as JSON. With Roles, an item without namespaces is for those of the Roles: of
the whole cluster it would never be filled, and the gateway never ready. */}}
{{- define "kube-fanout.prewarm" -}}
{{- $items := list -}}
{{- range default (list) (dig "cache" "prewarm" (list) .Values.config) -}}
{{- $item := kindIs "map" . | ternary . (dict "resource" .) -}}
{{- if and (include "kube-fanout.inNamespaces" $) (not $item.namespaces) -}}
{{- $item = dict "resource" $item.resource "namespaces" (include "kube-fanout.rbacNamespaces" $ | fromJsonArray) -}}
{{- end -}}
{{- $items = append $items $item -}}
{{- end -}}
{{- toJson $items -}}
{{- end -}}

{{/* Rules of what may be cached and of rbac.extraRules: in the ClusterRole, or in each Role. */}}
{{- define "kube-fanout.readRules" -}}
{{- $resources := .Values.rbac.resources -}}
{{- range include "kube-fanout.prewarm" . | fromJsonArray }}{{ $resources = append $resources .resource }}{{ end -}}
{{- $left := list -}}
{{- if include "kube-fanout.inNamespaces" . }}{{ $left = include "kube-fanout.clusterScoped" . | fromJsonArray }}{{ end -}}
{{- $groups := dict -}}
{{- range $resources | uniq | sortAlpha -}}
{{- if not (has . $left) -}}
{{- $group := contains "." . | ternary (regexReplaceAll "^[^.]*[.]" . "") "" -}}
{{- $resource := regexReplaceAll "[.].*$" . "" -}}
{{- $_ := set $groups $group (append (default (list) (get $groups $group)) $resource) -}}
{{- end -}}
{{- end -}}
{{- if has "*" $resources }}
# Everything, Secrets too, may be cached.
- apiGroups: ["*"]
  resources: ["*"]
  verbs: [list, watch]
{{- else if $groups }}
# What may be cached.
{{- range $group, $names := $groups }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ $names | toJson }}
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Rules that no Role can grant. With Roles, only those that the mode or the configuration cannot do without. */}}
{{- define "kube-fanout.clusterRules" -}}
{{- $everywhere := not (include "kube-fanout.inNamespaces" .) -}}
{{- $delegated := eq (include "kube-fanout.mode" .) "delegated" -}}
{{- $servers := or (dig "upstream" "servers" false .Values.config) (dig "upstream" "fallback" false .Values.config) -}}
{{- if $everywhere }}
# To notice that a custom resource has changed, and to forward aggregated APIs.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get]
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  verbs: [list]
{{- end }}
{{- if or $everywhere $servers (include "kube-fanout.hasPeers" .) (dig "cache" "persist" false .Values.config) }}
# To notice that the cluster was replaced, and to take states of the same cluster only: it is known by its uid.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}
{{- if $servers }}
# To use servers of the same cluster only: a list of this namespace, by its name.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [list]
{{- end }}
{{- if or $delegated (eq (dig "admin" "metricsAuthorization" "none" .Values.config) "delegated") }}
# To ask who clients are and what they are allowed to do, like system:auth-delegator.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- if and $delegated (hasKey (default (dict) (dig "clients" "identity" (dict) .Values.config)) "impersonation") }}
{{- with .Values.rbac.impersonate }}
# To name users of certificates and front proxies to the API server.
- apiGroups: [""]
  resources: [users]
  {{- with .users }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [impersonate]
- apiGroups: [""]
  resources: [groups]
  {{- with .groups }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [impersonate]
{{- if or .uids .extraKeys }}
- apiGroups: [authentication.k8s.io]
  resources:
  {{- if .uids }}
  - uids
  {{- end }}
  {{- range .extraKeys }}
  - userextras/{{ . }}
  {{- end }}
  verbs: [impersonate]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A role with its binding; takes the root, the prefix of their kinds, the namespace or nothing, and the rules. */}}
{{- define "kube-fanout.role" -}}
{{- $root := index . 0 -}}
{{- $prefix := index . 1 -}}
{{- $labels := include "kube-fanout.labels" $root | fromYaml -}}
{{- $metadata := dict "name" (include "kube-fanout.clusterName" $root) "labels" $labels -}}
{{- with index . 2 }}{{ $_ := set $metadata "namespace" . }}{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  {{- toYaml $metadata | nindent 2 }}
rules:
{{ index . 3 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $prefix }}Role
  name: {{ include "kube-fanout.clusterName" $root | quote }}
subjects:
- kind: ServiceAccount
  name: {{ include "kube-fanout.serviceAccountName" $root }}
  namespace: {{ include "kube-fanout.namespace" $root }}
{{- end -}}

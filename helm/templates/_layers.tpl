{{/*
The two layers of a tree: replicas, and with `nodes.enabled` gateways on each node that follow them. Each layer is a
context for the other templates. That of nodes has `.Layer`, the suffix of its names and its component; `.Replicas`, the
context of the replicas; and as `.Values` those of the replicas, replaced by those of `nodes`.
*/}}

{{/* A template, rendered for each layer; takes the root and the name of the template. */}}
{{- define "kube-fanout.layers" -}}
{{- $root := index . 0 -}}
{{- include (index . 1) $root -}}
{{- if $root.Values.nodes.enabled -}}
{{- $values := deepCopy $root.Values -}}
{{- /* Maps with any keys: those of the replicas are not wanted among them. */ -}}
{{- range list "config" "updateStrategy" "nodeSelector" "affinity" "resources" "annotations" -}}
{{- $_ := set $values . dict -}}
{{- end -}}
{{- range list "serviceAccount" "service" }}{{ $_ := set (get $values .) "annotations" dict }}{{ end -}}
{{- $_ := set $values.service "labels" dict -}}
{{- $own := dict "kind" "DaemonSet" "nodes" (dict "enabled" false) "peers" (dict "enabled" false) -}}
{{- $_ := mustMergeOverwrite $values (deepCopy (omit $root.Values.nodes "enabled")) $own -}}
{{- $layer := mustMerge (dict "Layer" "node" "Replicas" $root "Values" $values) (omit $root "Values") -}}
{{- with include (index . 1) $layer | trim | trimPrefix "---\n" }}
---
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" for gateways on nodes, unless their values name another upstream. */}}
{{- define "kube-fanout.followsReplicas" -}}
{{- if get . "Layer" -}}
{{- if eq (dig "upstream" "kubeconfig" "" .Values.config) "/etc/kube-fanout/config/kubeconfig" }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* How gateways on nodes reach the replicas: with the token of their own service account. Empty in other layers. */}}
{{- define "kube-fanout.replicas.kubeconfig" -}}
{{- with get . "Replicas" -}}
apiVersion: v1
kind: Config
current-context: replicas
clusters:
- name: replicas
  cluster:
    server: https://{{ include "kube-fanout.fullname" . }}.{{ include "kube-fanout.namespace" . }}.svc:{{ .Values.service.port }}
    certificate-authority: /etc/kube-fanout/replicas/ca.crt
contexts:
- name: replicas
  context: {cluster: replicas, user: node}
users:
- name: node
  user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
{{- end -}}
{{- end -}}

{{/* The authority of the replicas' certificate: of the ConfigMap for clients, if Helm made it; otherwise of the Secret. */}}
{{- define "kube-fanout.replicas.volume" -}}
{{- with .Replicas -}}
- name: kube-fanout-replicas
  {{- if eq (include "kube-fanout.tlsSource" .) "selfSigned" }}
  configMap:
    name: {{ include "kube-fanout.fullname" . }}-client
  {{- else }}
  secret:
    secretName: {{ include "kube-fanout.tlsSecret" . }}
  {{- end }}
    items:
    - key: ca.crt
      path: ca.crt
{{- end -}}
{{- end -}}

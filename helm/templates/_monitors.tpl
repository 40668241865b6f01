{{/* The label by which a ServiceMonitor finds the Service of its layer. */}}
{{- define "kube-fanout.metricsComponent" -}}
{{- with get . "Layer" }}{{ . }}-{{ end }}metrics
{{- end -}}

{{/* metadata of a monitor or rule; takes the root and its values. */}}
{{- define "kube-fanout.monitorMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
name: {{ include "kube-fanout.fullname" $root }}
namespace: {{ default (include "kube-fanout.namespace" $root) $values.namespace }}
labels:
  {{- mustMergeOverwrite (include "kube-fanout.labels" $root | fromYaml) (deepCopy $values.additionalLabels) | toYaml | nindent 2 }}
{{- end -}}

{{/* An endpoint of a monitor, without its port; takes the root and its values. */}}
{{- define "kube-fanout.monitorEndpoint" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
path: /metrics
{{- if not (hasKey .endpoint "scheme") }}
scheme: {{ include "kube-fanout.adminScheme" $root | lower }}
{{- end }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .endpoint }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

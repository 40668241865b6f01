{{/* Names, labels, image: as in other charts. */}}

{{- define "kube-fanout.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 50 characters at most: room for the suffixes of layers and objects. */}}
{{- define "kube-fanout.fullname" -}}
{{- include "kube-fanout.basename" . }}{{ with get . "Layer" }}-{{ . }}{{ end -}}
{{- end -}}

{{- define "kube-fanout.basename" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Objects of the cluster: two releases of one name in two namespaces are two gateways. */}}
{{- define "kube-fanout.clusterName" -}}
{{- printf "%s:%s" (include "kube-fanout.fullname" .) (include "kube-fanout.namespace" .) -}}
{{- end -}}

{{- define "kube-fanout.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kube-fanout.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ default "gateway" (get . "Layer") }}
{{- end -}}

{{- define "kube-fanout.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "kube-fanout.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kube-fanout
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object in the namespace; takes the root and a suffix of the name. */}}
{{- define "kube-fanout.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "kube-fanout.fullname" $root }}{{ index . 1 }}
namespace: {{ include "kube-fanout.namespace" $root }}
labels:
  {{- include "kube-fanout.labels" $root | nindent 2 }}
{{- end -}}

{{- define "kube-fanout.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kube-fanout.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

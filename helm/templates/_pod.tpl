{{/* The gateway's container and pod. */}}

{{- define "kube-fanout.container" -}}
name: kube-fanout
image: {{ include "kube-fanout.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- run
- --config
- /etc/kube-fanout/config/gateway.yaml
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
env:
{{- toYaml . | nindent 0 }}
{{- end }}
ports:
{{- if include "kube-fanout.serves" . }}
- name: https
  containerPort: {{ .Values.ports.https }}
  protocol: TCP
{{- end }}
- name: admin
  containerPort: {{ .Values.ports.admin }}
  protocol: TCP
startupProbe:
  httpGet:
    path: /readyz
    port: admin
    scheme: {{ include "kube-fanout.adminScheme" . }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ .Values.startupProbe.failureThreshold }}
livenessProbe:
  httpGet:
    path: /livez
    port: admin
    scheme: {{ include "kube-fanout.adminScheme" . }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
    scheme: {{ include "kube-fanout.adminScheme" . }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- if include "kube-fanout.preStopSeconds" . | int }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ include "kube-fanout.preStopSeconds" . }}
{{- end }}
{{- $memory := dict }}
{{- with .Values.memory }}
{{- $memory = dict "requests" (dict "memory" .) "limits" (dict "memory" .) }}
{{- end }}
{{- with mergeOverwrite $memory .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
- name: kube-fanout-config
  mountPath: /etc/kube-fanout/config
  readOnly: true
{{- if include "kube-fanout.tlsSource" . }}
- name: kube-fanout-tls
  mountPath: /etc/kube-fanout/tls
  readOnly: true
{{- end }}
{{- if include "kube-fanout.followsReplicas" . }}
- name: kube-fanout-replicas
  mountPath: /etc/kube-fanout/replicas
  readOnly: true
{{- end }}
{{- if .Values.hostSocket.enabled }}
- name: kube-fanout-socket
  mountPath: {{ .Values.hostSocket.directory }}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kube-fanout.volumes" -}}
- name: kube-fanout-config
  {{- if include "kube-fanout.configIsSecret" . }}
  secret:
    secretName: {{ include "kube-fanout.configName" . }}
  {{- else }}
  configMap:
    name: {{ include "kube-fanout.configName" . }}
  {{- end }}
{{- if include "kube-fanout.tlsSource" . }}
- name: kube-fanout-tls
  secret:
    secretName: {{ include "kube-fanout.tlsSecret" . }}
{{- end }}
{{- if include "kube-fanout.followsReplicas" . }}
{{ include "kube-fanout.replicas.volume" . }}
{{- end }}
{{- if .Values.hostSocket.enabled }}
- name: kube-fanout-socket
  hostPath:
    path: {{ .Values.hostSocket.directory }}
    type: Directory
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kube-fanout.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "kube-fanout.selectorLabels" . | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (mustMerge (deepCopy .) (dict "labelSelector" $selector))) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}

{{- define "kube-fanout.podTemplate" -}}
metadata:
  labels:
    {{- $labels := include "kube-fanout.labels" . | fromYaml }}
    {{- $own := include "kube-fanout.selectorLabels" . | fromYaml }}
    {{- mustMergeOverwrite $labels (deepCopy .Values.podLabels) $own | toYaml | nindent 4 }}
  annotations:
    {{- if not (and .Values.configSecret.name (not .Values.configSecret.create)) }}
    # A changed file is read again within seconds, but some of its fields take effect only at a start.
    checksum/config: {{ printf "%s%s" (include "kube-fanout.config" .) (include "kube-fanout.replicas.kubeconfig" .) | sha256sum }}
    {{- end }}
    kubectl.kubernetes.io/default-container: kube-fanout
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "kube-fanout.serviceAccountName" . }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "kube-fanout.gracePeriod" . }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- with default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and (eq .Values.kind "Deployment") .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- include "kube-fanout.topologySpreadConstraints" . | nindent 4 }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  containers:
  - {{ include "kube-fanout.container" . | nindent 4 | trim }}
  {{- with .Values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  volumes:
    {{- include "kube-fanout.volumes" . | nindent 4 }}
{{- end -}}

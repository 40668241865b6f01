{{/*
For the chart of an application that has this one as a dependency, with kind Sidecar:

  spec:
    serviceAccountName: application                # as in kube-fanout.serviceAccount.name
    initContainers:
    - {{ include "kube-fanout.sidecar.container" (index .Subcharts "kube-fanout") | nindent 6 | trim }}
    containers:
    - name: application
      env:
      - {{ include "kube-fanout.sidecar.env" (index .Subcharts "kube-fanout") | nindent 8 | trim }}
      volumeMounts:
      - {{ include "kube-fanout.sidecar.mount" (index .Subcharts "kube-fanout") | nindent 8 | trim }}
    volumes:
    {{- include "kube-fanout.sidecar.volumes" (index .Subcharts "kube-fanout") | nindent 4 }}
*/}}

{{/* A native sidecar (Kubernetes 1.29 on): the application starts when the caches are warm, and Jobs end. */}}
{{- define "kube-fanout.sidecar.container" -}}
{{ include "kube-fanout.container" . }}
restartPolicy: Always
{{- end -}}

{{- define "kube-fanout.sidecar.env" -}}
name: KUBECONFIG
value: /etc/kube-fanout/config/kubeconfig
{{- end -}}

{{- define "kube-fanout.sidecar.mount" -}}
name: kube-fanout-config
mountPath: /etc/kube-fanout/config
readOnly: true
{{- end -}}

{{- define "kube-fanout.sidecar.volumes" -}}
{{ include "kube-fanout.volumes" . }}
{{- end -}}

{{/* The application's kubeconfig. */}}
{{- define "kube-fanout.sidecar.kubeconfig" -}}
apiVersion: v1
kind: Config
current-context: gateway
clusters:
- name: gateway
  cluster:
    server: http://127.0.0.1:{{ .Values.ports.sidecar }}
contexts:
- name: gateway
  context:
    cluster: gateway
    user: gateway
    namespace: {{ include "kube-fanout.namespace" . }}
users:
- name: gateway
  user: {}
{{- end -}}

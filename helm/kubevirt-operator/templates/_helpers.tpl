{{/* How the names of all objects begin: the release's name, with the chart's if it is not part of it. */}}
{{- define "kubevirt-operator.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $full | replace "." "-" | trunc 36 | trimSuffix "-" }}
{{- end }}

{{/* Name of the Deployment and what belongs to it. */}}
{{- define "kubevirt-operator.manager" -}}
{{ include "kubevirt-operator.fullname" . }}-controller-manager
{{- end }}

{{- define "kubevirt-operator.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "kubevirt-operator.manager" .) "default") }}
{{- end }}

{{/* Labels that never change during the life of a release. */}}
{{- define "kubevirt-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubevirt-operator.labels" -}}
{{ include "kubevirt-operator.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kubevirt-operator.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (.Chart.Version | replace "+" "_") }}
{{- end }}

{{/* The Secret that metrics are served with by TLS; empty for plain HTTP, or no metrics. */}}
{{- define "kubevirt-operator.certificate" -}}
{{- if .Values.metrics.enabled }}{{ .Values.metrics.tls.secretName }}{{ end }}
{{- end }}

{{/* The port of an address such as :8080. */}}
{{- define "kubevirt-operator.port" -}}
{{ splitList ":" . | last }}
{{- end }}

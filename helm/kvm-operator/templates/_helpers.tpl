{{/* Name of every object: the release's name, so that several operators can share a management cluster. */}}
{{- define "kvm-operator.name" -}}
{{ .Release.Name | replace "." "-" | trunc 47 | trimSuffix "-" }}
{{- end }}

{{/* Labels that never change during the life of a release. */}}
{{- define "kvm-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvm-operator.labels" -}}
{{ include "kvm-operator.selectorLabels" . }}
app: {{ .Chart.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.project.branch }}
app.giantswarm.io/branch: {{ . | replace "/" "-" | replace "#" "-" | trunc 63 | trimSuffix "-" | quote }}
{{- end }}
{{- with .Values.project.commit }}
app.giantswarm.io/commit: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "kvm-operator.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "kvm-operator.image" -}}
{{ .Values.image.registry }}/{{ .Values.image.name }}:{{ include "kvm-operator.tag" . }}
{{- end }}

{{- define "kvm-operator.runnerImage" -}}
{{ .Values.image.runner | default (printf "%s/%s-runner:%s" .Values.image.registry .Values.image.name (include "kvm-operator.tag" .)) }}
{{- end }}

{{- define "kvm-operator.vmRunnerImage" -}}
{{ .Values.virtualMachines.image | default (printf "%s/%s-vm-runner:%s" .Values.image.registry .Values.image.name (include "kvm-operator.tag" .)) }}
{{- end }}

{{/* ClusterRole of node pods: the one in the values, else the chart's own. */}}
{{- define "kvm-operator.nodeRole" -}}
{{ .Values.rbac.clusterRole.general | default (printf "%s-node" (include "kvm-operator.name" .)) }}
{{- end }}

{{/* A list in the values, or text with commas, as text with commas. */}}
{{- define "kvm-operator.list" -}}
{{ (kindIs "slice" .) | ternary (. | join ",") . | toJson }}
{{- end }}

{{/* A map as a setting: key=value, sorted, with commas. */}}
{{- define "kvm-operator.pairs" -}}
{{- $pairs := list }}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end }}
{{- $pairs | sortAlpha | join "," | toJson }}
{{- end }}

{{- define "kvm-operator.machinesPriorityClass" -}}
{{- with .Values.nodePods.priorityClass }}
{{- .name | default (ternary (printf "%s-machines" (include "kvm-operator.name" $)) "" .create) }}
{{- end }}
{{- end }}

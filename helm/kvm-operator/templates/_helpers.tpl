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
{{ include "kvm-operator.releaseLabels" . }}
{{- end }}

{{/* Labels that tell which release of which version an object is of. */}}
{{- define "kvm-operator.releaseLabels" -}}
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

{{/* Labels of the objects for SmolVMs that never change: none of them are the operator's, whose Service and policies would
take them for its own. The argument is a list of the name of the part and the root. */}}
{{- define "smolvm.selectorLabels" -}}
app.kubernetes.io/name: {{ index . 0 }}
app.kubernetes.io/instance: {{ (index . 1).Release.Name }}
{{- end }}

{{- define "smolvm.labels" -}}
{{ include "smolvm.selectorLabels" . }}
app.kubernetes.io/part-of: {{ (index . 1).Chart.Name }}
{{ include "kvm-operator.releaseLabels" (index . 1) }}
{{- end }}

{{- define "smolvm.image" -}}
{{ .Values.smolvm.image | default (include "kvm-operator.image" .) }}
{{- end }}

{{- define "smolvm.runtimeImage" -}}
{{ .Values.smolvm.runtime.image | default (printf "%s/%s-smolvm-runtime:%s" .Values.image.registry .Values.image.name (include "kvm-operator.tag" .)) }}
{{- end }}

{{/* Secret with the token of runtimes. */}}
{{- define "smolvm.tokenSecret" -}}
{{ .Values.smolvm.auth.secret | default "smolvm-runtime-auth" }}
{{- end }}

{{/* What starts smolvm on a node. It is split at white space, which the schema keeps out of the values. */}}
{{- define "smolvm.serveCommand" -}}
{{- with .Values.smolvm -}}
smolvm serve start --listen unix:///var/run/smolvm/smolvm.sock --cgroup-root=/host/cgroup --cgroup-parent={{ .cgroupParent }} --publish-address={{ .publishAddress }} --publish-ports={{ .publishPorts }} --egress-floor={{ .egress.floor }}
{{- range .egress.allow }} --egress-allow={{ . }}{{ end }}
{{- range $registry, $mirror := .registries.mirrors }} --registry-mirror={{ $registry }}={{ $mirror }}{{ end }}
{{- range .registries.insecure }} --registry-insecure={{ . }}{{ end }}
{{- if .registries.caSecret }} --registry-ca=/var/run/kvm-operator/registry/ca.crt{{ end }}
{{- if .registries.secret }} --registry-config=/var/run/kvm-operator/registry-config{{ end }}
{{- if .allowEmulation }} --allow-emulation{{ end }}
{{- end }}
{{- end }}

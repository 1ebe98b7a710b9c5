{{- define "exhume.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "exhume.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "exhume.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "exhume.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "exhume.selector" -}}
app.kubernetes.io/name: {{ include "exhume.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "exhume.labels" -}}
{{ include "exhume.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{- define "exhume.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "exhume.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Cluster-wide, so the namespace is part of the name. */}}
{{- define "exhume.admission" -}}
{{- printf "%s-%s-own-node" .Release.Namespace (include "exhume.fullname" .) | trunc 253 | trimSuffix "-" }}
{{- end }}

{{- define "exhume.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The capabilities, held equal to src/exhume/agent/privileges.py by a test. */}}
{{- define "exhume.capabilities" -}}
{{- $needed := list "SYSLOG" }}
{{- if eq .Values.kernel "before-5.8" }}
{{- $needed = concat $needed (list "SYS_ADMIN" "SYS_RESOURCE") }}
{{- else }}
{{- $needed = concat $needed (list "BPF" "PERFMON") }}
{{- if eq .Values.kernel "before-5.11" }}{{- $needed = append $needed "SYS_RESOURCE" }}{{- end }}
{{- end }}
{{- if ne .Values.sources.userStacks "none" }}{{- $needed = append $needed "SYS_PTRACE" }}{{- end }}
{{- if .Values.sources.ethtool }}{{- $needed = concat $needed (list "SYS_PTRACE" "SYS_ADMIN") }}{{- end }}
{{- $needed | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The host's directories by path, and where the container sees them; held equal to the same file. */}}
{{- define "exhume.mounts" -}}
{{- $found := dict "/sys/kernel/tracing" "/sys/kernel/tracing" }}
{{- if .Values.sources.audit }}
{{- $_ := set $found "/" "/host" }}
{{- else }}
{{- $paths := list "/proc" "/sys" }}
{{- if .Values.sources.journal }}{{- $paths = concat $paths (list "/run/log" "/run/systemd/system" "/var/log") }}{{- end }}
{{- if .Values.sources.dbus }}{{- $paths = concat $paths (list "/run/dbus" "/run/systemd/system") | uniq }}{{- end }}
{{- $runtimes := dict "containerd" "/run/containerd/io.containerd.runtime.v2.task" "k3s" "/run/k3s/containerd/io.containerd.runtime.v2.task" "docker" "/var/lib/docker/containers" "cri-o" "/var/lib/containers/storage/overlay-containers" }}
{{- with get $runtimes .Values.sources.runtime }}{{- $paths = append $paths . }}{{- end }}
{{- range $paths }}{{- $_ := set $found . (printf "/host%s" .) }}{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* The only directories of the host that can be written: the recording, and profiles that wait to be sent; equal to the same file. */}}
{{- define "exhume.writable" -}}
{{- dict "recording" (printf "%s/recording" .Values.stateDirectory) "spool" (printf "%s/recording.spool" .Values.stateDirectory) | toJson }}
{{- end }}

{{/* A value as TOML: text is escaped as JSON is, which TOML reads. */}}
{{- define "exhume.toml" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ if and (kindIs "float64" $value) (eq $value (floor $value)) }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

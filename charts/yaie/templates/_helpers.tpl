{{/* Labels of everything in this chart. */}}
{{- define "yaie.labels" -}}
{{ include "yaie.selectorLabels" . }}
{{ include "yaie.releaseLabels" . }}
{{- end }}

{{/* Labels of every object that say where it comes from. */}}
{{- define "yaie.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of the operator's pods. They never change: a Deployment's selector cannot. */}}
{{- define "yaie.selectorLabels" -}}
app.kubernetes.io/name: yaie
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of what publishes routers. */}}
{{- define "yaie.routerLabels" -}}
app.kubernetes.io/name: yaie
app.kubernetes.io/component: router
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "yaie.releaseLabels" . }}
{{- end }}

{{/* Name of what publishes a host, unique for each: (list "a.example.com"). */}}
{{- define "yaie.publishedName" -}}
{{- printf "yaie-router-%s" (index . 0 | replace "*" "any" | replace "." "-") | trunc 253 | trimSuffix "-" -}}
{{- end }}

{{/* Fails when the operator does not serve a namespace: (list $ "chat" "ingress.hosts"). */}}
{{- define "yaie.served" -}}
{{- $namespaces := (index . 0).Values.namespaces -}}
{{- if and $namespaces (not (has (index . 1) $namespaces)) -}}
{{- fail (printf "%s names the namespace %s, which the operator does not serve; add it to namespaces" (index . 2) (index . 1)) -}}
{{- end -}}
{{- end }}

{{/* Labels of the pod that `helm test` runs. */}}
{{- define "yaie.testLabels" -}}
app.kubernetes.io/name: yaie
app.kubernetes.io/component: test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Namespace in which `helm test` deploys its model: one that the operator serves. */}}
{{- define "yaie.testNamespace" -}}
{{- with .Values.test.namespace }}{{ include "yaie.served" (list $ . "test.namespace") }}{{ end -}}
{{- $first := first (append .Values.namespaces .Release.Namespace) -}}
{{- .Values.test.namespace | default (has .Release.Namespace .Values.namespaces | ternary .Release.Namespace $first) -}}
{{- end }}

{{/* Reference of an image: (list $ .Values.images.engine). */}}
{{- define "yaie.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.images.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Security context of a pod: Pod Security Standard restricted. */}}
{{- define "yaie.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Security context of a container. */}}
{{- define "yaie.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What the operator adds to the routers' pods, as JSON. */}}
{{- define "yaie.routerPod" -}}
{{- $router := .Values.router -}}
{{- $fields := pick $router "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" "resources" -}}
{{- toJson (merge (dict "labels" $router.podLabels "annotations" $router.podAnnotations) $fields) -}}
{{- end }}

{{/* How clients speak to routers: http or https. It is the name of their Service's port, too. */}}
{{- define "yaie.routerScheme" -}}
{{- .Values.router.tls.existingSecret | empty | ternary "http" "https" -}}
{{- end }}

{{/* Limits and deadlines of routers, as JSON. */}}
{{- define "yaie.routerLimits" -}}
{{- toJson (pick .Values.router "maxInFlight" "maxBodyBytes" "maxBufferedBytes" "maxUnfinishedBodies" "headerTimeoutSeconds" "bodyTimeoutSeconds" "clientStallSeconds" "connectTimeoutSeconds" "firstTokenTimeoutSeconds" "promptBytesPerSecond" "interTokenTimeoutSeconds" "silenceTimeoutSeconds" "suspectAfterSeconds" "maxReplays" "maxReplayBytes" "drainTimeoutSeconds") -}}
{{- end }}

{{/* Who may connect to engines and routers, as JSON; nothing: everyone. */}}
{{- define "yaie.networkPolicies" -}}
{{- if .Values.networkPolicies.enabled -}}
{{- $here := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $operator := dict "namespaceSelector" $here "podSelector" (dict "matchLabels" (include "yaie.selectorLabels" . | fromYaml)) -}}
{{- $there := dict "matchLabels" (dict "kubernetes.io/metadata.name" (include "yaie.testNamespace" .)) -}}
{{- $test := dict "namespaceSelector" $there "podSelector" (dict "matchLabels" (include "yaie.testLabels" . | fromYaml)) -}}
{{- $clients := .Values.networkPolicies.clients | empty | ternary list (append .Values.networkPolicies.clients $test) -}}
{{- toJson (dict "engineClients" (prepend .Values.networkPolicies.prometheus $operator) "routerClients" $clients "downloadEgress" .Values.networkPolicies.downloads) -}}
{{- end -}}
{{- end }}

{{- define "tidegate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What a probe adds where the admin port has TLS. It asks on loopback, for which the certificate need not be. */}}
{{- define "tidegate.probe" -}}
{{- if .Values.admin.tlsSecret }}, --admin, "https://127.0.0.1:2900", --insecure{{ end }}
{{- end }}

{{- /* The sleep before a stop, if there is one. The image has no shell, so Kubernetes itself has to sleep. */}}
{{- define "tidegate.sleep" -}}
{{- with .Values.preStopSleepSeconds }}
{{- if semverCompare "<1.30.0-0" $.Capabilities.KubeVersion.Version }}{{ fail "preStopSleepSeconds needs Kubernetes 1.30 or later" }}{{ end }}
{{- if lt (int $.Values.terminationGracePeriodSeconds) (add 35 (int .)) }}{{ fail "terminationGracePeriodSeconds has to be at least 35 more than preStopSleepSeconds: both count from the same moment" }}{{ end }}
lifecycle:
  preStop: {sleep: {seconds: {{ . }}}}
{{- end }}
{{- end }}

{{- /* The gateway's configuration file: the value `config`, or one made from the other values. */}}
{{- define "tidegate.config" -}}
{{- if .Values.config }}
{{- .Values.config }}
{{- else -}}
admin:
{{- if .Values.admin.tokenSecret }}
  binding: 0.0.0.0:2900
  token: $[[env.TIDEGATE_ADMIN_TOKEN]]
{{- if .Values.admin.tlsSecret }}
  tls:
    enabled: true
    cert_file: /etc/tidegate-admin-tls/tls.crt
    key_file: /etc/tidegate-admin-tls/tls.key
{{- else }}
  # Tokens can be read on the cluster's network.
  tls: {enabled: false}
{{- end }}
{{- else }}
  binding: 127.0.0.1:2900
{{- end }}
entry:
  - name: clients
    router: all
    network: {binding: "0.0.0.0:8000"}
{{- if .Values.tlsSecret }}
    tls:
      enabled: true
      cert_file: /etc/tidegate-tls/tls.crt
      key_file: /etc/tidegate-tls/tls.key
{{- end }}
router:
  - name: all
    default_flow: write
flow:
  - name: write
    filter:
      - bulk_reshuffle:
          elasticsearch: cluster
          mode: {{ .Values.mode }}
{{- if eq .Values.mode "async" }}
          queue:
            name: cluster
            lanes: {{ .Values.queue.lanes }}
{{- with .Values.queue.maxSize }}
            max_size: {{ . }}
{{- end }}
{{- end }}
      - elasticsearch: {elasticsearch: cluster}
{{- if eq .Values.mode "async" }}
pipeline:
  - name: deliver
    processor:
      - bulk_indexing: {elasticsearch: cluster}
{{- end }}
elasticsearch:
  - name: cluster
    endpoints: {{ toJson .Values.cluster.endpoints }}
{{- if .Values.cluster.accountSecret }}
    basic_auth:
      username: $[[env.TIDEGATE_USER]]
      password: $[[env.TIDEGATE_PASSWORD]]
{{- end }}
{{- if .Values.cluster.caSecret }}
    tls: {ca_file: /etc/tidegate-ca/ca.crt}
{{- end }}
{{- if .Values.tracing.endpoint }}
tracing:
  enabled: true
  sample: {{ .Values.tracing.sample }}
  otlp:
    endpoint: {{ .Values.tracing.endpoint | quote }}
    protocol: {{ .Values.tracing.protocol }}
    compression: {{ .Values.tracing.compression }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.from" -}}
valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key }}}}
{{- end }}

{{- /* What the pods of a Deployment and of a StatefulSet have in common. */}}
{{- define "tidegate.pod" -}}
metadata:
  labels:
    {{- include "tidegate.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ include "tidegate.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: tidegate
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [gateway, --config, /etc/tidegate/tidegate.yml]
      ports:
        - {name: clients, containerPort: 8000}
        - {name: admin, containerPort: 2900}
      {{- if or .Values.admin.tokenSecret .Values.cluster.accountSecret .Values.env }}
      env:
        {{- with .Values.admin.tokenSecret }}
        - name: TIDEGATE_ADMIN_TOKEN
          {{- include "tidegate.from" (dict "name" . "key" "token") | nindent 10 }}
        {{- end }}
        {{- with .Values.cluster.accountSecret }}
        - name: TIDEGATE_USER
          {{- include "tidegate.from" (dict "name" . "key" "username") | nindent 10 }}
        - name: TIDEGATE_PASSWORD
          {{- include "tidegate.from" (dict "name" . "key" "password") | nindent 10 }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with include "tidegate.sleep" . }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      # A queue with much in it takes its time to open: until then, nobody asks whether the gateway lives.
      startupProbe:
        exec: {command: [/usr/bin/tidegate, health, --live{{ include "tidegate.probe" . }}]}
        periodSeconds: 5
        timeoutSeconds: 6
        failureThreshold: 120
      # Asks /health/live and /health/ready of the admin port, with its token. An httpGet could not take the token from a Secret.
      livenessProbe:
        exec: {command: [/usr/bin/tidegate, health, --live{{ include "tidegate.probe" . }}]}
        periodSeconds: 10
        timeoutSeconds: 6
        failureThreshold: 3
      readinessProbe:
        exec: {command: [/usr/bin/tidegate, health{{ include "tidegate.probe" . }}]}
        periodSeconds: 3
        timeoutSeconds: 6
        failureThreshold: 2
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/tidegate, readOnly: true}
        - {name: data, mountPath: /var/lib/tidegate}
        {{- if .Values.tlsSecret }}
        - {name: tls, mountPath: /etc/tidegate-tls, readOnly: true}
        {{- end }}
        {{- if .Values.admin.tlsSecret }}
        - {name: admin-tls, mountPath: /etc/tidegate-admin-tls, readOnly: true}
        {{- end }}
        {{- if .Values.cluster.caSecret }}
        - {name: ca, mountPath: /etc/tidegate-ca, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "tidegate.name" . }}}
    {{- if ne .Values.mode "async" }}
    - {name: data, emptyDir: {}}
    {{- end }}
    {{- with .Values.tlsSecret }}
    - name: tls
      secret: {secretName: {{ . | quote }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.admin.tlsSecret }}
    - name: admin-tls
      secret: {secretName: {{ . | quote }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.cluster.caSecret }}
    - name: ca
      secret: {secretName: {{ . | quote }}}
    {{- end }}
  {{- if .Values.spread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "tidegate.selector" . | nindent 10 }}
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
{{- end }}

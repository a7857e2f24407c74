{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "ddprun.endpoint" -}}
{{- $name := printf "%s-rendezvous" .Release.Name -}}
{{- if .Values.rendezvous.journal -}}
{{ printf "%[1]s-0.%[1]s:29500,%[1]s-1.%[1]s:29500,%[1]s-2.%[1]s:29500" $name }}
{{- else -}}
{{ $name }}:29500
{{- end }}
{{- end }}
{{- define "ddprun.pod" -}}
metadata:
  labels:
    app.kubernetes.io/name: {{ .Release.Name }}
spec:
  subdomain: {{ .Release.Name }}
  serviceAccountName: {{ .Release.Name }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: Never
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: node
      image: {{ .Values.image }}
      command: [ddprun]
      args: {{ toJson .Values.args }}
      workingDir: /work
      env:
        {{- if .Values.queue }}
        - name: PET_TERM_TIMEOUT
          value: {{ .Values.noticeGrace | quote }}
        {{- end }}
        - name: PET_NNODES
          value: {{ .Values.nodes | quote }}
        - name: PET_NPROC_PER_NODE
          value: {{ .Values.nprocPerNode | quote }}
        - name: PET_MAX_RESTARTS
          value: {{ .Values.maxRestarts | quote }}
        {{- if not .Values.queue }}
        - name: PET_PREEMPT_NOTICE
          value: kubernetes
        - name: PET_NOTICE_GRACE
          value: {{ .Values.noticeGrace | quote }}
        {{- end }}
        - name: DDPRUN_TOKEN
          valueFrom:
            secretKeyRef:
              name: {{ .Values.tokenSecret }}
              key: token
        - name: DDPRUN_SERVICE
          value: {{ .Release.Name }}
        - name: DDPRUN_JOB_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['batch.kubernetes.io/job-name']
        - name: DDPRUN_JOB_UID
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
        - name: DDPRUN_JOBSET_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/jobset-name']
        - name: DDPRUN_JOBSET_UID
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
        - name: DDPRUN_JOBSET_REPLICATEDJOB_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']
        - name: DDPRUN_JOBSET_JOBS
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/replicatedjob-replicas']
        - name: DDPRUN_JOBSET_JOB_INDEX
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/job-index']
        - name: DDPRUN_JOBSET_RESTART_ATTEMPT
          valueFrom:
            fieldRef:
              fieldPath: metadata.labels['jobset.sigs.k8s.io/restart-attempt']
        - name: HOME
          value: /work
        - name: DDPRUN_CACHE_DIR
          value: /work/cache
        {{- if .Values.rendezvous.enabled }}
        - name: PET_RDZV_ENDPOINT
          value: {{ include "ddprun.endpoint" . }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: rendezvous
          containerPort: 29500
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - name: work
          mountPath: /work
        - name: tmp
          mountPath: /tmp
        - name: shm
          mountPath: /dev/shm
  volumes:
    - name: work
      {{- toYaml .Values.work | nindent 6 }}
    - name: tmp
      emptyDir: {}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.sharedMemory }}
{{- end }}

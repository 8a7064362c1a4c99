{{- /* Written by make golden from the kinds of the handlers. Do not edit. */}}
{{- define "kvm-operator.rulesOfClusters" -}}
- apiGroups: [""]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - configmaps # configmap
    - endpoints # endpoints
    - namespaces # namespace
    - persistentvolumeclaims # pvc
    - secrets # certificates, configmap, etcdsnapshot, kubeconfig, randomkey
    - serviceaccounts # serviceaccount
    - services # service
- apiGroups: [apps]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - deployments # deployment
- apiGroups: [batch]
  verbs: [get, list, watch, create, delete]
  resources:
    - jobs # etcdrestore, etcdretired
- apiGroups: [batch]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - cronjobs # etcdsnapshot
- apiGroups: [discovery.k8s.io]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - endpointslices # endpoints
- apiGroups: [networking.k8s.io]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - ingresses # ingress
    - networkpolicies # networkpolicy
- apiGroups: [policy]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - poddisruptionbudgets # poddisruptionbudget
- apiGroups: [rbac.authorization.k8s.io]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - clusterrolebindings # clusterrolebinding
{{- end }}
{{- define "kvm-operator.rulesOfVirtualMachines" -}}
- apiGroups: [apps]
  verbs: [get, list, watch, create, patch, delete]
  resources:
    - statefulsets # statefulset
{{- end }}

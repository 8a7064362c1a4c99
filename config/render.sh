#!/bin/bash
# render.sh DEST — writes the manifests of the operator for Machines, which kubectl applies, to the folders of DEST: crd, rbac,
# manager, prometheus and network-policy. They are what the chart helm/kubevirt-operator renders without values, without the
# labels that say that helm manages them. HELM names the program.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
chart=$root/helm/kubevirt-operator
namespace=kubevirt-operator-system
helm=${HELM:-$root/.tools/helm}
notice="# Written by make generate from the chart helm/kubevirt-operator. Do not edit."

die() { echo "error: $*" >&2; exit 1; }

[ $# = 1 ] || die "usage: $0 DEST"
[ -x "$helm" ] || die "$helm is missing: run make generate in the repository root"

# rendered ARGS... — the objects of templates, which --show-only selects.
rendered() {
  "$helm" template kubevirt-operator "$chart" --namespace "$namespace" --kube-version 1.36.0 "$@" |
    sed -e '/^ *helm\.sh\/chart: /d' -e '/^ *app\.kubernetes\.io\/managed-by: Helm$/d' -e '/^# Source: /d'
}

# manifest FILE — writes it from the input.
manifest() {
  mkdir -p "$(dirname "$1")"
  { echo "$notice"; cat; } >"$1"
}

mkdir -p "$1/crd"
rm -f "$1"/crd/*.yaml
cp "$chart"/crds/*.yaml "$1/crd/"

manifest "$1/rbac/rbac.yaml" < <(
  cat <<END
---
# Everything else is in this namespace, so it comes first.
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
  labels:
    app.kubernetes.io/name: kubevirt-operator
    pod-security.kubernetes.io/enforce: restricted
END
  rendered --show-only templates/service-account.yaml --show-only templates/rbac.yaml
)
manifest "$1/manager/manager.yaml" < <(rendered --show-only templates/deployment.yaml --show-only templates/service.yaml)
manifest "$1/prometheus/monitor.yaml" < <(rendered --set serviceMonitor.enabled=true --show-only templates/service-monitor.yaml)
manifest "$1/network-policy/network-policy.yaml" < <(rendered --set networkPolicy.enabled=true --show-only templates/network-policy.yaml)

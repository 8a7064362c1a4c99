package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// TestUpgrade upgrades a cluster of a master and a worker to the next minor version of Kubernetes: control plane,
// kubelets and kube-proxy, masters first, with its stored data. Versions that the rules forbid change nothing.
func TestUpgrade(t *testing.T) {
	l := setUp(t, stage.Options{Masters: 1, Workers: 1, Image: stage.BareImage, Next: true})
	following, err := l.NextVersions(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	now := versions.Catalog
	cluster := func(image string, v v1alpha1.Versions) string {
		return manifestOf(image, id, []string{"m1"}, []string{"w1"}) + fmt.Sprintf("  versions: {kubernetes: %q, etcd: %q}\n", v.Kubernetes, v.Etcd)
	}
	if err := l.Apply(l.ctx, cluster(stage.BareImage, now)); err != nil {
		l.t.Fatal(err)
	}
	l.awaitReady(2)
	l.isOf(now)
	l.workload("", "create", "configmap", "witness", "--from-literal=of="+now.Kubernetes)

	t.Logf("from Kubernetes %s and etcd %s to %s and %s", now.Kubernetes, now.Etcd, following.Kubernetes, following.Etcd)
	if err := l.Apply(l.ctx, cluster(stage.NextImage, following)); err != nil {
		l.t.Fatal(err)
	}
	l.eventually(patience, func() error {
		l.keepsTheSkew()
		return l.condition("Ready")
	})
	l.awaitReady(2)
	l.isOf(following)
	if got := l.workload("", "get", "configmap", "witness", "--output=jsonpath={.data.of}"); got != now.Kubernetes {
		t.Errorf("what was stored before the upgrade is %q now, want %q", got, now.Kubernetes)
	}
	if err := l.Prove(l.ctx, l.kubeconfig); err != nil {
		l.t.Fatal(err)
	}

	t.Log("the way back is refused")
	if err := l.Apply(l.ctx, cluster(stage.NextImage, now)); err != nil {
		l.t.Fatal(err)
	}
	l.eventually(staleness, func() error {
		if err := l.condition("VersionsResolved"); err == nil || !strings.Contains(err.Error(), "VersionChangeRefused") {
			return errors.New("an earlier minor version is not refused: " + fmt.Sprint(err))
		}
		return nil
	})
	l.isOf(following)
	t.Log("the end")
	l.ends()
}

// isOf checks that every part of the cluster has the versions.
func (l *life) isOf(want v1alpha1.Versions) {
	l.t.Helper()
	version := "v" + want.Kubernetes
	got := map[string]string{
		"in force": l.management("get", "kvmconfig", id, "--output=jsonpath={.status.versions.kubernetes} {.status.versions.etcd}"),
		"kubelets": l.workload("", "get", "nodes", "--output=jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion} {end}"),
		"API":      l.apiVersion(),
		"kube-proxy": l.workload("", "--namespace=kube-system", "get", "pods", "--selector=k8s-app=kube-proxy",
			"--output=jsonpath={range .items[*]}{.spec.containers[0].image} {end}"),
	}
	if diff := cmp.Diff(map[string]string{
		"in force": want.Kubernetes + " " + want.Etcd, "kubelets": strings.Repeat(version+" ", 2), "API": version,
		"kube-proxy": strings.Repeat("registry.k8s.io/kube-proxy:"+version+" ", 2),
	}, got); diff != "" {
		l.t.Fatalf("parts of the cluster have other versions (-want +got):\n%s", diff)
	}
}

// apiVersion returns the version of the API server.
func (l *life) apiVersion() string {
	l.t.Helper()
	_, version, _ := strings.Cut(l.workload("", "get", "--raw=/version"), `"gitVersion": "`)
	version, _, _ = strings.Cut(version, `"`)
	return version
}

// keepsTheSkew checks that no kubelet has a later version than the API server
// (https://kubernetes.io/releases/version-skew-policy/#kubelet). While the only master is replaced, no API server
// answers.
func (l *life) keepsTheSkew() {
	l.t.Helper()
	text, err := l.Kubectl(l.ctx, l.kubeconfig, "", "get", "nodes", "--request-timeout=10s",
		"--output=jsonpath={range .items[*]}{.metadata.name} {.status.nodeInfo.kubeletVersion}\n{end}")
	if err != nil {
		return
	}
	server, err := l.Kubectl(l.ctx, l.kubeconfig, "", "get", "--raw=/version", "--request-timeout=10s")
	if err != nil {
		return
	}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if _, version, _ := strings.Cut(line, " "); !strings.Contains(server, `"`+version+`"`) && version > "v"+versions.Catalog.Kubernetes {
			l.t.Fatalf("Node %s has a later kubelet than the API server:\n%s", line, server)
		}
	}
}

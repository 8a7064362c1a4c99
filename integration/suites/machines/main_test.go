// Package machines_test tests the operator of Machines with a real API server, the real controllers and scheduler of
// Kubernetes, and KubeVirt's real virt-api and virt-controller. Nodes are simulated, and virt-handler is played.
package machines_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	virt "github.com/kvm-operator/kvm-operator/pkg/kubevirt"
)

const (
	// patience is how long a test waits for one change, and glance is after what time it looks again. Most changes take less
	// than a second on an idle machine.
	patience = time.Minute
	glance   = 100 * time.Millisecond
	// The same for what takes KubeVirt longer, such as many Machines: a check of all of them costs the API server time, too.
	longPatience = 6 * time.Minute
	longGlance   = time.Second
	// interval is how often the operator reconciles each Machine without a reason.
	interval = time.Second
)

// What all tests share. Each test has its own namespace.
var (
	cluster *managementcluster.Cluster
	kube    *kubevirt.KubeVirt
	storage *kubevirt.Provisioner
	// api is an administrator's client without a cache.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	cluster, err = managementcluster.Start(ctx, kubevirt.Needs(managementcluster.Options{Output: progress()}))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := define(); err != nil {
		return 1, err
	}
	// The first test is about a cluster without KubeVirt.
	kube, err = kubevirt.Start(ctx, cluster, kubevirt.Options{Absent: true, Output: progress()})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, kube.Stop()) }()
	if storage, err = kubevirt.StartProvisioner(ctx, cluster.RESTConfig()); err != nil {
		return 1, err
	}
	defer storage.Stop()
	if err := errors.Join(storage.Class(ctx, "standard", true, false), storage.Class(ctx, "late", false, true)); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "the management cluster is ready after %.1fs\n", time.Since(began).Seconds())
	// The tests wait most of the time, so they do not need a core each.
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// progress is where the harness says what it does.
func progress() io.Writer {
	if testing.Verbose() {
		return os.Stderr
	}
	return nil
}

// define installs the definitions of Machines and of Multus, and makes the client.
func define() error {
	_, file, _, _ := runtime.Caller(0)
	crds := filepath.Join(filepath.Dir(file), "..", "..", "..", "helm", "kubevirt-operator", "crds")
	_, err := envtest.InstallCRDs(cluster.RESTConfig(), envtest.CRDInstallOptions{
		Paths: []string{crds}, ErrorIfPathMissing: true, CRDs: []*apiextensionsv1.CustomResourceDefinition{definitions.Multus()},
	})
	if err != nil {
		return fmt.Errorf("installing definitions: %w", err)
	}
	all := scheme.Scheme
	if err := errors.Join(v1alpha1.AddToScheme(all), virt.AddToScheme(all), multusv1.AddToScheme(all)); err != nil {
		return err
	}
	config := cluster.RESTConfig()
	config.QPS = -1 // no limit, whose error would hide what a test waits for
	api, err = client.NewWithWatch(config, client.Options{Scheme: all})
	return err
}

// installed installs KubeVirt and its nodes, once.
var installed = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := kube.Install(ctx); err != nil {
		return err
	}
	for range 4 {
		if _, err := kube.AddNode(ctx, "512Gi"); err != nil {
			return err
		}
	}
	return nil
})

// needKubeVirt installs KubeVirt unless a test before has done it.
func needKubeVirt(t *testing.T) {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
}

// together makes a test one of those that run together, each with an operator for its own namespace alone.
func together(t *testing.T, options ...option) *place {
	t.Helper()
	t.Parallel()
	needKubeVirt(t)
	p := newPlace(t)
	p.operator = p.serve(options...)
	return p
}

// alone gives a test an operator for all namespaces, as every installation has it. No other runs at that time.
func alone(t *testing.T, options ...option) *place {
	t.Helper()
	needKubeVirt(t)
	p := newPlace(t)
	p.operator = serve(t, options...)
	return p
}

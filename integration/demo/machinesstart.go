package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// What the chart of the operator for Machines installs where.
const (
	machinesChart     = "helm/kubevirt-operator"
	machinesRelease   = "kubevirt-operator"
	operatorNamespace = "kubevirt-operator-system"
	operatorName      = "kubevirt-operator-controller-manager"
)

const (
	// machinesNodes is how many nodes are simulated, and nodeMemory what each of them has.
	machinesNodes = 2
	nodeMemory    = "64Gi"
	// tokenLife is how long the operator may work in a demo that is kept.
	tokenLife = 7 * 24 * time.Hour
	// readyInterval is how often the operator is asked whether it is ready.
	readyInterval = 100 * time.Millisecond
)

// storageClasses are the classes of the demo. The first is the default.
var storageClasses = []string{"standard", "fast"}

// starting are the steps from nothing to an operator at work.
func (d *machinesDemo) starting() []step {
	return []step{
		{"starting a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok", d.startCluster},
		{"starting KubeVirt: virt-api and virt-controller", d.startKubeVirt},
		{fmt.Sprintf("making %d simulated nodes, the StorageClasses %v, and the definition of Multus", machinesNodes, storageClasses), d.furnish},
		{"installing " + machinesChart + " by helm, with no pod: a simulated kubelet would run no program", d.installMachines},
		{"starting the operator on this machine, as the chart's ServiceAccount and with the settings of the chart's pod", d.startOperator},
	}
}

func (d *machinesDemo) startCluster(ctx context.Context) (err error) {
	klog.SetLogger(logr.Discard()) // clients log what is an error at a start or at an end only
	d.cluster, err = managementcluster.Start(ctx, kubevirt.Needs(managementcluster.Options{
		Dir: d.state.cluster(), Tools: d.tool(""), Output: d,
	}))
	if err != nil {
		return err
	}
	if err := publish(d.state.management(), d.cluster.Kubeconfig()); err != nil {
		return err
	}
	if d.clients, err = kubernetes.NewForConfig(d.cluster.RESTConfig()); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	d.client, err = client.New(d.cluster.RESTConfig(), client.Options{Scheme: scheme})
	return err
}

// publish writes the kubeconfig of the user: an administrator's, in the namespace of the Machines.
func publish(to, from string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, c := range config.Contexts {
		c.Namespace = team
	}
	return clientcmd.WriteToFile(*config, to)
}

func (d *machinesDemo) startKubeVirt(ctx context.Context) (err error) {
	d.kubeVirt, err = kubevirt.Start(ctx, d.cluster, kubevirt.Options{Output: d})
	return err
}

// furnish makes what Machines need besides KubeVirt.
func (d *machinesDemo) furnish(ctx context.Context) (err error) {
	if d.storage, err = kubevirt.StartProvisioner(ctx, d.cluster.RESTConfig()); err != nil {
		return err
	}
	for i, class := range storageClasses {
		if err := d.storage.Class(ctx, class, i == 0, false); err != nil {
			return err
		}
	}
	for range machinesNodes {
		if _, err := d.kubeVirt.AddNode(ctx, nodeMemory); err != nil {
			return err
		}
	}
	if err := d.client.Create(ctx, definitions.Multus()); err != nil {
		return fmt.Errorf("creating the definition of Multus: %w", err)
	}
	return nil
}

func (d *machinesDemo) installMachines(ctx context.Context) error {
	arguments := []string{
		"install", machinesRelease, machinesChart, "--namespace=" + operatorNamespace, "--create-namespace", "--set=replicaCount=0",
	}
	d.printCommand("helm", arguments...)
	command := exec.CommandContext(ctx, d.tool("helm"), append(arguments, "--kubeconfig="+d.state.management())...)
	command.Dir = d.state.root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// startOperator runs the operator as the pod of the chart would, but for its addresses, and waits until it is ready.
func (d *machinesDemo) startOperator(ctx context.Context) error {
	deployment, err := d.clients.AppsV1().Deployments(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(d.state.cluster(), "operator.kubeconfig")
	if err := d.writeToken(ctx, kubeconfig, deployment.Spec.Template.Spec.ServiceAccountName); err != nil {
		return err
	}
	port, err := d.cluster.FreePort()
	if err != nil {
		return err
	}
	d.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	program, arguments := filepath.Join(d.state.root, "bin", "kvm-operator"), []string{
		"machines", "--" + flag.MachinesKubeconfig + "=" + kubeconfig,
		"--" + flag.MachinesMetricsAddress + "=" + d.address, "--" + flag.MachinesProbeAddress + "=" + d.address,
	}
	d.printCommand(d.relative(program), arguments...)
	d.operator, err = process.Start(process.Command{
		Name: "operator", Path: program, Args: arguments, Dir: d.state.cluster(),
		Env: environment(deployment.Spec.Template.Spec.Containers[0], operatorNamespace),
	})
	if err != nil {
		return err
	}
	err = poll.Until(ctx, readyInterval, d.operator.Done(), func(ctx context.Context) error {
		return poll.Get(ctx, http.DefaultTransport, "http://"+d.address+"/readyz")
	})
	if err != nil {
		return errors.Join(err, d.operator.Failure())
	}
	return nil
}

// environment returns the variables that a container of a pod in a namespace has, without those from other objects.
func environment(container corev1.Container, namespace string) []string {
	var all []string
	for _, v := range container.Env {
		value := v.Value
		if from := v.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
				value = namespace
			case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
				value = strconv.FormatInt(container.Resources.Limits.Memory().Value(), 10)
			default:
				continue
			}
		}
		all = append(all, v.Name+"="+value)
	}
	return all
}

// writeToken writes a kubeconfig with a token of a service account, such as the pods of the account have.
func (d *machinesDemo) writeToken(ctx context.Context, path, account string) error {
	token, err := d.clients.CoreV1().ServiceAccounts(operatorNamespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token of %s: %w", account, err)
	}
	const name = "management"
	config := d.cluster.RESTConfig()
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: account, Namespace: operatorNamespace}},
		CurrentContext: name,
	}, path)
}

// tool returns the path of a program of .tools.
func (d *machinesDemo) tool(name string) string { return filepath.Join(d.state.root, ".tools", name) }

// relative returns a path of the checkout as commands have it that run in its root.
func (d *machinesDemo) relative(path string) string {
	return strings.TrimPrefix(path, d.state.root+string(filepath.Separator))
}

// operatorLog is the file with the operator's log.
func (d *machinesDemo) operatorLog() string { return filepath.Join(d.state.cluster(), "operator.log") }

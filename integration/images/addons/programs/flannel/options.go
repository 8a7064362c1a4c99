package main

import (
	"errors"
	"flag"
	"strings"
)

// options are flanneld's own options, with the same names.
type options struct {
	kubeSubnetMgr bool
	// The address and the credentials of the API server. They are empty in a pod.
	kubeAPIURL, kubeconfig string
	annotationPrefix       string
	networkUnavailable     bool

	// The candidates for the host's interface for encapsulated packets, in order.
	interfaces, interfacePatterns list
	interfaceReaches              string
	publicIP, publicIPv6          string

	masquerade, notFullyRandom bool
	forwardRules               bool
	resyncSeconds              int

	configPath, subnetPath string
	healthIP               string
	// 0 disables the endpoint.
	healthPort int
}

func (o *options) register(flags *flag.FlagSet) {
	flags.BoolVar(&o.kubeSubnetMgr, "kube-subnet-mgr", false, "keep subnets in the Kubernetes API; must be set, there is no other store")
	flags.StringVar(&o.kubeAPIURL, "kube-api-url", "", "URL of the API server; not needed in a pod")
	flags.StringVar(&o.kubeconfig, "kubeconfig-file", "", "kubeconfig; not needed in a pod")
	flags.StringVar(&o.annotationPrefix, "kube-annotation-prefix", "flannel.alpha.coreos.com", "prefix of the annotations of nodes")
	flags.BoolVar(&o.networkUnavailable, "set-node-network-unavailable", true, "set the node's condition NetworkUnavailable to false when ready")
	flags.Var(&o.interfaces, "iface", "interface (IP or name) for packets between hosts; the first of several that exists")
	flags.Var(&o.interfacePatterns, "iface-regex", "regular expression of an interface (IP or name), tried after all --iface")
	flags.StringVar(&o.interfaceReaches, "iface-can-reach", "", "take the interface that leads to this IP")
	flags.StringVar(&o.publicIP, "public-ip", "", "IP at which other nodes reach this one")
	flags.StringVar(&o.publicIPv6, "public-ipv6", "", "IPv6 at which other nodes reach this one")
	flags.BoolVar(&o.masquerade, "ip-masq", false, "masquerade what leaves the pod network")
	flags.BoolVar(&o.notFullyRandom, "ip-masq-fully-random-disable", false, "masquerade without fully random ports")
	flags.BoolVar(&o.forwardRules, "iptables-forward-rules", true, "accept what is forwarded from and to the pod network")
	flags.IntVar(&o.resyncSeconds, "iptables-resync", 5, "seconds between two checks of the rules")
	flags.StringVar(&o.configPath, "net-config-path", "/etc/kube-flannel/net-conf.json", "configuration of the network")
	flags.StringVar(&o.subnetPath, "subnet-file", "/run/flannel/subnet.env", "file for the CNI plugin to read")
	flags.StringVar(&o.healthIP, "healthz-ip", "0.0.0.0", "address of /healthz")
	flags.IntVar(&o.healthPort, "healthz-port", 0, "port of /healthz, 0 for none")
}

func (o *options) validate() error {
	if !o.kubeSubnetMgr {
		return errors.New("this flanneld keeps subnets in the Kubernetes API only: start it with --kube-subnet-mgr")
	}
	if o.resyncSeconds <= 0 {
		return errors.New("--iptables-resync is a number of seconds and more than 0")
	}
	return nil
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// Package smolvmruntime is the agent of a node that runs SmolVMs. It starts and supervises smolvm, lets the controller
// reach smolvm's API over HTTPS, reports the node as a SmolVMNode, and looks for machines whose SmolVM is gone.
//
// It is compatible with the runtime agent of smolvm-operator, except where docs/smolvm-runtime.md says otherwise.
package smolvmruntime

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Defaults of Settings.
const (
	DefaultBindAddress    = ":9443"
	DefaultMetricsAddress = "127.0.0.1:9444"
	DefaultSocket         = "/var/run/smolvm/smolvm.sock"
	DefaultState          = "/var/lib/smolvm"
	DefaultNamespace      = "default"
	DefaultVersion        = "unknown"
	DefaultDaemonSet      = "smolvm-runtime"
	DefaultAudience       = "smolvm-runtime"
	DefaultReportInterval = time.Minute
	// DefaultOrphans needs no right to read SmolVMs: with it, each node could read what all tenants wrote in theirs.
	DefaultOrphans     = OrphansNone
	DefaultHangTimeout = 2 * time.Minute
)

// MaxReportInterval leaves a report that fails the time to be repeated before the controller gives the node up, two minutes
// after the last one.
const MaxReportInterval = 90 * time.Second

// OrphanPolicy is what happens to machines whose SmolVM is gone.
type OrphanPolicy string

// The OrphanPolicies.
const (
	// OrphansReport counts them and logs them.
	OrphansReport OrphanPolicy = "report"
	// OrphansDelete also deletes them, if they are seen twice.
	OrphansDelete OrphanPolicy = "delete"
	// OrphansNone does not look for them.
	OrphansNone OrphanPolicy = "none"
)

// Settings are the settings of an agent.
type Settings struct {
	// Node is the name of the Node. PodName, PodNamespace and PodIP are those of the agent's own pod.
	Node, PodName, PodNamespace, PodIP string
	// DaemonSet is the name of the agent's DaemonSet in the namespace of its pod.
	DaemonSet string
	// Version is reported as the version of the runtime.
	Version string

	// BindAddress is where the node API listens, and MetricsAddress where metrics do; empty for no metrics.
	BindAddress, MetricsAddress string
	// Socket is the path of smolvm's socket.
	Socket string
	// Command starts smolvm. Empty: another program starts it.
	Command []string
	// HangTimeout is for how long smolvm may be silent before it is restarted; 0 never restarts it.
	HangTimeout time.Duration
	// State is the directory that holds what smolvm and the agent keep.
	State string

	// CertFile and KeyFile are a certificate and key for the node API, in PEM; both empty for a self-signed one.
	CertFile, KeyFile string
	// TokenFile has the bearer token of the node API, and Token is one that never changes.
	TokenFile, Token string
	// Audience and Controller are for tokens of a ServiceAccount: the audience that they must have, and the
	// ServiceAccount as namespace/name. Without Controller no such token is accepted.
	Audience, Controller string
	// InsecureNoAuth serves clients without a token.
	InsecureNoAuth bool
	// ExposeGuestStreams lets clients follow commands and consoles of guests, which the controller does not.
	ExposeGuestStreams bool

	// AllowEmulation reports a node without KVM as one that can run machines.
	AllowEmulation bool
	// CapacityCPUs, CapacityMemoryMiB and CapacityStorageGiB are what machines may have of the node; 0 for all of it.
	CapacityCPUs                          int32
	CapacityMemoryMiB, CapacityStorageGiB int64
	// ReportInterval is the time between two reports that change nothing.
	ReportInterval time.Duration
	// Orphans is what happens to machines whose SmolVM is gone.
	Orphans OrphanPolicy
}

// Validate returns an error with all that is wrong with settings, a sentence each.
func (s *Settings) Validate() error {
	var errs []error
	wrong := func(is bool, format string, arguments ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, arguments...))
		}
	}
	wrong(s.Node == "", "NODE_NAME is required")
	wrong(s.Node != "" && len(validation.IsDNS1123Subdomain(s.Node)) > 0, "NODE_NAME %q is not the name of a Node", s.Node)
	if s.PodIP != "" {
		_, err := netip.ParseAddr(s.PodIP)
		wrong(err != nil, "POD_IP %q is not an address", s.PodIP)
	}
	if _, err := portOf(s.BindAddress); err != nil {
		errs = append(errs, fmt.Errorf("--bind-address: %w", err))
	}
	if s.MetricsAddress != "" {
		_, err := portOf(s.MetricsAddress)
		wrong(err != nil, "--metrics-bind-address: %q is not ADDRESS:PORT", s.MetricsAddress)
	}
	wrong(!filepath.IsAbs(s.Socket), "--smolvm-api-socket %q is not an absolute path", s.Socket)
	wrong(!filepath.IsAbs(s.State), "--state-directory %q is not an absolute path", s.State)
	wrong((s.CertFile == "") != (s.KeyFile == ""), "set both --tls-cert-file and --tls-private-key-file, or neither")
	wrong(s.ReportInterval < time.Second || s.ReportInterval > MaxReportInterval,
		"--report-interval %s is not between 1s and %s: the controller gives a node up that has not reported for 2m", s.ReportInterval, MaxReportInterval)
	wrong(s.HangTimeout < 0, "--hang-timeout %s is negative", s.HangTimeout)
	wrong(!slices.Contains([]OrphanPolicy{OrphansReport, OrphansDelete, OrphansNone}, s.Orphans), "--orphan-cleanup-policy %q is not report, delete or none", s.Orphans)
	wrong(s.CapacityCPUs < 0 || s.CapacityMemoryMiB < 0 || s.CapacityStorageGiB < 0, "a capacity is negative")
	return errors.Join(append(errs, s.validateAuth()...)...)
}

func (s *Settings) validateAuth() (errs []error) {
	if s.Controller != "" {
		if _, err := userOf(s.Controller); err != nil {
			errs = append(errs, fmt.Errorf("--controller-service-account: %w", err))
		}
		if s.Audience == "" {
			errs = append(errs, errors.New("--token-review-audience is empty: tokens that are meant for others would be accepted"))
		}
	}
	if s.InsecureNoAuth || s.Controller != "" || s.Token != "" {
		return errs
	}
	if s.TokenFile == "" {
		return append(errs, errors.New("the runtime cannot distinguish clients: set --token-file, SMOLVM_RUNTIME_TOKEN or --controller-service-account, or --insecure-no-auth to let everyone in"))
	}
	token, err := readToken(s.TokenFile)
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("the token for clients cannot be read: %w", err))
	case token == "":
		errs = append(errs, fmt.Errorf("the token for clients is empty: put one into %s", s.TokenFile))
	}
	return errs
}

// portOf returns the port of an address.
func portOf(address string) (int32, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("%q is not ADDRESS:PORT", address)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q has no port from 0 to 65535", address)
	}
	return int32(port), nil
}

// userOf returns the user that the API server knows a ServiceAccount as, which is given as namespace/name.
func userOf(account string) (string, error) {
	namespace, name, _ := strings.Cut(account, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("%q is not namespace/name", account)
	}
	return "system:serviceaccount:" + namespace + ":" + name, nil
}

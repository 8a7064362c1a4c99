package joining

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// Verdict is what to do about a certificate signing request.
type Verdict string

// Verdicts. None of them denies a request: what is wrong now may soon be right, such as the address of a pod
// that was just created, and a request that is not approved expires by itself.
const (
	// Approve makes kube-controller-manager sign the certificate.
	Approve Verdict = "Approve"
	// Wait leaves the request as it is and reports why.
	Wait Verdict = "Wait"
	// Ignore is for requests that do not concern the operator.
	Ignore Verdict = "Ignore"
)

// Reasons of decisions.
const (
	ReasonNodePod        = "NodePod"
	ReasonMalformed      = "Malformed"
	ReasonWrongRequestor = "WrongRequestor"
	ReasonWrongSubject   = "WrongSubject"
	ReasonWrongUsage     = "WrongUsage"
	ReasonWrongAddress   = "WrongAddress"
	ReasonNotANodePod    = "NotANodePod"
	ReasonWrongNode      = "WrongNode"
	ReasonNodeHasJoined  = "NodeHasJoined"
	ReasonKeyTaken       = "KeyTaken"
)

// Names by which Kubernetes knows nodes and their kubelets.
const (
	nodePrefix      = "system:node:"
	nodesGroup      = "system:nodes"
	bootstrapPrefix = "system:bootstrap:"
)

// Decision is the decision about a request.
type Decision struct {
	Verdict Verdict
	// Reason is one of a fixed set; empty if the request is ignored.
	Reason string
	// Message is a sentence for a person.
	Message string
	// Key is the hash of the public key of an approved request that was made with a bootstrap token: it is recorded at
	// the pod before the approval.
	Key string
	// Retry is when a request that waits may be approved without any other change; zero if that is not possible.
	Retry time.Time
}

// World is what a decision depends on besides the request.
type World struct {
	// Pods are the cluster's node pods by name.
	Pods map[string]Pod
	// Tokens are the current bootstrap tokens.
	Tokens Tokens
	// Now is the time of the management cluster.
	Now time.Time
}

// Pod is a node pod as far as decisions depend on it.
type Pod struct {
	// Addresses are the addresses of the pod.
	Addresses []netip.Addr
	// Node is the node that may join with this pod, because the pod is its current one. It is nil if another pod is.
	Node *Node
	// Since is when the pod was created.
	Since time.Time
	// Record is what is recorded of the pod, and whether its Node is Ready.
	Record Record
}

// NewWorld returns a World with the node pods that have not ended, and with the Nodes by name and their readiness. No
// pod may join with a bootstrap token before Expect allows it.
func NewWorld(pods []corev1.Pod, nodes map[string]bool, tokens Tokens, now time.Time) World {
	world := World{Pods: map[string]Pod{}, Tokens: tokens, Now: now}
	for i := range pods {
		pod := &pods[i]
		if Ended(pod) {
			continue
		}
		record := RecordOf(pod)
		record.Joined = record.Joined || nodes[pod.Name]
		world.Pods[pod.Name] = Pod{Addresses: addresses(pod), Since: pod.CreationTimestamp.Time, Record: record}
	}
	return world
}

// Expect allows a node to join with the pod of that name, if there is one.
func (w World) Expect(pod string, node Node) {
	if p, ok := w.Pods[pod]; ok {
		p.Node = &node
		w.Pods[pod] = p
	}
}

// Note sets what was recorded of the pod of that name.
func (w World) Note(pod string, record Record) {
	p := w.Pods[pod]
	p.Record = record
	w.Pods[pod] = p
}

// Wanted returns the bootstrap tokens that the workload cluster has to have: those of nodes that may join and have not.
// Current ones come first.
func (w World) Wanted() []Token {
	var current, before []Token
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		if pod := w.Pods[name]; pod.Node != nil && !pod.Record.Joined {
			accepted := w.Tokens.Accepted(*pod.Node, pod.Since)
			current, before = append(current, accepted[0]), append(before, accepted[1:]...)
		}
	}
	return Unique(append(current, before...))
}

// Ended returns whether a pod has ended permanently: its containers never run again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func addresses(pod *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, addr.Unmap())
		}
	}
	return all
}

// Decide decides what to do about a request. It approves only a kubelet's certificate for the name and the addresses of
// a node pod: https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers.
func Decide(request certificatesv1.CertificateSigningRequest, world World) Decision {
	var judge func(asked, World) Decision
	switch request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		judge = judgeClient
	case certificatesv1.KubeletServingSignerName:
		judge = judgeServing
	default:
		return Decision{Verdict: Ignore}
	}
	if decided(&request) {
		return Decision{Verdict: Ignore}
	}
	parsed, err := parse(request.Spec.Request)
	if err != nil {
		return waitf(ReasonMalformed, "the request cannot be read: %s", err)
	}
	return judge(asked{spec: request.Spec, certificate: parsed}, world)
}

// NodeOf returns the name of the node that a request is for, regardless of the requestor; empty if it cannot be parsed.
func NodeOf(request certificatesv1.CertificateSigningRequest) string {
	parsed, err := parse(request.Spec.Request)
	if err != nil || !strings.HasPrefix(parsed.Subject.CommonName, nodePrefix) {
		return ""
	}
	return asked{certificate: parsed}.node()
}

func decisionf(verdict Verdict, reason, format string, arguments ...any) Decision {
	return Decision{Verdict: verdict, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

func waitf(reason, format string, arguments ...any) Decision {
	return decisionf(Wait, reason, format, arguments...)
}

func approve(what, node string) Decision {
	return decisionf(Approve, ReasonNodePod, "the %s certificate of node pod %s", what, node)
}

// asked is a request that was parsed.
type asked struct {
	spec        certificatesv1.CertificateSigningRequestSpec
	certificate *x509.CertificateRequest
}

// node returns the name of the node that the certificate is for.
func (a asked) node() string {
	return strings.TrimPrefix(a.certificate.Subject.CommonName, nodePrefix)
}

// byNode returns whether the requestor is the node that the certificate is for.
func (a asked) byNode() bool {
	return a.spec.Username == a.certificate.Subject.CommonName &&
		strings.HasPrefix(a.spec.Username, nodePrefix) && slices.Contains(a.spec.Groups, nodesGroup)
}

// byToken returns whether the requestor has one of the operator's bootstrap tokens.
func (a asked) byToken() bool {
	return strings.HasPrefix(a.spec.Username, bootstrapPrefix) && slices.Contains(a.spec.Groups, BootstrapGroup)
}

// subjectIsNode returns whether the subject is that of a node and has no other attribute, because the signer copies
// more than name and group.
func (a asked) subjectIsNode() bool {
	subject := a.certificate.Subject
	return len(subject.Names) == 2 && strings.HasPrefix(subject.CommonName, nodePrefix) && a.node() != "" &&
		slices.Equal(subject.Organization, []string{nodesGroup})
}

// judgeClient decides about the certificate with which a kubelet authenticates to the API server.
func judgeClient(a asked, world World) Decision {
	c := a.certificate
	pod, isPod := world.Pods[a.node()]
	switch problem := usageProblem(a.spec.Usages, certificatesv1.UsageClientAuth); {
	case !a.byNode() && !a.byToken():
		return waitf(ReasonWrongRequestor, "%s is neither a bootstrap token of this operator nor the node itself", shown(a.spec.Username))
	case !a.subjectIsNode():
		return wrongSubject(a)
	case len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses)+len(c.URIs) > 0:
		return waitf(ReasonWrongSubject, "a kubelet's client certificate has no alternative names, this one asks for some")
	case problem != "":
		return waitf(ReasonWrongUsage, "%s", problem)
	case !isPod:
		return notANodePod(a)
	case !a.byNode():
		return judgeToken(a, pod, world)
	}
	return approve("client", a.node())
}

// judgeToken decides about the first certificate of a node: it requires the token of that node, its current pod, and a
// key that is the only one.
func judgeToken(a asked, pod Pod, world World) Decision {
	id, publicKey := strings.TrimPrefix(a.spec.Username, bootstrapPrefix), keyHash(a.certificate)
	taken := pod.Record.At.Add(KeyPatience)
	switch {
	case pod.Node == nil:
		return waitf(ReasonNotANodePod, "node pod %s is not the current one of its node; a bootstrap token does not get its identity", a.node())
	case !slices.ContainsFunc(world.Tokens.Accepted(*pod.Node, pod.Since), func(t Token) bool { return t.ID == id }):
		return waitf(ReasonWrongNode, "the bootstrap token %s is not that of %s %s, whose pod is %s", shown(id), pod.Node.Role, pod.Node.ID, a.node())
	case pod.Record.Joined:
		return waitf(ReasonNodeHasJoined, "Node %s has been Ready and has a certificate; a bootstrap token does not get its identity again. "+
			"If its machine has lost the certificate, delete the pod", a.node())
	case pod.Record.Key != "" && pod.Record.Key != publicKey && world.Now.Before(taken):
		d := waitf(ReasonKeyTaken, "node pod %s was given a certificate for another key less than %s ago", a.node(), KeyPatience)
		d.Retry = taken
		return d
	}
	d := approve("client", a.node())
	d.Key = publicKey
	return d
}

// judgeServing decides about the certificate with which a kubelet serves logs and the like.
func judgeServing(a asked, world World) Decision {
	pod, isPod := world.Pods[a.node()]
	switch problem := usageProblem(a.spec.Usages, certificatesv1.UsageServerAuth); {
	case !a.byNode():
		return waitf(ReasonWrongRequestor, "%s is not the node that the certificate is for", shown(a.spec.Username))
	case !a.subjectIsNode():
		return wrongSubject(a)
	case problem != "":
		return waitf(ReasonWrongUsage, "%s", problem)
	case !isPod:
		return notANodePod(a)
	}
	if problem := addressProblem(a.certificate, a.node(), pod.Addresses); problem != "" {
		return waitf(ReasonWrongAddress, "%s", problem)
	}
	return approve("serving", a.node())
}

func wrongSubject(a asked) Decision {
	return waitf(ReasonWrongSubject, "the subject %s is not that of a node: CN=%s<name>, O=%s and nothing else",
		shown(a.certificate.Subject.String()), nodePrefix, nodesGroup)
}

func notANodePod(a asked) Decision {
	return waitf(ReasonNotANodePod, "%s is no node pod of this cluster", shown(a.node()))
}

// addressProblem returns which alternative name is not the pod's; empty if all are.
func addressProblem(c *x509.CertificateRequest, name string, pod []netip.Addr) string {
	foreignName := func(dns string) bool { return dns != name }
	foreignIP := func(ip net.IP) bool {
		addr, _ := netip.AddrFromSlice(ip)
		return !slices.Contains(pod, addr.Unmap())
	}
	if len(c.EmailAddresses)+len(c.URIs) > 0 {
		return "a kubelet's serving certificate has no mail addresses and no URIs, this one asks for some"
	}
	if i := slices.IndexFunc(c.DNSNames, foreignName); i >= 0 {
		return fmt.Sprintf("the name %s is not that of node pod %s", shown(c.DNSNames[i]), name)
	}
	if i := slices.IndexFunc(c.IPAddresses, foreignIP); i >= 0 {
		return fmt.Sprintf("the address %s is not one of node pod %s, which has %v", c.IPAddresses[i], name, pod)
	}
	if len(c.IPAddresses) == 0 {
		return "the request has no address"
	}
	return ""
}

package joining_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
)

const (
	podName  = "worker-w0aaa-5d8f-x2x2x"
	nodeUser = "system:node:" + podName
)

var world = joining.World{
	Tokens: joining.TokensAt(seed, noon), Now: noon,
	Pods: map[string]joining.Pod{
		podName:      {Node: &w0, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}, Since: noon.Add(-time.Hour)},
		"no-address": {Node: &w1, Since: noon.Add(-time.Hour)},
		"ready":      {Node: &m0, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.8")}, Since: noon.Add(-time.Hour), Record: joining.Record{Joined: true}},
		"fresh":      {Node: &w1, Since: noon.Add(time.Hour)},
		"old":        {Since: noon.Add(-time.Hour)},
	},
}

// byToken makes a bootstrap token the requestor.
func byToken(token joining.Token) change { return user("system:bootstrap:" + token.ID) }

// csr is a request that is not signed yet.
type csr struct {
	template x509.CertificateRequest
	object   certificatesv1.CertificateSigningRequest
	// pem changes the text of the signed request.
	pem func([]byte) []byte
}

// change is a difference from a request that is approved.
type change func(*csr)

// client returns the first request of a kubelet, with a bootstrap token.
func client(changes ...change) *csr {
	c := &csr{template: x509.CertificateRequest{Subject: pkix.Name{CommonName: nodeUser, Organization: []string{"system:nodes"}}}}
	c.object.Spec = certificatesv1.CertificateSigningRequestSpec{
		SignerName: "kubernetes.io/kube-apiserver-client-kubelet", Username: "system:bootstrap:" + world.Tokens.Current(w0).ID,
		Groups: []string{"system:bootstrappers", "system:bootstrappers:kvm-operator", "system:authenticated"},
		Usages: []certificatesv1.KeyUsage{"digital signature", "client auth"},
	}
	return c.with(changes)
}

// serving returns the request of a kubelet that has its client certificate.
func serving(changes ...change) *csr {
	c := client(byNode(nodeUser), usages("digital signature", "server auth"), ips("10.0.0.7"), func(c *csr) { c.template.DNSNames = []string{podName} })
	c.object.Spec.SignerName = "kubernetes.io/kubelet-serving"
	return c.with(changes)
}

func (c *csr) with(changes []change) *csr {
	for _, change := range changes {
		change(c)
	}
	return c
}

func byNode(user string) change {
	return func(c *csr) {
		c.object.Spec.Username, c.object.Spec.Groups = user, []string{"system:nodes", "system:authenticated"}
	}
}
func groups(names ...string) change { return func(c *csr) { c.object.Spec.Groups = names } }
func user(name string) change       { return func(c *csr) { c.object.Spec.Username = name } }
func signer(name string) change     { return func(c *csr) { c.object.Spec.SignerName = name } }
func commonName(name string) change { return func(c *csr) { c.template.Subject.CommonName = name } }
func organizations(o ...string) change {
	return func(c *csr) { c.template.Subject.Organization = o }
}
func dns(names ...string) change           { return func(c *csr) { c.template.DNSNames = names } }
func text(edit func([]byte) []byte) change { return func(c *csr) { c.pem = edit } }
func usages(names ...certificatesv1.KeyUsage) change {
	return func(c *csr) { c.object.Spec.Usages = names }
}
func subject(edit func(*pkix.Name)) change { return func(c *csr) { edit(&c.template.Subject) } }
func ips(list ...string) change {
	return func(c *csr) {
		c.template.IPAddresses = nil
		for _, ip := range list {
			c.template.IPAddresses = append(c.template.IPAddresses, net.ParseIP(ip))
		}
	}
}
func mail(c *csr) { c.template.EmailAddresses = []string{"a@example.org"} }
func uri(c *csr)  { c.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }
func condition(kind certificatesv1.RequestConditionType) change {
	return func(c *csr) {
		c.object.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
}

// obj signs the request.
func (c *csr) obj(t testing.TB) certificatesv1.CertificateSigningRequest {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &c.template, private)
	if err != nil {
		t.Fatal(err)
	}
	c.object.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	if c.pem != nil {
		c.object.Spec.Request = c.pem(c.object.Spec.Request)
	}
	return c.object
}

// block changes the PEM block of a request.
func block(edit func(*pem.Block)) change {
	return text(func(text []byte) []byte {
		b, _ := pem.Decode(text)
		edit(b)
		return pem.EncodeToMemory(b)
	})
}

// attribute adds an attribute to the subject for which Go has no field.
func attribute(oid asn1.ObjectIdentifier, value string) change {
	return subject(func(n *pkix.Name) {
		n.ExtraNames = append(n.ExtraNames, pkix.AttributeTypeAndValue{Type: oid, Value: value})
	})
}

const (
	approved  = "Approve NodePod: "
	notToken  = `Wait WrongRequestor: "%" is neither a bootstrap token of this operator nor the node itself`
	notNode   = `Wait WrongRequestor: "%" is not the node that the certificate is for`
	notOneCSR = "Wait Malformed: the request cannot be read: it is not exactly one PEM block CERTIFICATE REQUEST"
)

// decisions are the cases, named after the requestor and the request.
var decisions = map[string]struct {
	csr  *csr
	want string
}{
	"a client certificate by bootstrap token": {client(), approved + "the client certificate of node pod " + podName},
	"the same with the usages of an RSA key":  {client(usages("key encipherment", "digital signature", "client auth")), approved + "the client certificate of node pod " + podName},
	"the same for a pod without an address":   {client(commonName("system:node:no-address"), byToken(world.Tokens.Current(w1))), approved + "the client certificate of node pod no-address"},
	"the same by the token of before":         {client(byToken(world.Tokens.Accepted(w0, noon)[1])), approved + "the client certificate of node pod " + podName},
	"a client certificate by the node itself": {client(byNode(nodeUser)), approved + "the client certificate of node pod " + podName},
	"the renewal of a Node that is Ready":     {client(byNode("system:node:ready"), commonName("system:node:ready")), approved + "the client certificate of node pod ready"},
	"a serving certificate":                   {serving(), approved + "the serving certificate of node pod " + podName},
	"one for both address families":           {serving(ips("10.0.0.7", "fd00::7")), approved + "the serving certificate of node pod " + podName},
	"one without a name":                      {serving(dns()), approved + "the serving certificate of node pod " + podName},
	"one with the usages of an RSA key":       {serving(usages("digital signature", "key encipherment", "server auth")), approved + "the serving certificate of node pod " + podName},

	"another signer":              {client(signer("kubernetes.io/kube-apiserver-client")), "Ignore"},
	"a signer of another project": {client(signer("example.org/x")), "Ignore"},
	"one that is approved":        {client(condition(certificatesv1.CertificateApproved)), "Ignore"},
	"one that is denied":          {client(condition(certificatesv1.CertificateDenied)), "Ignore"},
	"one that failed":             {client(condition(certificatesv1.CertificateFailed)), "Ignore"},
	"one with another condition": {
		client(condition("Seen")), approved + "the client certificate of node pod " + podName,
	},
	"one that is issued":        {client(func(c *csr) { c.object.Status.Certificate = []byte("x") }), "Ignore"},
	"one that is being deleted": {client(func(c *csr) { c.object.DeletionTimestamp = &metav1.Time{Time: noon} }), "Ignore"},

	"nothing at all":                        {client(text(func([]byte) []byte { return nil })), notOneCSR},
	"no PEM":                                {client(text(func([]byte) []byte { return []byte("hello") })), notOneCSR},
	"two requests":                          {client(text(func(text []byte) []byte { return bytes.Repeat(text, 2) })), notOneCSR},
	"something before the request":          {client(text(func(text []byte) []byte { return append([]byte("x\n"), text...) })), notOneCSR},
	"something after the request":           {client(text(func(text []byte) []byte { return append(text, 'x') })), notOneCSR},
	"a broken block before the request":     {client(text(func(text []byte) []byte { return append([]byte("-----BEGIN CERTIFICATE REQUEST-----\n#\n"), text...) })), notOneCSR},
	"white space around the request":        {client(text(func(text []byte) []byte { return append([]byte(" \n"), append(text, "\n \n"...)...) })), approved + "the client certificate of node pod " + podName},
	"a block of another type":               {client(block(func(b *pem.Block) { b.Type = "NEW CERTIFICATE REQUEST" })), notOneCSR},
	"a block that holds something else":     {client(block(func(b *pem.Block) { b.Bytes = []byte{0x30, 0} })), "Wait Malformed: the request cannot be read: it is no PKCS #10 request"},
	"a request with something behind it":    {client(block(func(b *pem.Block) { b.Bytes = append(b.Bytes, 0) })), "Wait Malformed: the request cannot be read: it is no PKCS #10 request"},
	"a signature of another key":            {client(block(func(b *pem.Block) { b.Bytes[len(b.Bytes)-1] ^= 1 })), "Wait Malformed: the request cannot be read: its signature does not fit its key"},
	"a request that is too long":            {client(text(func(text []byte) []byte { return append(text, bytes.Repeat([]byte("\n"), 1<<20)...) })), "Wait Malformed: the request cannot be read: it is longer than 8192 bytes"},
	"a subject that was changed afterwards": {client(block(func(b *pem.Block) { b.Bytes = bytes.Replace(b.Bytes, []byte("w0aaa"), []byte("w1aaa"), 1) })), "Wait Malformed: the request cannot be read: its signature does not fit its key"},

	"by a user":                                  {client(user("alice"), groups("system:authenticated")), strings.ReplaceAll(notToken, "%", "alice")},
	"by a user in the group of tokens":           {client(user("alice")), strings.ReplaceAll(notToken, "%", "alice")},
	"by a token of another client":               {client(groups("system:bootstrappers", "system:authenticated"), user("system:bootstrap:abcdef")), strings.ReplaceAll(notToken, "%", "system:bootstrap:abcdef")},
	"by a token that no node has":                {client(user("system:bootstrap:abcdef")), wrongNode("abcdef", "worker w0aaa", podName)},
	"by the token of another worker":             {client(byToken(world.Tokens.Current(w1))), wrongNode(world.Tokens.Current(w1).ID, "worker w0aaa", podName)},
	"a master's identity by a worker's token":    {client(commonName("system:node:ready")), wrongNode(world.Tokens.Current(w0).ID, "master m0aaa", "ready")},
	"a worker's identity by a master's token":    {client(byToken(world.Tokens.Current(m0))), wrongNode(world.Tokens.Current(m0).ID, "worker w0aaa", podName)},
	"by the token of before the pod":             {client(commonName("system:node:fresh"), byToken(world.Tokens.Accepted(w1, noon)[1])), wrongNode(world.Tokens.Accepted(w1, noon)[1].ID, "worker w1aaa", "fresh")},
	"by the token of two periods ago":            {client(byToken(joining.TokensAt(seed, noon.Add(-2*joining.Period)).Current(w0))), wrongNode(joining.TokensAt(seed, noon.Add(-2*joining.Period)).Current(w0).ID, "worker w0aaa", podName)},
	"a pod that is not the node's current one":   {client(commonName("system:node:old")), `Wait NotANodePod: node pod old is not the current one of its node; a bootstrap token does not get its identity`},
	"by another node":                            {client(byNode("system:node:ready")), strings.ReplaceAll(notToken, "%", "system:node:ready")},
	"by a user with the node's name":             {client(user(nodeUser), groups("system:authenticated")), strings.ReplaceAll(notToken, "%", nodeUser)},
	"by a user who is no node but in its group":  {client(byNode("alice"), commonName("alice")), strings.ReplaceAll(notToken, "%", "alice")},
	"by a user with a very long name":            {client(user(strings.Repeat("a", 1000))), strings.Replace(strings.ReplaceAll(notToken, "%", strings.Repeat("a", 80)), `a"`, `a"…`, 1)},
	"a serving certificate by bootstrap token":   {serving(user("system:bootstrap:abcdef"), groups("system:bootstrappers:kvm-operator")), strings.ReplaceAll(notNode, "%", "system:bootstrap:abcdef")},
	"a serving certificate by another node":      {serving(byNode("system:node:ready")), strings.ReplaceAll(notNode, "%", "system:node:ready")},
	"a serving certificate by a user":            {serving(user("alice")), strings.ReplaceAll(notNode, "%", "alice")},
	"a serving certificate outside group nodes":  {serving(groups("system:authenticated")), strings.ReplaceAll(notNode, "%", nodeUser)},
	"a serving certificate of the nameless node": {serving(byNode("system:node:"), commonName("system:node:")), badSubject("O=system:nodes", "system:node:")},
	"a name that is no node's":                   {client(commonName("kubernetes-admin")), badSubject("O=system:nodes", "kubernetes-admin")},
	"a node without a name":                      {client(commonName("system:node:")), badSubject("O=system:nodes", "system:node:")},
	"no name":                                    {client(commonName("")), `Wait WrongSubject: the subject "O=system:nodes" is not that of a node: CN=system:node:<name>, O=system:nodes and nothing else`},
	"no group":                                   {client(organizations()), `Wait WrongSubject: the subject "CN=` + nodeUser + `" is not that of a node: CN=system:node:<name>, O=system:nodes and nothing else`},
	"another group":                              {client(organizations("system:masters")), badSubject("O=system:masters", nodeUser)},
	"a further group":                            {client(organizations("system:nodes", "system:masters")), badSubject("O=system:nodes+O=system:masters", nodeUser)},
	"the group twice":                            {client(organizations("system:nodes", "system:nodes")), badSubject("O=system:nodes+O=system:nodes", nodeUser)},
	"a serving certificate with another group":   {serving(organizations("system:masters")), badSubject("O=system:masters", nodeUser)},
	"a unit":                                    {client(subject(func(n *pkix.Name) { n.OrganizationalUnit = []string{"x"} })), badSubject("OU=x,O=system:nodes", nodeUser)},
	"a country":                                 {serving(subject(func(n *pkix.Name) { n.Country = []string{"DE"} })), badSubject("O=system:nodes,C=DE", nodeUser)},
	"a second name":                             {client(attribute(asn1.ObjectIdentifier{2, 5, 4, 3}, "kubernetes-admin"), commonName("")), badSubject("O=system:nodes", "kubernetes-admin")},
	"a client certificate with a name":          {client(dns(podName)), "Wait WrongSubject: a kubelet's client certificate has no alternative names, this one asks for some"},
	"a client certificate with an address":      {client(ips("10.0.0.7")), "Wait WrongSubject: a kubelet's client certificate has no alternative names, this one asks for some"},
	"a client certificate with a mail address":  {client(mail), "Wait WrongSubject: a kubelet's client certificate has no alternative names, this one asks for some"},
	"a client certificate with a URI":           {client(uri), "Wait WrongSubject: a kubelet's client certificate has no alternative names, this one asks for some"},
	"a client certificate for servers":          {client(usages("digital signature", "server auth")), `Wait WrongUsage: the usage "server auth" is not one of ["digital signature" "key encipherment" "client auth"]`},
	"a client certificate for both":             {client(usages("client auth", "server auth")), `Wait WrongUsage: the usage "server auth" is not one of ["digital signature" "key encipherment" "client auth"]`},
	"a client certificate for nothing":          {client(usages("digital signature")), `Wait WrongUsage: the usage "client auth" is missing`},
	"a client certificate without usages":       {client(usages()), `Wait WrongUsage: the usage "client auth" is missing`},
	"a client certificate that signs others":    {client(usages("client auth", "cert sign")), `Wait WrongUsage: the usage "cert sign" is not one of ["digital signature" "key encipherment" "client auth"]`},
	"a serving certificate for clients":         {serving(usages("server auth", "client auth")), `Wait WrongUsage: the usage "client auth" is not one of ["digital signature" "key encipherment" "server auth"]`},
	"a serving certificate for nothing":         {serving(usages("key encipherment")), `Wait WrongUsage: the usage "server auth" is missing`},
	"a pod that does not exist":                 {client(commonName("system:node:gone")), `Wait NotANodePod: "gone" is no node pod of this cluster`},
	"a serving certificate of no pod":           {serving(byNode("system:node:gone"), commonName("system:node:gone")), `Wait NotANodePod: "gone" is no node pod of this cluster`},
	"a renewal by a node whose pod is gone":     {client(byNode("system:node:gone"), commonName("system:node:gone")), `Wait NotANodePod: "gone" is no node pod of this cluster`},
	"a Node's identity by its token again":      {client(commonName("system:node:ready"), byToken(world.Tokens.Current(m0))), "Wait NodeHasJoined: Node ready has been Ready and has a certificate; a bootstrap token does not get its identity again. If its machine has lost the certificate, delete the pod"},
	"a name of another server":                  {serving(dns(podName, "kubernetes.default.svc")), `Wait WrongAddress: the name "kubernetes.default.svc" is not that of node pod ` + podName},
	"an address of another pod":                 {serving(ips("10.0.0.7", "10.0.0.8")), "Wait WrongAddress: the address 10.0.0.8 is not one of node pod " + podName + ", which has [10.0.0.7 fd00::7]"},
	"no address":                                {serving(ips()), "Wait WrongAddress: the request has no address"},
	"no address and no name":                    {serving(ips(), dns()), "Wait WrongAddress: the request has no address"},
	"an address before the pod is seen with it": {serving(byNode("system:node:no-address"), commonName("system:node:no-address"), dns("no-address")), "Wait WrongAddress: the address 10.0.0.7 is not one of node pod no-address, which has []"},
	"a serving certificate with a mail address": {serving(mail), "Wait WrongAddress: a kubelet's serving certificate has no mail addresses and no URIs, this one asks for some"},
	"a serving certificate with a URI":          {serving(uri), "Wait WrongAddress: a kubelet's serving certificate has no mail addresses and no URIs, this one asks for some"},
}

func wrongNode(token, node, pod string) string {
	return `Wait WrongNode: the bootstrap token "` + token + `" is not that of ` + node + ", whose pod is " + pod
}

func badSubject(rest, name string) string {
	return `Wait WrongSubject: the subject "CN=` + name + "," + rest + `" is not that of a node: CN=system:node:<name>, O=system:nodes and nothing else`
}

// TestOnlyNodePodsGetCertificates: only kubelets' certificates for the name and the addresses of a node pod are
// approved.
func TestOnlyNodePodsGetCertificates(t *testing.T) {
	for name, test := range decisions {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, describe(joining.Decide(test.csr.obj(t), world))); diff != "" {
				t.Errorf("another decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKeysThatTakeLongToVerify: large keys are not verified, because a tenant could keep the operator busy for hours.
func TestKeysThatTakeLongToVerify(t *testing.T) {
	const want = "Wait Malformed: the request cannot be read: its RSA key has more than 8192 bits"
	request := client().obj(t)
	request.Spec.Request = ofRSA(t, 16<<10)
	if diff := cmp.Diff(want, describe(joining.Decide(request, world))); diff != "" {
		t.Errorf("another decision (-want +got):\n%s", diff)
	}
}

// ofRSA returns a request with an RSA key of that many bits and without a valid signature.
func ofRSA(t *testing.T, bits uint) []byte {
	t.Helper()
	modulus := new(big.Int).Lsh(big.NewInt(1), bits-1)
	public, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(1)), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	type info struct {
		Version    int
		Subject    pkix.RDNSequence
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0,set"`
	}
	der, err := asn1.Marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{PublicKey: asn1.RawValue{FullBytes: public}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, bits/8), BitLength: int(bits)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func describe(d joining.Decision) string {
	if d.Reason == "" && d.Message == "" {
		return string(d.Verdict)
	}
	return string(d.Verdict) + " " + d.Reason + ": " + d.Message
}

// TestNodeThatARequestIsFor: the node is read from the request, because a bootstrap token does not name it.
func TestNodeThatARequestIsFor(t *testing.T) {
	for name, test := range map[string]struct {
		csr  *csr
		want string
	}{
		"by bootstrap token":     {client(), podName},
		"by the node":            {serving(), podName},
		"of a pod that is gone":  {client(commonName("system:node:gone")), "gone"},
		"of another user":        {client(commonName("alice")), ""},
		"that cannot be read":    {client(text(func([]byte) []byte { return []byte("x") })), ""},
		"that proves no key":     {client(block(func(b *pem.Block) { b.Bytes[len(b.Bytes)-1] ^= 1 })), ""},
		"of the nameless node":   {client(commonName("system:node:")), ""},
		"of a group and no node": {client(commonName("")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := joining.NodeOf(test.csr.obj(t)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestWorldIsMadeOfPodsThatLive: a pod that has ended has no kubelet.
func TestWorldIsMadeOfPodsThatLive(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, ips ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return p
	}
	got := joining.NewWorld([]corev1.Pod{
		pod("a", corev1.PodRunning, "10.0.0.1", "::ffff:10.0.0.2", "no address"), pod("b", corev1.PodPending), pod("c", corev1.PodSucceeded, "10.0.0.3"), pod("d", corev1.PodFailed),
	}, map[string]bool{"a": true}, joining.TokensAt(seed, noon), noon)
	want := map[string]joining.Pod{
		"a": {Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, Record: joining.Record{Joined: true}}, "b": {},
	}
	if diff := cmp.Diff(want, got.Pods, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("another world (-want +got):\n%s", diff)
	}
}

// FuzzDecide: any request is parsed without a panic, and what is approved is for a node pod.
func FuzzDecide(f *testing.F) {
	for _, test := range decisions {
		request := test.csr.obj(f)
		f.Add(request.Spec.Request, request.Spec.Username, request.Spec.SignerName == certificatesv1.KubeletServingSignerName)
	}
	f.Fuzz(func(t *testing.T, text []byte, username string, isServing bool) {
		request := client().object
		if isServing {
			request = serving().object
		}
		request.Spec.Request, request.Spec.Username = text, username
		d := joining.Decide(request, world)
		if len(d.Message) > 600 {
			t.Errorf("a message of %d bytes", len(d.Message))
		}
		if d.Verdict != joining.Approve {
			return
		}
		b, rest := pem.Decode(bytes.TrimSpace(text))
		parsed, err := x509.ParseCertificateRequest(b.Bytes)
		if err != nil || len(rest) > 0 || parsed.CheckSignature() != nil {
			t.Fatalf("approved: %v, %d bytes behind it", err, len(rest))
		}
		if _, ok := world.Pods[strings.TrimPrefix(parsed.Subject.CommonName, "system:node:")]; !ok || len(parsed.Subject.Names) != 2 {
			t.Fatalf("approved: %s", parsed.Subject)
		}
	})
}

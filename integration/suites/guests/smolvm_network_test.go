package guests_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// plug connects the second node with all others, or cuts its cable: what runs there keeps running.
func (s *smolStage) plug(in bool) error {
	state := "down"
	if in {
		state = "up"
	}
	return s.cluster.Run(exec.Command("ip", "link", "set", s.node.Name(), state)) // the port of the bridge has the node's name
}

func (s *smolStage) mustPlug(in bool) {
	s.t.Helper()
	if err := s.plug(in); err != nil {
		s.t.Fatal(err)
	}
}

// staleToken: a token reaches the controller before it reaches the node, whose kubelet is away.
func staleToken(s *smolStage) {
	s.undisturbed("the token has changed", func() {
		s.stopKubelet()
		s.kubectl("--namespace="+smolNamespace, "patch", "secret", "smolvm-runtime-auth", "--type=merge", `--patch={"stringData":{"token":"another-token-of-this-cluster"}}`)
		s.kubectl("--namespace="+smolNamespace, "rollout", "restart", "deployment/smolvm-controller")
		s.kubectl("--namespace="+smolNamespace, "rollout", "status", "deployment/smolvm-controller", "--timeout=240s")
		s.is("web", v1alpha1.PhaseUnknown, "Ready=False/Unauthorized", "Reconciled=False/Unauthorized", "GuestReady=Unknown/GuestReadinessUnavailable")
		s.shows("web", "Unauthorized", "401")
		s.startKubelet()
		s.is("web", v1alpha1.PhaseRunning, "Reconciled=True/Reconciled")
		s.serves()
	})
}

// anotherCertificate: the node's certificate is lost, and the next one counts as soon as the SmolVMNode shows it.
func anotherCertificate(s *smolStage) {
	shown := func() string {
		return s.kubectl("get", "smolvmnode", s.node.Name(), "--output=jsonpath={.status.endpoint.certificate}")
	}
	before := shown()
	s.undisturbed("the certificate is another one", func() {
		if out, err := s.node.Exec(s.t.Context(), "rm", "/var/lib/smolvm/runtime-tls.pem"); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		s.kubectl("--namespace="+smolNamespace, "delete", s.runtime(), "--timeout=180s")
		s.kubectl("--namespace="+smolNamespace, "rollout", "status", "daemonset/smolvm-runtime", "--timeout=240s")
		poll.Eventually(s.t, smolPatience, 500*time.Millisecond, func() error {
			if shown() == before {
				return errors.New("the SmolVMNode shows the former certificate")
			}
			return nil
		})
	})
}

// impostor: what answers at the address of the runtime has a certificate of the cluster's authority for the node, and not
// the one that the SmolVMNode shows. It learns nothing, not even the token.
func impostor(s *smolStage) {
	listener, err := s.cluster.Listen(s.t.Context(), "tcp", s.cluster.Address()+":0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer listener.Close()
	heard := &told{}
	s.pretend(listener, heard)
	rule := []string{"PREROUTING", "--table", "nat", "--protocol", "tcp", "--destination", s.node.Address(), "--dport", "9443", "--jump", "DNAT", "--to-destination", listener.Addr().String()}
	iptables := func(what string) error {
		// The controller's node is where its packets are turned aside.
		_, err := s.cluster.Node(0).Exec(s.t.Context(), "iptables", append([]string{what}, rule...)...)
		return err
	}
	s.undisturbed("an impostor has answered for the node", func() {
		if err := iptables("--insert"); err != nil {
			s.t.Fatal(err)
		}
		s.kubectl("--namespace="+smolNamespace, "delete", s.runtime(), "--wait=false") // which ends the connection
		s.is("web", v1alpha1.PhaseUnknown, "Ready=False/CertificateMismatch", "Reconciled=False/CertificateMismatch")
		s.shows("web", "CertificateMismatch", "nothing was sent to it")
		if err := iptables("--delete"); err != nil {
			s.t.Fatal(err)
		}
		s.kubectl("--namespace="+smolNamespace, "rollout", "status", "daemonset/smolvm-runtime", "--timeout=240s")
		s.is("web", v1alpha1.PhaseRunning, "Reconciled=True/Reconciled")
	})
	if heard.calls.Load() == 0 || heard.bytes.Load() > 0 {
		s.t.Errorf("the impostor was called %d times, and got %d bytes", heard.calls.Load(), heard.bytes.Load())
	}
}

// told is what an impostor got after handshakes.
type told struct{ calls, bytes atomic.Int64 }

// pretend has an impostor answer on a listener.
func (s *smolStage) pretend(listener net.Listener, heard *told) {
	s.t.Helper()
	certificate, key, err := s.cluster.ControlPlane().ServingCertificate(s.node.Name(), net.ParseIP(s.node.Address()))
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for {
			connection, err := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}).Accept()
			if err != nil {
				return
			}
			heard.calls.Add(1)
			go func() {
				defer connection.Close()
				_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
				n, _ := connection.Read(make([]byte, 4096)) // it fails, because the controller ends the handshake
				heard.bytes.Add(int64(n))
			}()
		}
	}()
}

// unreachable: a node whose cable is cut keeps its machines, also one that is deleted, which goes once the node is back.
func unreachable(s *smolStage) {
	s.undisturbed("the node was cut off", func() {
		s.mustPlug(false)
		s.isSilent("web")
		s.delete("second")
		s.is("second", v1alpha1.PhaseDeleting, "DeletionBlocked=True/RuntimeUnavailable", "Reconciled=False/DeletionBlocked")
		s.shows("second", "DeletionBlocked", "local VM state may still exist")
		s.keepsAll()
		s.mustPlug(true)
		s.gone("second")
		s.listens(webPort, true)
	})
	if !s.diary.has("second", "DeletionBlocked=True/RuntimeUnavailable", "DeletionBlocked=False/Deleting") {
		s.t.Errorf("second has said %v", s.diary.of("second"))
	}
	s.keepsOne(strangerPort)
}

// keepsAll: nothing is made on the other node, and nothing ends on this one, which has two machines.
func (s *smolStage) keepsAll() {
	s.t.Helper()
	if left := s.machines(s.cluster.Node(0)); len(left) > 0 {
		s.t.Errorf("the other node has %v", left)
	}
	if here, all := s.machines(s.node), s.processes("qemu-system-x86_64"); len(here) != 2 || len(all) != 2 {
		s.t.Errorf("the node has %v, and %d of them run; want two", here, len(all))
	}
}

// keepsOne: of the other machine of the node, neither its port nor its disks are left.
func (s *smolStage) keepsOne(port int) {
	s.t.Helper()
	s.listens(port, false)
	if left := s.machines(s.node); len(left) != 1 {
		s.t.Errorf("the node has %v", left)
	}
}

// givenUp: a SmolVM that is given up goes while its node cannot be reached, and not before. Its machine stays on the node,
// and is deleted there by hand, as is documented.
func givenUp(s *smolStage) {
	s.apply("forced", forcedPort, nil)
	s.runs("forced")
	machine := s.get("forced").Status.MachineName
	s.annotate("forced", v1alpha1.AnnotationForceDelete)
	s.setRunning("forced", false) // which is done, and so the annotation was seen
	s.is("forced", v1alpha1.PhaseStopped, "Reconciled=True/Reconciled")
	s.setRunning("forced", true)
	s.runs("forced")
	s.undisturbed("a machine was given up", func() {
		s.mustPlug(false)
		s.isSilent("forced")
		s.delete("forced")
		s.gone("forced")
		if events := s.kubectl("--namespace=team", "get", "events", "--field-selector=reason=ForceDeleteLocalState", "--output=name"); !strings.Contains(events, "event") {
			s.t.Errorf("no event says that what is on the node was given up: %q", events)
		}
		s.keepsAll()
		s.mustPlug(true)
		s.runs("web")
	})
	s.listens(forcedPort, true)
	s.smolvm("machine", "delete", machine)
	s.keepsOne(forcedPort)
}

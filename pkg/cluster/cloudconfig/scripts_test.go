package cloudconfig

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
)

// run runs a script as its unit would, with programs in bin before those of the machine.
func run(t *testing.T, script, bin string, env []string, args ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(asset(script)), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/bin/sh", append([]string{path}, args...)...)
	command.Env = append(env, "PATH="+bin+":/usr/bin:/bin")
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestTheNodesAddressIsThatOfItsDefaultRoute(t *testing.T) {
	const v4 = "192.0.2.1 via 10.4.0.1 dev eth0 src 10.4.0.9 uid 0 \\    cache"
	for name, test := range map[string]struct {
		families, v4, v6, want string
	}{
		"IPv4":                            {"4 6", v4, "", "NODE_IP=10.4.0.9\nNODE_IP_LABEL=10.4.0.9\n"},
		"IPv4 of two":                     {"4 6", v4, v6("fd00::9"), "NODE_IP=10.4.0.9\nNODE_IP_LABEL=10.4.0.9\n"},
		"IPv6 of two":                     {"6 4", v4, v6("fd00::9"), "NODE_IP=fd00::9\nNODE_IP_LABEL=fd00--9\n"},
		"IPv6 alone":                      {"4 6", "", v6("fd00:1:2::9"), "NODE_IP=fd00:1:2::9\nNODE_IP_LABEL=fd00-1-2--9\n"},
		"an IPv6 address that ends in ::": {"6 4", "", v6("fd00::"), "NODE_IP=fd00::\nNODE_IP_LABEL=fd00--0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "bin/ip", fmt.Sprintf("#!/bin/sh\ncase $2 in -4) echo '%s' ;; -6) echo '%s' ;; esac\n", test.v4, test.v6), 0o755)
			env := []string{"RUNTIME_DIRECTORY=" + dir, "CNI_DIRECTORY=" + filepath.Join(dir, "cni"), "FAMILIES=" + test.families}
			// A second run changes nothing: the guest may reboot, the unit may be restarted.
			for range 2 {
				if output, err := run(t, "node-environment.sh", filepath.Join(dir, "bin"), env); err != nil {
					t.Fatalf("%s: %s", err, output)
				}
				got, err := os.ReadFile(filepath.Join(dir, "node.env"))
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != test.want {
					t.Errorf("node.env is %q, want %q", got, test.want)
				}
				if _, err := os.Stat(filepath.Join(dir, "resolv.conf")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func v6(address string) string {
	return "2001:db8::1 from :: via fe80::1 dev eth0 proto ra src " + address + " metric 1024 pref medium"
}

func TestADownloadIsUsedWhenItHasThePublishedChecksum(t *testing.T) {
	const content = "#!/bin/sh\necho kubelet\n"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	for name, test := range map[string]struct {
		sums []string // published, one for each try
		want bool
	}{
		"it has":                    {[]string{sum}, true},
		"it has, with a file name":  {[]string{sum + "  kubelet\n"}, true},
		"it has at the second try":  {[]string{strings.Repeat("0", 64), sum}, true},
		"it never has":              {[]string{strings.Repeat("0", 64)}, false},
		"there is no checksum file": {[]string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.HasPrefix(r.URL.Path, "/k8s/v1.35.4/bin/linux/"):
					http.NotFound(w, r)
				case strings.HasSuffix(r.URL.Path, "/kubelet"):
					fmt.Fprint(w, content)
				case strings.HasSuffix(r.URL.Path, "/kubelet.sha256"):
					published := test.sums[min(tries, len(test.sums)-1)]
					tries++
					if published == "" {
						http.NotFound(w, r)
					}
					fmt.Fprint(w, published)
				}
			}))
			defer server.Close()
			dir := t.TempDir()
			// The test need not wait for the script's pauses.
			write(t, dir, "bin/sleep", "#!/bin/sh\n", 0o755)
			env := []string{"DIRECTORY=" + filepath.Join(dir, "opt"), "BASE_URL=" + server.URL + "/k8s", "VERSION=v1.35.4"}
			output, err := run(t, "download.sh", filepath.Join(dir, "bin"), env, "kubelet")
			if (err == nil) != test.want {
				t.Errorf("exit %v, want success %t: %s", err, test.want, output)
			}
			got, _ := os.ReadFile(filepath.Join(dir, "opt", "kubelet"))
			if (string(got) == content) != test.want {
				t.Errorf("got %q", got)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "opt", ".download*")); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestMemberBeginsWithItsDataOrWithATicket: a member that has run never starts under its old ID with an empty disk.
func TestMemberBeginsWithItsDataOrWithATicket(t *testing.T) {
	for name, test := range map[string]struct {
		// data says that there is some, and madeWith with which token it was created; empty if it has no mark.
		data     bool
		madeWith string
		// cluster is the mark of the data's cluster; empty if it has none.
		cluster string
		token   string
		begins  bool
		past    bool
		want    string
	}{
		"a founder": {token: "founding", begins: true, want: "founding"},
		"a founder that began and is not known to":                       {data: true, madeWith: "founding", token: "founding", begins: true, want: "founding"},
		"a founder of a time without tokens":                             {data: true, token: "founding", begins: true},
		"a founder on the host of a deleted cluster":                     {data: true, madeWith: "foundingab", token: "foundingcd", begins: true, past: true, want: "foundingcd"},
		"one that has run":                                               {data: true, madeWith: "founding", begins: true, want: "founding"},
		"one that has run before there were tokens":                      {data: true, begins: true},
		"one that has run, and its data is gone":                         {madeWith: "founding", want: "founding"},
		"one that has run, and its disk is new":                          {},
		"one that joins":                                                 {token: "8e9e05c52164694d", begins: true, want: "8e9e05c52164694d"},
		"one that joins, and has begun to":                               {data: true, madeWith: "8e9e", token: "8e9e", begins: true, want: "8e9e"},
		"one that founded, was taken out, and joins":                     {data: true, madeWith: "founding", token: "8e9e", begins: true, past: true, want: "8e9e"},
		"one that joined, was taken out, and joins":                      {data: true, madeWith: "8e9e", token: "77aa", begins: true, past: true, want: "77aa"},
		"one without a note, was taken out and joins":                    {data: true, token: "77aa", begins: true, past: true, want: "77aa"},
		"one that joined, and its cluster is recreated with its key":     {data: true, madeWith: "8e9e", cluster: "foundingcd", token: "foundingcd", begins: true, want: "8e9e"},
		"one of a snapshot, and its cluster is recreated with its key":   {data: true, madeWith: "restoredab", cluster: "foundingcd", token: "foundingcd", begins: true, want: "restoredab"},
		"one that joined, and its cluster is recreated with another key": {data: true, madeWith: "8e9e", cluster: "foundingab", token: "foundingcd", begins: true, past: true, want: "foundingcd"},
		"one that joined, was taken out, and joins the same cluster":     {data: true, madeWith: "8e9e", cluster: "foundingcd", token: "77aa", begins: true, past: true, want: "77aa"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			write(t, dir, "etcd.yaml", "pod", 0o600)
			write(t, dir, "manifests/other.yaml", "other", 0o600)
			if test.data {
				write(t, dir, "data/member/wal/0.wal", "log", 0o600)
			}
			if test.madeWith != "" {
				write(t, dir, "data.ticket", test.madeWith+"\n", 0o600)
			}
			if test.cluster != "" {
				write(t, dir, "data.cluster", test.cluster+"\n", 0o600)
			}
			env := []string{
				"DATA=" + data, "TICKET=" + test.token, "CLUSTER=foundingcd", "MANIFEST=" + filepath.Join(dir, "etcd.yaml"), "MANIFESTS=" + filepath.Join(dir, "manifests"),
			}
			output, err := run(t, "etcd.sh", "", env)
			if (err == nil) != test.begins {
				t.Fatalf("it ended with %v and said %q, want that it begins: %t", err, output, test.begins)
			}
			if !test.begins && !strings.Contains(output, "its data is gone") {
				t.Errorf("it said %q", output)
			}
			for path, want := range map[string]bool{
				"manifests/etcd.yaml": test.begins, "data.past/data/member/wal/0.wal": test.past && test.cluster != "foundingab", "data.of-foundingab/data/member/wal/0.wal": test.past && test.cluster == "foundingab", "data/member/wal/0.wal": test.data && !test.past,
			} {
				if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
					t.Errorf("%s: %v, want it there: %t", path, err, want)
				}
			}
			if info, err := os.Stat(data); test.begins && err == nil && info.Mode().Perm() != 0o700 {
				t.Errorf("others may read the data: %04o", info.Mode().Perm())
			}
			note, _ := os.ReadFile(filepath.Join(dir, "data.ticket"))
			if got := strings.TrimSpace(string(note)); got != test.want {
				t.Errorf("the data was made with %q, want %q", got, test.want)
			}
			if mark, _ := os.ReadFile(filepath.Join(dir, "data.cluster")); test.begins && string(mark) != "foundingcd\n" {
				t.Errorf("the data is marked as that of %q", mark)
			}
		})
	}
}

// TestDataThatAnotherClusterHasPutAside: a cluster is created again without its key, by mistake, and then with it. Its
// data is restored, even if the script is interrupted at any point and restarted.
func TestDataThatAnotherClusterHasPutAside(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	write(t, dir, "etcd.yaml", "pod", 0o600)
	write(t, dir, "manifests/other.yaml", "other", 0o600)
	begin := func(cluster, token, bin string) (string, error) {
		return run(t, "etcd.sh", bin, []string{
			"DATA=" + data, "TICKET=" + token, "CLUSTER=" + cluster, "MANIFEST=" + filepath.Join(dir, "etcd.yaml"), "MANIFESTS=" + filepath.Join(dir, "manifests"),
			"COUNT=" + filepath.Join(dir, "count"),
		})
	}
	must := func(output string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %s", err, output)
		}
	}
	must(begin("foundingab", "8e9e", "")) // it joined
	write(t, dir, "data/member/wal/0.wal", "precious", 0o600)
	must(begin("foundingcd", "foundingcd", ""))
	write(t, dir, "data/member/wal/0.wal", "worthless", 0o600)
	// Each program that changes something fails once, at its k-th call.
	for k := 1; ; k++ {
		write(t, dir, "count", "0", 0o600)
		for _, program := range []string{"mv", "rm", "sync", "mkdir"} {
			write(t, dir, "bin/"+program, fmt.Sprintf("#!/bin/sh\nn=$(($(cat $COUNT) + 1))\necho $n >$COUNT\n[ $n -ne %d ] || kill -9 $PPID\nexec /bin/%s \"$@\"\n", k, program), 0o755)
		}
		_, err := begin("foundingab", "foundingab", filepath.Join(dir, "bin"))
		must(begin("foundingab", "foundingab", ""))
		for path, want := range map[string]string{"data/member/wal/0.wal": "precious", "data.of-foundingcd/data/member/wal/0.wal": "worthless", "data.ticket": "8e9e\n", "data.cluster": "foundingab\n"} {
			if got, _ := os.ReadFile(filepath.Join(dir, path)); string(got) != want {
				t.Fatalf("ended at call %d: %s has %q, want %q", k, path, got, want)
			}
		}
		if err == nil {
			t.Logf("%d points at which the script ends", k-1)
			return
		}
		must(begin("foundingcd", "foundingcd", "")) // the same again
	}
}

// TestKubeletThatDoesNotJoinSaysWhyOnTheConsole: once for each error, until it has joined.
func TestKubeletThatDoesNotJoinSaysWhyOnTheConsole(t *testing.T) {
	const (
		noRoute = `E1122 05:41:24.123456     812 bootstrap.go:1] "Unhandled" err="dial tcp 10.4.0.9:443: connect: no route to host"`
		clock   = `F1122 05:42:24.123456     812 run.go:72] "command failed" err="x509: certificate has expired or is not yet valid"`
		expired = `E1122 05:42:24.523456     812 certificate_manager.go:562] "Failed while requesting a signed certificate from the control plane" err="cannot create certificate signing request: Unauthorized"`
		beside  = `I1122 05:42:25.123456     812 server.go:1] "Starting"`
	)
	for name, test := range map[string]struct {
		journals []string
		want     []string
	}{
		"no complaint":              {[]string{"", beside}, nil},
		"one complaint, many times": {[]string{noRoute, noRoute + "\n" + beside}, []string{`"Unhandled" err="dial tcp 10.4.0.9:443: connect: no route to host"`}},
		"its token has expired": {
			[]string{beside + "\n" + expired},
			[]string{`"Failed while requesting a signed certificate from the control plane" err="cannot create certificate signing request: Unauthorized"`},
		},
		"one after the other": {
			[]string{noRoute, noRoute + "\n" + clock},
			[]string{`"Unhandled" err="dial tcp 10.4.0.9:443: connect: no route to host"`, `"command failed" err="x509: certificate has expired or is not yet valid"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i, text := range append(test.journals, "") {
				write(t, dir, fmt.Sprintf("journal%d", i), text+"\n", 0o600)
			}
			write(t, dir, "bin/journalctl", "#!/bin/sh\ncat $JOURNAL/journal$(cat $JOURNAL/turn)\n", 0o755)
			write(t, dir, "bin/sleep", fmt.Sprintf("#!/bin/sh\nturn=$(($(cat $JOURNAL/turn) + 1))\necho $turn >$JOURNAL/turn\n[ $turn -lt %d ] || touch $KUBECONFIG\n", len(test.journals)), 0o755)
			write(t, dir, "bin/date", "#!/bin/sh\necho 2020-01-01 00:00:00\n", 0o755)
			write(t, dir, "turn", "0\n", 0o600)
			output, err := run(t, "joining.sh", filepath.Join(dir, "bin"), []string{"JOURNAL=" + dir, "KUBECONFIG=" + filepath.Join(dir, "kubeconfig"), "EVERY=1"})
			if err != nil {
				t.Fatalf("%s: %s", err, output)
			}
			var want strings.Builder
			for _, words := range test.want {
				want.WriteString("the kubelet has not joined; its clock says 2020-01-01 00:00:00: " + words + "\n")
			}
			if output != want.String() {
				t.Errorf("it said %q, want %q", output, want.String())
			}
		})
	}
}

// TestControllersBeginWhenTheAPIServerIsReady according to a server that speaks TLS. On a machine without OpenSSL
// kubectl queries it.
func TestControllersBeginWhenTheAPIServerIsReady(t *testing.T) {
	const (
		inVain  = "the API server is not ready after 4 tries; the controllers begin\n"
		kubectl = `#!/bin/sh
[ $1 = --kubeconfig=/k ] && printf 'GET /readyz HTTP/1.0\r\n\r\n' | $OPENSSL s_client -quiet -connect "127.0.0.1:$PORT" 2>/dev/null | grep -q '^HTTP/1.0 200'
`
	)
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal(err)
	}
	others, err := pkitest.Complete(nil, pki.Requests(testCluster(), "cluster.local"), pki.Embedded{Clock: clock.RealClock{}}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		openssl  bool
		stranger bool // its certificate is not from the trusted CA
		readyAt  int
		want     string
		asked    int
	}{
		"ready at the third try":               {openssl: true, readyAt: 3, asked: 3},
		"never ready":                          {openssl: true, readyAt: 99, want: inVain, asked: 4},
		"another server is ready":              {openssl: true, stranger: true, readyAt: 1, want: inVain},
		"ready at the third try, says kubectl": {readyAt: 3, asked: 3},
		"never ready, says kubectl":            {readyAt: 99, want: inVain, asked: 4},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked < test.readyAt || r.URL.Path != "/readyz" {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			dir := t.TempDir()
			trusted := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			if test.stranger {
				trusted = string(others.Set[pki.API].CA)
			}
			write(t, dir, "ca.crt", trusted, 0o644)
			write(t, dir, "bin/sleep", "#!/bin/sh\n", 0o755)
			write(t, dir, "bin/kubectl", kubectl, 0o755)
			write(t, dir, "waiting/a.yaml", "a", 0o600)
			write(t, dir, "waiting/b.yaml", "b", 0o600)
			write(t, dir, "manifests/etcd.yaml", "etcd", 0o600)
			programs := []string{"bash", "cp", "grep", "head", "mv", "sh", "timeout"}
			if test.openssl {
				programs = append(programs, "openssl")
			}
			for _, program := range programs {
				path, err := exec.LookPath(program)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(dir, "bin", program)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, dir, "controllers", asset("controllers.sh"), 0o755)
			_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
			script := exec.Command("/bin/sh", filepath.Join(dir, "controllers"))
			script.Env = []string{
				"PATH=" + filepath.Join(dir, "bin"), "OPENSSL=" + openssl, "PORT=" + port, "CA=" + filepath.Join(dir, "ca.crt"),
				"KUBECONFIG=/k", "PAUSE=1", "TRIES=4", "WAITING=" + filepath.Join(dir, "waiting"), "MANIFESTS=" + filepath.Join(dir, "manifests"),
			}
			if output, err := script.CombinedOutput(); err != nil || string(output) != test.want {
				t.Errorf("it said %q and ended with %v, want %q", output, err, test.want)
			}
			if asked != test.asked {
				t.Errorf("the server was asked %d times, want %d", asked, test.asked)
			}
			found, err := filepath.Glob(filepath.Join(dir, "manifests", "*"))
			if err != nil || len(found) != 3 {
				t.Errorf("the manifests are %q, want those that waited beside etcd's", found)
			}
			if info, err := os.Stat(filepath.Join(dir, "manifests", "a.yaml")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("a manifest that waited has another mode: %v, %v", info, err)
			}
		})
	}
}

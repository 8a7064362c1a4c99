package smolvm

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// command runs a command line and returns what it printed.
func command(t *testing.T, arguments ...string) (out, errs string, err error) {
	t.Helper()
	c := New()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(arguments)
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// recorder is a server that keeps what it is asked, and gives one answer.
func recorder(t *testing.T, status int, answer any) (host string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		*asked = append(*asked, r.Method+" "+r.URL.Path+" "+body.String())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestCommandsAskForWhatTheyAreTold(t *testing.T) {
	machine := api.Machine{Name: "web", State: api.StateRunning, CPUs: 2, MemoryMB: 512, Image: "nginx", Ports: []api.Port{{Host: 8080, Guest: 80}}, StorageGB: 40, OverlayGB: 10}
	for text, c := range map[string]struct {
		arguments []string
		answer    any
		asked     string
		printed   string
	}{
		"create": {
			[]string{"machine", "create", "web", "--image=nginx", "--port=8080:80,9090:90", "--network", "--allow=192.0.2.0/24", "--env=A=b=c", "--cpus=2", "--", "-g", "daemon off;"}, machine,
			`POST /api/v1/machines {"name":"web","cpus":2,"memoryMb":512,"storageGb":20,"overlayGb":10,"image":"nginx","cmd":["-g","daemon off;"],"env":[{"name":"A","value":"b=c"}],` +
				`"network":true,"allowedCidrs":["192.0.2.0/24"],"ports":[{"host":8080,"guest":80},{"host":9090,"guest":90}],"restart":{"policy":"never"}}`,
			"machine web is running\n",
		},
		"create, allowed nothing": {
			[]string{"machine", "create", "web", "--image=nginx", "--allow="}, machine,
			`"allowedCidrs":[]`, "machine web is running\n",
		},
		"start":  {[]string{"machine", "start", "web"}, machine, `POST /api/v1/machines/web/start`, "machine web is running\n"},
		"stop":   {[]string{"machine", "stop", "web"}, machine, `POST /api/v1/machines/web/stop`, "machine web is running\n"},
		"resize": {[]string{"machine", "resize", "web", "--storage=40"}, machine, `POST /api/v1/machines/web/resize {"storageGb":40}`, "machine web has 40 GiB of storage and 10 GiB of overlay\n"},
		"delete": {[]string{"machine", "rm", "web"}, api.Deleted{Deleted: "web"}, `DELETE /api/v1/machines/web`, "machine web is deleted\n"},
		"ls":     {[]string{"machine", "ls"}, api.Machines{Machines: []api.Machine{machine}}, `GET /api/v1/machines`, "web    running   2      512Mi    8080:80   nginx"},
		"status": {[]string{"machine", "status", "web"}, machine, `GET /api/v1/machines/web`, `"state": "running"`},
		"drain":  {[]string{"drain"}, api.Status{Status: "drained"}, `POST /drain`, ""},
	} {
		t.Run(text, func(t *testing.T) {
			host, asked := recorder(t, http.StatusOK, c.answer)
			out, _, err := command(t, append([]string{c.arguments[0], "--host=" + host}, c.arguments[1:]...)...)
			if err != nil || !strings.Contains(out, c.printed) {
				t.Errorf("%v, printed %q, want %q", err, out, c.printed)
			}
			if all := strings.Join(*asked, "\n"); !strings.Contains(all, c.asked) {
				t.Errorf("asked\n%s, want\n%s", all, c.asked)
			}
		})
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	missing := "unix://" + filepath.Join(t.TempDir(), "smolvm.sock")
	for text, c := range map[string]struct {
		arguments []string
		code      int
		want      string
	}{
		"an unknown flag":      {[]string{"machine", "ls", "--nonsense"}, 2, "see smolvm machine ls --help"},
		"no server":            {[]string{"machine", "ls", "--host=" + missing}, 1, "Start one with smolvm serve start"},
		"an address":           {[]string{"machine", "ls", "--host=ftp://a"}, 2, "unix://"},
		"a port":               {[]string{"machine", "create", "a", "--image=b", "--port=80"}, 2, "--port=80 is not HOST:GUEST"},
		"a large port":         {[]string{"machine", "create", "a", "--image=b", "--port=1:65536"}, 2, "two numbers from 1 to 65535"},
		"a variable":           {[]string{"machine", "create", "a", "--image=b", "--env=A"}, 2, "--env=A is not NAME=VALUE"},
		"a size of input":      {[]string{"machine", "exec", "a", "--stdin-bytes=-1", "--", "b"}, 2, "--stdin-bytes is -1, and has to be 0 to 1048576"},
		"less input than said": {[]string{"machine", "exec", "a", "--stdin-bytes=1", "--", "b"}, 2, "reading 1 bytes of standard input"},
		"two files of a host":  {[]string{"machine", "cp", "a", "b"}, 2, "NAME:/PATH"},
		"a server's flags": {
			[]string{"serve", "start", "--state=" + t.TempDir(), "--kernel=/none", "--initrd=/none", "--acceleration=fast", "--egress-floor=low", "--egress-allow=10.1.2.3/8", "--publish-address=here", "--publish-ports=0-80", "--resolver=name"}, 2,
			"--acceleration|--egress-floor|--egress-allow|--publish-address|--publish-ports|--resolver|--kernel|--initrd",
		},
	} {
		t.Run(text, func(t *testing.T) {
			_, _, err := command(t, c.arguments...)
			var exit *ExitError
			code := 1
			if errors.As(err, &exit) {
				code = exit.Code
			}
			if err == nil || code != c.code {
				t.Fatalf("error %v with code %d, want %d", err, code, c.code)
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
		})
	}
}

func TestTheExitCodeIsThatOfTheCommand(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("event: stdout\ndata: hello\n\nevent: exit\ndata: {\"exitCode\":42}\n\n"))
	}))
	t.Cleanup(server.Close)
	out, _, err := command(t, "machine", "exec", "--host="+server.URL, "web", "--", "echo", "hello")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 42 || exit.Err != nil || out != "hello" {
		t.Errorf("%v, printed %q", err, out)
	}
}

func TestNameServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("# nameserver 192.0.2.9\nnameserver 192.0.2.1\nnameserver\nnameserver fe80::1%eth0\n nameserver 2001:db8::1 x\nsearch a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := strings.Join(resolversOf(path), " "); found != "192.0.2.1 fe80::1%eth0 2001:db8::1" {
		t.Errorf("found %q", found)
	}
	if found := resolversOf(filepath.Join(t.TempDir(), "none")); found != nil {
		t.Errorf("found %v", found)
	}
}

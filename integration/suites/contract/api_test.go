package contract_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	get  = http.MethodGet
	post = http.MethodPost
)

var rowsOfServer = map[string]row{
	"the health is reported": {method: get, path: "/health", status: 200,
		check: has(map[string]any{"status": "ok", "version": nil, "machines": nil, "uptime_seconds": nil})},
	"the server is ready":      {method: get, path: "/readyz", status: 200},
	"the capacity is reported": {method: get, path: "/capacity", status: 200, check: has(map[string]any{"allocated_cpus": nil, "allocated_memory_mb": nil, "used_cpus": nil, "used_memory_mb": nil, "used_disk_gb": nil, "boot_id": nil})},
	"metrics count requests":   {method: get, path: "/metrics", status: 200, says: []string{"smolvm_api_requests_total"}},
	"the API is described":     {method: get, path: "/api-docs/openapi.json", status: 200, says: []string{"openapi", `"/api/v1/machines"`}},
	"machines can be drained":  {method: post, path: "/drain", status: 200},

	"an unknown path is 404 with nothing":              {method: get, path: "/nope", status: 404, empty: true},
	"an unknown path of the API is 404 with nothing":   {method: get, path: "/api/v1/nope", status: 404, empty: true},
	"a machine without a name is 404 with nothing":     {method: get, path: "/api/v1/machines/", status: 404, empty: true},
	"an unknown verb of a machine is 404 with nothing": {method: post, path: inMachine + "/nope", status: 404, empty: true},
	"forks are unknown":                                row{method: post, path: inMachine + "/fork", status: 404, empty: true}.decided("smolvm has forks", ours...),
	"pools are unknown":                                row{method: get, path: "/api/v1/pools", status: 404, empty: true}.decided("smolvm has pools", ours...),
	"another method of the list is 405":                {method: http.MethodDelete, path: inMachines, status: 405, empty: true},
	"another method of a machine is 405":               {method: http.MethodPut, path: inMachine, status: 405, empty: true},
	"another method of stop is 405":                    {method: get, path: inMachine + "/stop", status: 405, empty: true},
	"another method of health is 405":                  {method: post, path: "/health", status: 405, empty: true},
	"a body of more than 2 MiB is 413":                 create(`,"workdir":"`+strings.Repeat("x", 3<<20)+`"`, 413, ""),
	"the list has machines":                            {method: get, path: inMachines + "?x={m}", status: 200, says: []string{`"machines":[`}},
	"the head of the list is asked for":                {method: http.MethodHead, path: inMachines, status: 200},
}

var rowsOfCreation = map[string]row{
	"a machine is created and not started": create(`,"cpus":2,"memoryMb":128,"network":true,"allowedCidrs":["192.0.2.0/24"],"storageGb":3,"overlayGb":4,"ports":[{"host":18080,"guest":80}]`, 200, "").
		checked(has(map[string]any{
			"state": "created", "cpus": 2, "memoryMb": 128, "network": true, "storageGb": 3, "overlayGb": 4, "mounts": []any{},
			"ports": []any{map[string]any{"host": 18080, "guest": 80}}, "createdAt": nil, "gpu": false, "cuda": false, "forkable": false, "forkpointHeld": false,
		})),
	"a machine that is not started has no process": create("", 200, "").checked(lacks("pid")),
	"sizes of disks are reported if not asked for": create("", 200, "").checked(has(map[string]any{"storageGb": 20, "overlayGb": 10})),
	"one CPU and 512 MiB are the default":          create("", 200, "").checked(has(map[string]any{"cpus": 1, "memoryMb": 512})).decided("smolvm's default is 4 CPUs and 8 GiB since 0.8.2", ours...),
	"a bare address is a CIDR":                     create(`,"network":true,"allowedCidrs":["192.0.2.1","2001:db8::1"]`, 200, "").checked(has(map[string]any{"allowedCidrs": []string{"192.0.2.1/32", "2001:db8::1/128"}})),
	"no destination is not all destinations":       create(`,"network":true,"allowedCidrs":[]`, 200, "").checked(has(map[string]any{"allowedCidrs": []string{}})),
	"unknown fields are ignored":                   create(`,"color":"red","Image":5`, 200, ""),
	"a type of JSON with a character set is JSON":  create("", 200, "").of("application/json; charset=utf-8"),

	"a name is generated":                 {method: post, path: inMachines, body: `{"image":"` + image + `"}`, status: 200, says: []string{`"name":"vm-`}, check: remove},
	"a null name is none":                 {method: post, path: inMachines, body: `{"name":null,"image":"` + image + `"}`, status: 200, says: []string{`"name":"vm-`}, check: remove},
	"an empty name is refused":            named("", 400, api.CodeBadRequest),
	"a name of one letter is one":         named("x", 200, ""),
	"a name of 128 characters is one":     named(strings.Repeat("x", 128), 200, ""),
	"a name of 129 characters is none":    named(strings.Repeat("x", 129), 400, api.CodeBadRequest),
	"a name has _ and -":                  named("a_b-c", 200, ""),
	"a name does not begin with -":        named("-a", 400, api.CodeBadRequest),
	"a name does not end with -":          named("a-", 400, api.CodeBadRequest),
	"a name has no --":                    named("a--b", 400, api.CodeBadRequest),
	"a name has no dot":                   named("a.b", 400, api.CodeBadRequest),
	"a name has no slash":                 named("../a", 400, api.CodeBadRequest),
	"a name has no space":                 named("a b", 400, api.CodeBadRequest),
	"a name has ASCII only":               named("ä", 400, api.CodeBadRequest),
	"a name that is taken is a conflict":  {method: post, path: inMachines, body: `{"name":"{m}","image":"` + image + `","cpus":2}`, status: 409, code: api.CodeConflict},
	"the same request again is answered":  row{method: post, path: inMachines, body: `{"name":"{m}","image":"` + image + `","storageGb":2,"overlayGb":2}`, status: 200}.decided("smolvm refuses the second request, so a lost answer cannot be asked for again", ours...),
	"smolvm refuses the same request too": row{method: post, path: inMachines, body: `{"name":"{m}","image":"` + image + `","storageGb":2,"overlayGb":2}`, status: 409, code: api.CodeConflict}.decided("the targets of this project answer it", kindSmolvm),

	"JSON without its type is 415":           create("", 415, "").of("none"),
	"another type is 415":                    create("", 415, "").of("text/plain"),
	"malformed JSON is 400":                  {method: post, path: inMachines, body: `{"name":`, status: 400},
	"nothing is 400":                         {method: post, path: inMachines, contentType: typeJSON, status: 400},
	"a list is 422":                          {method: post, path: inMachines, body: `[1]`, status: 422},
	"a string for a number is 422":           create(`,"cpus":"2"`, 422, ""),
	"a fraction of a CPU is 422":             create(`,"cpus":1.5`, 422, ""),
	"256 CPUs are 422":                       create(`,"cpus":256`, 422, ""),
	"less than no CPU is 422":                create(`,"cpus":-1`, 422, ""),
	"memory beyond 32 bits is 422":           create(`,"memoryMb":4294967296`, 422, ""),
	"port 65536 is 422":                      create(`,"ports":[{"host":65536,"guest":80}]`, 422, ""),
	"a port without the guest's is 422":      create(`,"ports":[{"host":80}]`, 422, ""),
	"a variable without a value is 422":      create(`,"env":[{"name":"A"}]`, 422, ""),
	"null for what is true or false is 422":  create(`,"network":null`, 422, ""),
	"no CPU is refused":                      create(`,"cpus":0`, 400, api.CodeBadRequest),
	"63 MiB are refused":                     create(`,"memoryMb":63`, 400, api.CodeBadRequest),
	"a disk of nothing is refused":           create(`,"storageGb":0`, 400, api.CodeBadRequest),
	"an overlay of nothing is refused":       create(`,"overlayGb":0`, 400, api.CodeBadRequest),
	"port 0 is refused":                      create(`,"ports":[{"host":0,"guest":80}]`, 400, api.CodeBadRequest),
	"port 0 of the guest is refused":         create(`,"ports":[{"host":80,"guest":0}]`, 400, api.CodeBadRequest),
	"a port published twice is refused":      create(`,"ports":[{"host":18081,"guest":80},{"host":18081,"guest":81}]`, 400, api.CodeBadRequest),
	"what is no CIDR is refused":             create(`,"network":true,"allowedCidrs":["nowhere"]`, 400, api.CodeBadRequest),
	"bits beyond a CIDR's length":            create(`,"network":true,"allowedCidrs":["192.0.2.1/24"]`, 400, api.CodeBadRequest).decided("smolvm may take them", ours...),
	"a variable with an odd name is refused": create(`,"env":[{"name":"1A","value":""}]`, 400, api.CodeBadRequest),
	"secrets are refused":                    create(`,"secrets":{"A":{"fromEnv":"B"}}`, 400, api.CodeBadRequest).decided("smolvm's type of a secret is not in the specification", ours...),
	"image and from are refused":             create(`,"from":"/nowhere.smolmachine"`, 400, api.CodeBadRequest),
	"neither image nor from is refused":      row{method: post, path: inMachines, body: `{"name":"{n}"}`, status: 400, code: api.CodeBadRequest}.decided("smolvm boots a machine without an image", ours...),
	"from a file that is not there":          {method: post, path: inMachines, body: `{"name":"{n}","from":"/nowhere/x.smolmachine"}`, status: 400, code: api.CodeBadRequest},
	"ports by tsi are refused":               create(`,"networkBackend":"tsi","ports":[{"host":18082,"guest":80}]`, 400, api.CodeBadRequest),
	"mounts are refused":                     create(`,"mounts":[{"source":"/srv","target":"/srv"}]`, 400, api.CodeUnsupported).decided("smolvm has mounts", ours...),
	"a GPU is refused":                       create(`,"gpu":true`, 400, api.CodeUnsupported).decided("smolvm has GPUs", ours...),
	"hosts that are allowed are refused":     create(`,"network":true,"allowedHosts":["example.com"]`, 400, api.CodeUnsupported).decided("smolvm has them, and they must not be ignored", ours...),
	"a policy of restarts that is unknown":   create(`,"restart":{"policy":"sometimes"}`, 400, api.CodeBadRequest).decided("smolvm's answer is not in the specification", ours...),
}

var rowsOfMachines = map[string]row{
	"a machine is shown":                  {method: get, path: inMachine, status: 200, check: has(map[string]any{"state": nil, "cpus": nil, "memoryMb": nil, "mounts": []any{}, "ports": []any{}, "network": false, "storageGb": 2, "overlayGb": 2})},
	"an unknown machine is 404":           row{method: get, path: inNone, status: 404, code: api.CodeNotFound}.saying("machine 'nope' not found"),
	"an escaped name is one name":         {method: get, path: inMachines + "/a%2Fb", status: 404, code: api.CodeNotFound},
	"an unknown machine is not deleted":   {method: http.MethodDelete, path: inNone, status: 404, code: api.CodeNotFound},
	"a machine is deleted":                {method: http.MethodDelete, path: inMachine, status: 200, check: func(t *testing.T, target Target, got answer) { gone(t, target, got.object(t)["deleted"]) }},
	"an unknown machine is not started":   on(inNone, "/start", "", 404, api.CodeNotFound),
	"a start with another type is 415":    on(inMachine, "/start", `{}`, 415, "").of("text/plain").decided("smolvm's answer depends on the version of its framework", ours...),
	"credentials that are incomplete":     on(inMachine, "/start", `{"registryAuth":{"username":"u"}}`, 422, "").decided("smolvm's answer depends on the version of its framework", ours...),
	"an unknown machine is not stopped":   on(inNone, "/stop", "", 404, api.CodeNotFound),
	"a stop of what never ran is one":     on(inMachine, "/stop", "", 200, ""),
	"an unknown machine is not resized":   on(inNone, "/resize", `{"storageGb":40}`, 404, api.CodeNotFound),
	"a disk grows":                        on(inMachine, "/resize", `{"storageGb":3}`, 200, "").checked(has(map[string]any{"storageGb": 3, "overlayGb": 2})),
	"both disks grow":                     on(inMachine, "/resize", `{"storageGb":3,"overlayGb":4}`, 200, "").checked(has(map[string]any{"storageGb": 3, "overlayGb": 4})),
	"the same size is no change":          on(inMachine, "/resize", `{"storageGb":2}`, 200, "").checked(has(map[string]any{"storageGb": 2})),
	"a disk does not shrink":              on(inMachine, "/resize", `{"storageGb":1}`, 400, api.CodeBadRequest),
	"a resize of nothing is refused":      on(inMachine, "/resize", `{}`, 400, api.CodeBadRequest),
	"a size that is text is 422":          on(inMachine, "/resize", `{"storageGb":"3"}`, 422, ""),
	"a resize without its type is 415":    on(inMachine, "/resize", `{"storageGb":3}`, 415, "").of("none"),
	"an unknown machine has no logs":      {method: get, path: inNone + "/logs", status: 404, code: api.CodeNotFound},
	"a machine that never ran has no log": {method: get, path: inMachine + "/logs", status: 404, code: api.CodeNotFound},
	"10001 lines of logs are refused":     {method: get, path: inMachine + "/logs?tail=10001", status: 400, code: api.CodeBadRequest},
	"lines that are no number are 400":    {method: get, path: inMachine + "/logs?tail=x", status: 400},
	"an unknown machine has no files":     {method: get, path: inNone + "/files/etc/hosts", status: 404, code: api.CodeNotFound},
	"an unknown machine takes no files":   {method: http.MethodPut, path: inNone + "/files/etc/hosts", contentType: "application/octet-stream", body: "x", status: 404, code: api.CodeNotFound},
	"a file without a path is 404":        {method: get, path: inMachine + "/files/", status: 404, empty: true},
	"an unknown machine has no events":    {method: get, path: inNone + "/egress-events", status: 404, code: api.CodeNotFound},
	"nothing was refused to a machine":    {method: get, path: inMachine + "/egress-events?limit=5", status: 200, says: []string{`"events":[]`}},
}

// rowsOfCommands are those of exec, and the same of exec/stream.
var rowsOfCommands = func() map[string]row {
	all := map[string]row{}
	for _, what := range []string{"/exec", "/exec/stream"} {
		for name, r := range map[string]row{
			"an unknown machine runs nothing":      on(inNone, what, `{"command":["true"]}`, 404, api.CodeNotFound),
			"no word is no command":                on(inMachine, what, `{"command":[]}`, 400, api.CodeBadRequest),
			"a command must be there":              on(inMachine, what, `{}`, 422, ""),
			"a command is not null":                on(inMachine, what, `{"command":null}`, 422, ""),
			"a command is a list":                  on(inMachine, what, `{"command":"true"}`, 422, ""),
			"a word is text":                       on(inMachine, what, `{"command":[null]}`, 422, ""),
			"unknown fields are refused":           on(inMachine, what, `{"command":["true"],"tty":true}`, 422, ""),
			"a field in other case is unknown":     on(inMachine, what, `{"Command":["true"]}`, 422, ""),
			"a time that is negative is 422":       on(inMachine, what, `{"command":["true"],"timeoutSecs":-1}`, 422, ""),
			"malformed JSON is 400":                on(inMachine, what, `{"command":["true"]`, 400, ""),
			"what comes after JSON is 400":         on(inMachine, what, `{"command":["true"]} x`, 400, ""),
			"a command without its type is 415":    on(inMachine, what, `{"command":["true"]}`, 415, "").of("none"),
			"a command as a form is 415":           on(inMachine, what, `command=true`, 415, "").of("application/x-www-form-urlencoded"),
			"a variable without a value is 422":    on(inMachine, what, `{"command":["true"],"env":[{"name":"A"}]}`, 422, ""),
			"a command of more than 2 MiB is 413":  on(inMachine, what, `{"command":["`+strings.Repeat("x", 3<<20)+`"]}`, 413, ""),
			"another method of a command is a 405": {method: get, path: inMachine + what, status: 405, empty: true},
		} {
			all[what+": "+name] = r
		}
	}
	return all
}()

func gone(t *testing.T, target Target, name any) {
	t.Helper()
	if _, err := target.client(t).Get(t.Context(), fmt.Sprint(name)); !api.IsNotFound(err) {
		t.Errorf("machine %v is there: %v", name, err)
	}
}

// TestEachAnswerHasAnIDOfItsOwn: 16 hexadecimal digits, also of rejections.
func TestEachAnswerHasAnIDOfItsOwn(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		var mu sync.Mutex
		seen := map[string]string{}
		var all sync.WaitGroup
		for range 5 {
			for _, path := range []string{"/health", "/nope", inMachines, inNone, "/drain"} {
				all.Go(func() {
					id := target.ask(t, get, path, "", "").header.Get("X-Trace-Id")
					mu.Lock()
					defer mu.Unlock()
					if other, again := seen[id]; again || !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(id) {
						t.Errorf("the id of %s is %q, as that of %q", path, id, other)
					}
					seen[id] = path
				})
			}
		}
		all.Wait()
	})
}

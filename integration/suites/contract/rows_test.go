package contract_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const typeJSON = "application/json"

// row is a request, and what its answer must be. In path and body, {m} is a machine that has been created with disks of
// 2 GiB and never started, and {n} is the name of one that has not.
type row struct {
	method, path string
	// contentType is that of body. Empty: JSON if there is a body.
	contentType, body string
	status            int
	// code is that of the envelope. Empty: the answer is no envelope.
	code api.Code
	// empty says that the answer has no body.
	empty bool
	// says are parts of the body.
	says []string
	// check checks the body further.
	check func(t *testing.T, target Target, got answer)
	// only are the kinds of targets that are asked. Nil: all. Then why says why.
	only []string
	why  string
}

// inMachines is what is asked of the list, or of a machine.
const (
	inMachines = "/api/v1/machines"
	inMachine  = inMachines + "/{m}"
	inNone     = inMachines + "/nope"
)

// create is a row that creates a machine with more fields.
func create(fields string, status int, code api.Code) row {
	return row{method: http.MethodPost, path: inMachines, body: `{"name":"{n}","image":"` + image + `"` + fields + `}`, status: status, code: code}
}

// named is a row that creates a machine with a name.
func named(name string, status int, code api.Code) row {
	return row{method: http.MethodPost, path: inMachines, body: fmt.Sprintf(`{"name":%q,"image":%q}`, name, image), status: status, code: code, check: remove}
}

// on is a row that asks for something of a machine, with JSON.
func on(machine, what, body string, status int, code api.Code) row {
	return row{method: http.MethodPost, path: machine + what, body: body, status: status, code: code}
}

func (r row) decided(why string, kinds ...string) row {
	r.only, r.why = kinds, why
	return r
}

func (r row) of(contentType string) row { r.contentType = contentType; return r }

func (r row) saying(parts ...string) row { r.says = parts; return r }

func (r row) checked(check func(*testing.T, Target, answer)) row { r.check = check; return r }

// remove deletes the machine of an answer.
func remove(t *testing.T, target Target, got answer) {
	t.Helper()
	if name, ok := got.object(t)["name"].(string); ok && got.status == http.StatusOK {
		if err := target.client(t).Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

// has checks that the body has values. A value of nil is any.
func has(want map[string]any) func(*testing.T, Target, answer) {
	return func(t *testing.T, _ Target, got answer) {
		t.Helper()
		o := got.object(t)
		for key, value := range want {
			found, ok := o[key]
			wanted, _ := json.Marshal(value)
			if is, _ := json.Marshal(found); !ok || value != nil && string(is) != string(wanted) {
				t.Errorf("%s is %s and not %s", key, is, wanted)
			}
		}
	}
}

// lacks checks that the body has no keys.
func lacks(keys ...string) func(*testing.T, Target, answer) {
	return func(t *testing.T, _ Target, got answer) {
		t.Helper()
		for _, key := range keys {
			if value, ok := got.object(t)[key]; ok {
				t.Errorf("%s is there: %v", key, value)
			}
		}
	}
}

func (r row) run(t *testing.T, target Target) {
	t.Helper()
	if r.only != nil && !slices.Contains(r.only, target.Kind) {
		t.Skipf("%s is not asked: %s", target.Kind, r.why)
	}
	path, body := r.path, r.body
	if strings.Contains(path+body, "{m}") {
		name := target.machine(t)
		path, body = strings.ReplaceAll(path, "{m}", name), strings.ReplaceAll(body, "{m}", name)
	}
	if strings.Contains(path+body, "{n}") {
		name := target.newName(t)
		path, body = strings.ReplaceAll(path, "{n}", name), strings.ReplaceAll(body, "{n}", name)
	}
	contentType := r.contentType
	switch {
	case contentType == "none":
		contentType = ""
	case contentType == "" && body != "":
		contentType = typeJSON
	}
	r.compare(t, target, target.ask(t, r.method, path, contentType, body))
}

func (r row) compare(t *testing.T, target Target, got answer) {
	t.Helper()
	if got.status != r.status {
		t.Fatalf("the answer is %d and not %d: %.300s", got.status, r.status, got.body)
	}
	var envelope api.Error
	isEnvelope := json.Unmarshal([]byte(got.body), &envelope) == nil && envelope.Message != ""
	if r.status != http.StatusOK && (envelope.Code != r.code || isEnvelope != (r.code != "")) {
		t.Errorf("the code is %q and not %q: %.300s", envelope.Code, r.code, got.body)
	}
	if r.empty && got.body != "" {
		t.Errorf("the body is not empty: %.300s", got.body)
	}
	for _, part := range r.says {
		if !strings.Contains(got.body, part) {
			t.Errorf("the body has no %q: %.300s", part, got.body)
		}
	}
	if r.check != nil {
		r.check(t, target, got)
	}
}

// TestRows asks each target for each row.
func TestRows(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		for _, table := range []map[string]row{rowsOfServer, rowsOfCreation, rowsOfMachines, rowsOfCommands} {
			for name, r := range table {
				t.Run(name, func(t *testing.T) { r.run(t, target) })
			}
		}
	})
}

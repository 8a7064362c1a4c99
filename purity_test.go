package main_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that decide: what they return depends only on what they are given.
var pure = []string{
	"pkg/cluster/plan", "pkg/cluster/state", "pkg/cluster/drain", "pkg/cluster/rolling", "pkg/cluster/remediation", "pkg/cluster/nodestep",
	"pkg/cluster/nodepod", "pkg/cluster/versions", "pkg/cluster/joining", "pkg/cluster/key", "pkg/cluster/cloudconfig", "pkg/cluster/addons", "pkg/virtualmachine",
	"pkg/smolvmcluster/machinespec", "pkg/smolvmcluster/machinestep", "pkg/smolvmcluster/placing", "pkg/smolvmcluster/state",
}

// callable are the packages of other modules and of the standard library that code that decides may mention.
var callable = []string{
	"bufio", "bytes", "cmp", "compress/gzip", "crypto", "embed", "encoding", "errors", "fmt", "hash", "io", "maps", "math", "net", "path", "reflect", "regexp",
	"slices", "strconv", "strings", "sync", "time", "unicode",
	"k8s.io/api", "k8s.io/apiextensions-apiserver/pkg/apis", "k8s.io/apimachinery", "k8s.io/utils/lru", "k8s.io/utils/ptr", clientPackage, "sigs.k8s.io/yaml",
	"github.com/coreos/go-semver/semver", "github.com/coreos/go-systemd/v22/unit", "github.com/coreos/ignition/v2/config", "github.com/coreos/vcontext",
	"github.com/giantswarm/microerror", "github.com/robfig/cron/v3",
}

// TestPlanIsPure: what is planned depends only on what was observed and on the time. Neither the packages that decide nor
// any function of the program that they call reaches a client, a clock, random numbers, the network or the operating
// system, starts a goroutine, or changes a variable of a package.
func TestPlanIsPure(t *testing.T) {
	c := newCalls(checkedPackages(t))
	found := map[string]bool{}
	for _, p := range c.packages {
		if !slices.Contains(pure, p.folder()) {
			continue
		}
		found[p.folder()] = true
		for _, file := range p.files {
			c.follow(p, file)
		}
	}
	if len(found) != len(pure) {
		t.Errorf("%d packages of %v are there", len(found), pure)
	}
	c.walk()
	if len(c.reached) == 0 {
		t.Error("the packages that decide call nothing")
	}
	for _, fault := range c.faults {
		t.Error(fault)
	}
}

// TestWhatIsNotPure: the check finds what a function does that is called by another one, whatever the call looks like.
func TestWhatIsNotPure(t *testing.T) {
	for name, test := range map[string]struct {
		code  string
		fault string
	}{
		"a sum":                          {"func plan() int { return one() + 1 }; func one() int { return 1 }", ""},
		"the clock":                      {"func plan() { past() }; func past() { _ = time.Now() }", "time.Now"},
		"a time that is given":           {"func plan() { past() }; func past() { _ = time.Unix(0, 0) }", ""},
		"a clock that is not called":     {"func plan() {}; func past() { _ = time.Now() }", ""},
		"a function in a variable":       {"var past = func() { _ = time.Now() }; func plan() { past() }", "time.Now"},
		"a function that is handed on":   {"func plan() func() { return past }; func past() { _ = time.Now() }", "time.Now"},
		"a method":                       {"type c struct{}; func (*c) past() { _ = time.Now() }; func plan() { (&c{}).past() }", "time.Now"},
		"a method of an interface":       {"type i interface{ past() }; type c struct{}; func (c) past() { _ = time.Now() }; func plan() { i(c{}).past() }", "time.Now"},
		"another type of that interface": {"type i interface{ past() }; type c struct{}; func (c) past() { _ = time.Now() }; func plan(x i) { x.past() }", ""},
		"the text of an error":           {"type e struct{}; func (e) Error() string { return time.Now().String() }; func plan() error { return e{} }", "time.Now"},
		"a generic function":             {"func past[T any](T) { _ = time.Now() }; func plan() { past(1) }", "time.Now"},
		"a goroutine":                    {"func plan() { go func() {}() }", "goroutine"},
		"a variable of the package":      {"var n int; func plan() { count() }; func count() { n++ }", "n: "},
		"a map of the package":           {"var n = map[int]int{}; func plan() { n[1] = 2 }", "n: "},
		"a file":                         {"func plan() { _, _ = os.ReadFile(``) }", "os.ReadFile"},
	} {
		c := newCalls([]checkedPackage{snippet(t, test.code)})
		c.reach(module + "/x.plan")
		c.walk()
		faults := strings.Join(c.faults, "\n")
		if (faults != "") != (test.fault != "") || !strings.Contains(faults, test.fault) {
			t.Errorf("%s: the faults are %q, want one with %q", name, faults, test.fault)
		}
	}
}

// snippet returns a package with some code.
func snippet(t *testing.T, code string) checkedPackage {
	t.Helper()
	p := checkedPackage{goPackage: goPackage{ImportPath: module + "/x"}, set: token.NewFileSet()}
	file, err := parser.ParseFile(p.set, "x.go", `package x; import ("os"; "time"); var _, _ = os.Args, time.Second; `+code, parser.SkipObjectResolution)
	if err == nil {
		p.files = []*ast.File{file}
		err = p.check(importer.Default())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reachesOutside returns whether a name gives access to the world outside of the program: a client, a clock, random
// numbers, the network or the operating system.
func reachesOutside(object types.Object) bool {
	clock := []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
	outside := []string{
		"crypto/rand", "math/rand", "math/rand/v2", "net/http", "os", "os/exec", "syscall",
		"k8s.io/apimachinery/pkg/util/rand", "k8s.io/apimachinery/pkg/util/uuid", "k8s.io/apimachinery/pkg/util/wait",
	}
	switch path := object.Pkg().Path(); path {
	case clientPackage:
		return !slices.Contains([]string{"Object", "ObjectKey", "ObjectKeyFromObject"}, object.Name())
	case "time":
		f, ok := object.(*types.Func)
		return ok && f.Signature().Recv() == nil && slices.Contains(clock, object.Name())
	case "net":
		return strings.HasPrefix(object.Name(), "Dial") || strings.HasPrefix(object.Name(), "Listen") || strings.HasPrefix(object.Name(), "Lookup")
	case "k8s.io/apimachinery/pkg/apis/meta/v1":
		return object.Name() == "Now"
	case "crypto/x509": // it reads the clock, or files
		return object.Name() == "Verify" || object.Name() == "SystemCertPool"
	default:
		return slices.Contains(outside, path)
	}
}

// calls finds the functions of the program that some code may call. A method of an interface may be that of each type
// that the code mentions.
type calls struct {
	packages []checkedPackage
	// bodies are the declarations of functions and of variables with values by their names, and methods the names of
	// methods by the names of their types.
	bodies  map[string]declaration
	methods map[string][]*types.Func
	// reached are the names of the functions, variables and types that the code mentions, and open those to be checked.
	reached map[string]bool
	open    []string
	faults  []string
}

type declaration struct {
	in   checkedPackage
	node ast.Node
}

// byLanguage are the methods that packages outside of the program call.
var byLanguage = []string{"Error", "Is", "MarshalJSON", "String", "UnmarshalJSON", "Unwrap"}

func newCalls(packages []checkedPackage) *calls {
	c := &calls{packages: packages, bodies: map[string]declaration{}, methods: map[string][]*types.Func{}, reached: map[string]bool{}}
	for _, p := range packages {
		inspect(p, func(f *ast.FuncDecl) {
			object := p.info.Defs[f.Name].(*types.Func)
			c.bodies[object.FullName()] = declaration{p, f}
			if named := receiver(object); named != "" {
				c.methods[named] = append(c.methods[named], object)
			}
		})
		inspect(p, func(v *ast.ValueSpec) {
			for _, name := range v.Names {
				if object := p.info.Defs[name]; object != nil && object.Parent() == p.types.Scope() {
					c.bodies[nameOf(object)] = declaration{p, v}
				}
			}
		})
	}
	return c
}

// nameOf returns a name that is the same in all packages that mention an object.
func nameOf(object types.Object) string {
	if f, ok := object.(*types.Func); ok {
		return f.Origin().FullName()
	}
	return object.Pkg().Path() + "." + object.Name()
}

// receiver returns the name of the type of a method; empty for a function.
func receiver(f *types.Func) string {
	if f.Signature().Recv() == nil {
		return ""
	}
	of := f.Signature().Recv().Type()
	if pointer, ok := of.(*types.Pointer); ok {
		of = pointer.Elem()
	}
	if named, ok := of.(*types.Named); ok {
		return nameOf(named.Obj())
	}
	return ""
}

// walk checks everything that was reached, and what that reaches.
func (c *calls) walk() {
	called := slices.Clone(byLanguage) // the names of methods
	for len(c.open) > 0 {
		for len(c.open) > 0 {
			name := c.open[0]
			c.open = c.open[1:]
			if d, ok := c.bodies[name]; ok {
				c.follow(d.in, d.node)
			}
			if f, ok := strings.CutPrefix(name, "interface "); ok && !slices.Contains(called, f) {
				called = append(called, f)
			}
		}
		for of, methods := range c.methods {
			for _, m := range methods {
				if c.reached[of] && slices.Contains(called, m.Name()) {
					c.reach(nameOf(m))
				}
			}
		}
	}
}

func (c *calls) reach(name string) {
	if !c.reached[name] {
		c.reached[name] = true
		c.open = append(c.open, name)
	}
}

// follow reaches what a part of the code mentions, and records what must not be there.
func (c *calls) follow(p checkedPackage, part ast.Node) {
	ast.Inspect(part, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.Ident:
			c.mention(p, n)
		case *ast.GoStmt, *ast.ChanType:
			c.fault(p, n, "there are no goroutines here")
		case *ast.AssignStmt:
			for _, target := range n.Lhs {
				c.change(p, target)
			}
		case *ast.IncDecStmt:
			c.change(p, n.X)
		}
		return true
	})
}

func (c *calls) mention(p checkedPackage, identifier *ast.Ident) {
	object := p.info.Uses[identifier]
	if object == nil || object.Pkg() == nil {
		return
	}
	path := object.Pkg().Path()
	own := path == module || strings.HasPrefix(path, module+"/")
	if reachesOutside(object) || !own && !within(path, callable) {
		c.fault(p, identifier, object.Pkg().Name()+"."+object.Name()+": nothing outside of the program is reached here")
	}
	f, ok := object.(*types.Func)
	if ok && f.Signature().Recv() != nil && types.IsInterface(f.Signature().Recv().Type()) {
		c.reach("interface " + f.Name())
	}
	if own {
		if v, ok := object.(*types.Var); !ok || !v.IsField() && v.Parent() == object.Pkg().Scope() {
			c.reach(nameOf(object))
		}
	}
}

// change records a change of a variable of a package.
func (c *calls) change(p checkedPackage, target ast.Expr) {
	switch of := target.(type) {
	case *ast.IndexExpr:
		c.change(p, of.X)
	case *ast.StarExpr:
		c.change(p, of.X)
	case *ast.SelectorExpr:
		c.change(p, of.X)
		c.change(p, of.Sel)
	case *ast.Ident:
		if v, ok := p.info.Uses[of].(*types.Var); ok && !v.IsField() && v.Parent() == v.Pkg().Scope() {
			c.fault(p, of, v.Name()+": a variable of a package is changed")
		}
	}
}

func (c *calls) fault(p checkedPackage, at ast.Node, what string) {
	c.faults = append(c.faults, p.set.Position(at.Pos()).String()+": "+what)
}

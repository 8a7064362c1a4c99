// Package main_test holds rules for the code as a whole.
package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module         = "github.com/kvm-operator/kvm-operator"
	runtimePackage = "sigs.k8s.io/controller-runtime"
	clientPackage  = runtimePackage + "/pkg/client"
)

// mayImport says which folders of the module the packages of a folder may import. The longest matching folder applies:
// main → cmd → {flag, service} → service/controller → resources → pkg/cluster → pkg/operatorkit → pkg/apis, and pkg/vm,
// which knows nothing of Kubernetes. A folder may import itself only if it is listed below, so no handler imports
// another, and the APIs know nothing of each other.
var mayImport = map[string][]string{
	".":                              {"cmd"},
	"runner":                         {"cmd/runner"},
	"smolvm":                         {"cmd/smolvm"},
	"smolvm/agent":                   {"pkg/smolvm"},
	"cmd":                            {"cmd/runner", "flag", "service", "pkg", "helm"},
	"cmd/smolvm":                     {"pkg/smolvm", "pkg/vm", "pkg/project"},
	"cmd/runner":                     {"pkg/vm", "pkg/cluster/noderunner", "pkg/cluster/etcdfiles", "pkg/project"},
	"flag":                           {},
	"helm":                           {},
	"service":                        {"service/controller", "pkg"},
	"service/controller":             {"resources", "pkg"},
	"service/controller/machine":     {"resources/machine", "resources/networkconfiguration", "service/controller/networkconfiguration", "pkg"},
	"service/machines":               {"service/controller/machine", "service/controller/networkconfiguration", "pkg"},
	"resources/kvmconfig":            {"pkg/cluster", "pkg/operatorkit", "pkg/apis"},
	"resources/machine":              {"pkg/vitistack", "pkg/kubevirt", "pkg/operatorkit", "pkg/apis"},
	"resources/networkconfiguration": {"pkg/vitistack", "pkg/operatorkit", "pkg/apis"},
	"resources/smolvm":               {"pkg/smolvmcluster", "pkg/operatorkit", "pkg/apis"},
	"resources/virtualmachine":       {"pkg/virtualmachine", "pkg/operatorkit", "pkg/apis"},
	"pkg/late":                       {"pkg/operatorkit"},
	"pkg/project":                    {},
	"pkg/apis":                       {"pkg/apis"},
	"pkg/operatorkit":                {"pkg/operatorkit"},
	"pkg/vm":                         {"pkg/vm"},
	"pkg/smolvm":                     {"pkg/smolvm", "pkg/vm"},
	"pkg/cluster":                    {"pkg/cluster", "pkg/operatorkit", "pkg/vm", "pkg/apis"},
	"pkg/virtualmachine":             {"pkg/operatorkit", "pkg/vm/vmconfig", "pkg/apis"},
	"pkg/virtualmachine/links":       {"pkg/virtualmachine", "pkg/operatorkit", "pkg/vm/vmconfig"},
	"pkg/vitistack":                  {"pkg/vitistack", "pkg/operatorkit", "pkg/apis"},
	"pkg/kubevirt":                   {"pkg/kubevirt", "pkg/vitistack", "pkg/apis"},
	"pkg/smolvmcluster":              {"pkg/smolvmcluster", "pkg/operatorkit", "pkg/smolvm/api", "pkg/apis"},
	"pkg/smolvmruntime":              {"pkg/smolvm", "pkg/operatorkit", "pkg/apis", "pkg/project"},
	"integration/harness":            {"cmd", "flag", "service", "pkg", "integration/harness"},
	"integration/images":             {"pkg", "integration/harness"},
	"integration/demo":               {"cmd", "flag", "service", "pkg", "integration/harness"},
	"integration/suites":             {"cmd", "flag", "service", "resources", "pkg", "integration"},
}

// foreign says which packages of other modules the packages of a folder may import, and which ones they must not depend
// on, not even indirectly.
var foreign = map[string]struct{ only, never []string }{
	"pkg/apis":                 {only: []string{"k8s.io/apimachinery"}},
	"pkg/apis/vmoperator":      {only: []string{"k8s.io/api/core/v1", "k8s.io/apimachinery"}},
	"pkg/apis/smolvm":          {only: []string{"k8s.io/api/core/v1", "k8s.io/apimachinery"}},
	"pkg/cluster/key":          {only: []string{"k8s.io/apimachinery"}},
	"pkg/virtualmachine":       {only: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/yaml"}},
	"pkg/virtualmachine/links": {only: []string{"k8s.io/apimachinery", "golang.org/x/time/rate"}},
	"pkg/smolvm":               {never: []string{"k8s.io", "sigs.k8s.io"}},
	"pkg/vitistack":            {only: []string{"k8s.io/api", "k8s.io/apimachinery", "kubevirt.io/api", "kubevirt.io/containerized-data-importer-api"}},
	"pkg/kubevirt":             {only: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "kubevirt.io/api", "kubevirt.io/containerized-data-importer-api"}},
	"resources/machine":        {only: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "kubevirt.io/api", "kubevirt.io/containerized-data-importer-api", clientPackage}},
	"pkg/smolvmcluster":        {only: []string{"k8s.io/api", "k8s.io/apimachinery"}},
	"pkg/smolvmcluster/nodes":  {only: []string{"k8s.io/apimachinery", "golang.org/x/time/rate"}},
	"pkg/smolvmruntime": {only: []string{
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", clientPackage, "github.com/prometheus/client_golang",
		"golang.org/x/sync/errgroup", "golang.org/x/sys/unix", "golang.org/x/time/rate",
	}},
	"pkg/cluster/cloudconfig": {never: []string{"k8s.io/client-go", runtimePackage}},
	"pkg/cluster/etcd":        {never: []string{"k8s.io", "sigs.k8s.io"}},
	"pkg/cluster/etcdfiles":   {never: []string{"k8s.io", "sigs.k8s.io"}},
	"pkg/cluster/noderunner":  {never: []string{"k8s.io", "sigs.k8s.io"}},
	"pkg/operatorkit/fence":   {never: []string{"k8s.io", "sigs.k8s.io"}},
	"resources":               {only: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/yaml", clientPackage}},
	"pkg/vm":                  {never: []string{"k8s.io", "sigs.k8s.io"}},
	"runner":                  {never: []string{"k8s.io", "sigs.k8s.io"}},
	"smolvm":                  {never: []string{"k8s.io", "sigs.k8s.io"}},
}

func TestPackagesImportDownwardOnly(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		folder := p.folder()
		rule, ok := fitting(mayImport, folder)
		if !ok {
			t.Errorf("%s: no rule says what it may import", folder)
			continue
		}
		outside, _ := fitting(foreign, folder)
		for _, path := range p.Imports {
			imported, own := strings.CutPrefix(path, module+"/")
			switch {
			case own && !within(imported, rule):
				t.Errorf("%s imports %s; it may import %v", folder, imported, rule)
			case !own && outside.only != nil && strings.Contains(path, ".") && !within(path, outside.only):
				t.Errorf("%s imports %s; of other modules it may import %v", folder, path, outside.only)
			}
		}
		for _, path := range p.Deps {
			if within(path, outside.never) {
				t.Errorf("%s depends on %s and must not", folder, path)
			}
		}
	}
}

func TestNoPackageIsADrawerForAnything(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, filepath.Base(p.folder())) {
			t.Errorf("%s: a package is named after what it is about", p.folder())
		}
	}
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	const linesOfFile, linesOfFunction, linesOfTest = 400, 60, 80
	eachGoFile(t, func(path string, set *token.FileSet, file *ast.File) {
		if lines := set.File(file.Pos()).LineCount(); lines > linesOfFile && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s has %d lines; a file has one idea and at most %d lines", path, lines, linesOfFile)
		}
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines, most := linesOf(set, f), linesOfFunction
			if strings.HasSuffix(path, "_test.go") {
				lines, most = lines-linesOfTables(set, f), linesOfTest
			}
			if lines > most {
				t.Errorf("%s: function %s has %d lines; at most %d are allowed", path, f.Name.Name, lines, most)
			}
		}
	})
}

func linesOf(set *token.FileSet, node ast.Node) int {
	return set.Position(node.End()).Line - set.Position(node.Pos()).Line + 1
}

// linesOfTables counts the lines of a test's table of cases, which are not limited.
func linesOfTables(set *token.FileSet, f *ast.FuncDecl) int {
	lines := 0
	ast.Inspect(f, func(node ast.Node) bool {
		table, ok := node.(*ast.CompositeLit)
		if ok {
			lines += linesOf(set, table) - 1
		}
		return !ok
	})
	return lines
}

// requests are the methods and functions that change something on an API server.
var requests = []string{"Apply", "Create", "CreateOrPatch", "CreateOrUpdate", "Delete", "DeleteAllOf", "Patch", "Update"}

func TestOnlyTheEngineWrites(t *testing.T) {
	writers := map[string]bool{}
	for _, p := range checkedPackages(t) {
		trials := dryRuns(p)
		for identifier, object := range p.info.Uses {
			if trials[identifier] || !isRequest(object) {
				continue
			}
			place := p.folder()
			if place != "pkg/operatorkit/apply" {
				place = filepath.Join(place, filepath.Base(p.set.Position(identifier.Pos()).Filename))
			}
			writers[place] = true
		}
	}
	// The agent of a node has one object, and the API server no other way to check a token.
	want := []string{"pkg/operatorkit/apply", "pkg/smolvmruntime/report.go", "pkg/smolvmruntime/tokenreview.go"}
	if got := slices.Sorted(maps.Keys(writers)); !slices.Equal(got, want) {
		t.Errorf("the API server is written to by\n\t%v, and may be by\n\t%v", got, want)
	}
}

func isRequest(object types.Object) bool {
	f, ok := object.(*types.Func)
	return ok && f.Pkg() != nil && slices.Contains(requests, f.Name()) && within(f.Pkg().Path(), []string{"k8s.io/client-go", runtimePackage})
}

// dryRuns returns the method names in calls with client.DryRunAll, which store nothing.
func dryRuns(p checkedPackage) map[*ast.Ident]bool {
	trials := map[*ast.Ident]bool{}
	inspect(p, func(call *ast.CallExpr) {
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ok && slices.ContainsFunc(call.Args, func(argument ast.Expr) bool { return types.ExprString(argument) == "client.DryRunAll" }) {
			trials[method.Sel] = true
		}
	})
	return trials
}

// inspect visits every node of type T.
func inspect[T ast.Node](p checkedPackage, visit func(T)) {
	for _, file := range p.files {
		ast.Inspect(file, func(node ast.Node) bool {
			if n, ok := node.(T); ok {
				visit(n)
			}
			return true
		})
	}
}

func TestHandlersCannotWrite(t *testing.T) {
	var asked []string
	handlers := 0
	for _, p := range checkedPackages(t) {
		if !within(p.folder(), []string{"resources"}) {
			continue
		}
		handlers++
		for identifier, object := range p.info.Uses {
			at := p.set.Position(identifier.Pos())
			switch pkg := object.Pkg(); {
			case pkg == nil:
			case pkg.Path() == module+"/pkg/operatorkit/apply" && isMethodOf(object, "Engine"):
				t.Errorf("%s: Engine.%s: the engine is handed on in constructors and called by no handler", at, object.Name())
			case reachesOutside(object), pkg.Path() == "net", pkg.Path() == clientPackage && object.Name() != "Object":
				t.Errorf("%s: %s.%s: a handler reads nothing but its state, and returns the objects that it wants", at, pkg.Name(), object.Name())
			}
		}
		inspect(p, func(assignment *ast.AssignStmt) {
			for _, target := range assignment.Lhs {
				if field, ok := target.(*ast.SelectorExpr); ok && isFieldOfState(p, field) {
					t.Errorf("%s: %s is written: a handler changes nothing of its state", p.set.Position(field.Pos()), field.Sel.Name)
				}
			}
		})
		asked = append(asked, interfaceMethods(p)...)
	}
	if handlers == 0 {
		t.Error("there are no handlers to check")
	}
	slices.Sort(asked)
	expectRequests(t, strings.Join(asked, "\n")+"\n")
}

// expectRequests compares the requests besides desired objects that handlers make, with the record of those that were
// reviewed. UPDATE=1 rewrites it.
func expectRequests(t *testing.T, asked string) {
	t.Helper()
	const record = "testdata/requests-of-handlers.golden"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(record, []byte(asked), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if recorded := read(t, record); asked != recorded {
		t.Errorf("handlers ask others for\n%s\n%s has (UPDATE=1 rewrites it; is each of them needed?)\n%s", asked, record, recorded)
	}
}

// isFieldOfState returns whether an expression is a field of a type of package state.
func isFieldOfState(p checkedPackage, e *ast.SelectorExpr) bool {
	field, ok := p.info.Uses[e.Sel].(*types.Var)
	return ok && field.IsField() && field.Pkg() != nil && field.Pkg().Path() == module+"/pkg/cluster/state"
}

// TestOnePackageBuildsEndpoints: only its handler says what is behind the Services of a cluster, and only the chain of one
// controller has this handler, so that no two writers have different opinions.
func TestOnePackageBuildsEndpoints(t *testing.T) {
	const handler = "resources/kvmconfig/endpoints"
	builders, users := map[string]bool{}, map[string]bool{}
	for _, p := range checkedPackages(t) {
		isEndpoint := func(of types.Type) bool {
			name := strings.TrimLeft(types.TypeString(of, nil), "*[]")
			return strings.HasPrefix(name, "k8s.io/api/discovery/") || strings.HasPrefix(name, "k8s.io/api/core/v1.Endpoint")
		}
		inspect(p, func(literal *ast.CompositeLit) {
			if isEndpoint(p.info.TypeOf(literal)) && len(literal.Elts) > 0 {
				builders[p.folder()] = true
			}
		})
		inspect(p, func(assignment *ast.AssignStmt) {
			for _, target := range assignment.Lhs {
				if field, ok := target.(*ast.SelectorExpr); ok && isEndpoint(p.info.TypeOf(field.X)) {
					builders[p.folder()] = true
				}
			}
		})
		for identifier, object := range p.info.Uses {
			if f, ok := object.(*types.Func); ok && f.FullName() == module+"/"+handler+".New" {
				users[filepath.Join(p.folder(), filepath.Base(p.set.Position(identifier.Pos()).Filename))] = true
			}
		}
	}
	if got := slices.Collect(maps.Keys(builders)); !slices.Equal(got, []string{handler}) {
		t.Errorf("endpoints are built by %v", got)
	}
	// A rendering without a cluster writes nothing.
	if got := slices.Sorted(maps.Keys(users)); !slices.Equal(got, []string{"service/controller/cluster/render.go", "service/controller/drainer/chain.go"}) {
		t.Errorf("the handler of endpoints is used by %v", got)
	}
}

// TestGatherOnlyReads: what a controller gathers changes nothing, starts nothing and ends nothing; a connection begins
// in the step of the loop that follows.
func TestGatherOnlyReads(t *testing.T) {
	changes := []string{
		"AddFinalizers", "Apply", "ApplyAll", "ApplyStatus", "CorrectStatus", "Create", "Delete", "DeleteAllOf", "Do", "Drop", "DropCondition", "End", "Ensure", "Eventf", "Follow", "Forget",
		"Issue", "Order", "Patch", "Record", "RemoveFinalizer", "Stop", "Update", "UpdateStatus", "follow", "unmanage", "want", "Want",
	}
	controllers := 0
	for _, p := range checkedPackages(t) {
		if !within(p.folder(), []string{"service/controller"}) {
			continue
		}
		bodies := map[types.Object]*ast.FuncDecl{}
		var reached []types.Object
		inspect(p, func(f *ast.FuncDecl) {
			object := p.info.Defs[f.Name]
			bodies[object] = f
			if f.Name.Name == "Gather" {
				controllers++
				reached = append(reached, object)
			}
		})
		for i := 0; i < len(reached); i++ {
			ast.Inspect(bodies[reached[i]], func(n ast.Node) bool {
				identifier, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				called, ok := p.info.Uses[identifier].(*types.Func)
				if ok {
					called = called.Origin()
				}
				switch {
				case !ok:
				case called.Signature().Recv() != nil && slices.Contains(changes, called.Name()):
					t.Errorf("%s: %s is called while %s is gathered", p.set.Position(identifier.Pos()), called.FullName(), p.folder())
				case bodies[called] != nil && !slices.Contains(reached, types.Object(called)):
					reached = append(reached, called)
				}
				return true
			})
		}
	}
	if controllers < 7 {
		t.Errorf("%d controllers that gather were found", controllers)
	}
}

func isMethodOf(object types.Object, name string) bool {
	f, ok := object.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return false
	}
	receiver := f.Signature().Recv().Type()
	if pointer, ok := receiver.(*types.Pointer); ok {
		receiver = pointer.Elem()
	}
	named, ok := receiver.(*types.Named)
	return ok && named.Obj().Name() == name
}

// interfaceMethods returns the methods of the interfaces that a package declares.
func interfaceMethods(p checkedPackage) []string {
	var methods []string
	for _, name := range p.types.Scope().Names() {
		declared, ok := p.types.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if i, ok := declared.Type().Underlying().(*types.Interface); ok {
			for method := range i.Methods() {
				methods = append(methods, p.folder()+"."+name+"."+method.Name())
			}
		}
	}
	return methods
}

// goPackage is what go list reports about a package.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles, Imports, Deps  []string
}

// folder returns the package's path in the checkout.
func (p goPackage) folder() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func listPackages(t *testing.T, args ...string) []goPackage {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,Imports,Deps"}, args...)...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %s\n%s", command, err, &complaint)
	}
	var packages []goPackage
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// checkedPackage is a package with type information for all its names.
type checkedPackage struct {
	goPackage
	set   *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// checked are the packages of the program, once they were loaded.
var checked []checkedPackage

// checkedPackages returns the packages of the program, without tests and integration.
func checkedPackages(t *testing.T) []checkedPackage {
	t.Helper()
	if checked != nil {
		return checked
	}
	exports := map[string]string{}
	var own []goPackage
	for _, p := range listPackages(t, "-export", "-deps", "./...") {
		exports[p.ImportPath] = p.Export
		if (p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/")) && !within(p.folder(), []string{"integration"}) {
			own = append(own, p)
		}
	}
	set := token.NewFileSet()
	compiled := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range own {
		c := checkedPackage{goPackage: p, set: set}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			c.files = append(c.files, file)
		}
		if err := c.check(compiled); err != nil {
			t.Fatal(err)
		}
		checked = append(checked, c)
	}
	return checked
}

// check adds the types of what the files of the package have.
func (p *checkedPackage) check(packages types.Importer) (err error) {
	p.info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	p.types, err = (&types.Config{Importer: packages}).Check(p.ImportPath, p.set, p.files, p.info)
	return err
}

// eachGoFile parses the Go files of the checkout except generated ones.
func eachGoFile(t *testing.T, visit func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasPrefix(entry.Name(), "zz_"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		visit(path, set, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// within reports whether path is one of the folders or lies in one.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// fitting returns the rule for the longest folder that path is or lies in.
func fitting[T any](rules map[string]T, path string) (rule T, ok bool) {
	longest := ""
	for folder, candidate := range rules {
		if within(path, []string{folder}) && len(folder) > len(longest) {
			longest, rule, ok = folder, candidate, true
		}
	}
	return rule, ok
}

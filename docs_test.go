package main_test

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	command "github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// settingRow matches a row of docs/settings.md: | `key` | `default` | meaning |.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\|(?: `([^`]*)`|([^|]*)) \\| (.*) \\|$")

func TestEverySettingIsDocumentedWithItsDefault(t *testing.T) {
	const runnerImage = "the image of the operator's own version"
	documented := map[string][]string{}
	for _, row := range settingRow.FindAllStringSubmatch(read(t, "docs/settings.md"), -1) {
		documented[row[1]] = []string{row[2] + strings.TrimSpace(row[3]), row[4]}
	}
	fs := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	flag.Register(fs, runnerImage, runnerImage)
	fs.VisitAll(func(f *pflag.Flag) {
		row, ok := documented[f.Name]
		if !ok {
			t.Errorf("docs/settings.md does not have %s", f.Name)
			return
		}
		delete(documented, f.Name)
		if value := strings.Trim(f.DefValue, "[]"); row[0] != value {
			t.Errorf("docs/settings.md says that the default of %s is %q, it is %q", f.Name, row[0], value)
		}
		if ignored := strings.HasPrefix(row[1], "ignored"); ignored != strings.Contains(f.Usage, "ignored") {
			t.Errorf("docs/settings.md says of %s %q, its usage says %q", f.Name, row[1], f.Usage)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		t.Errorf("docs/settings.md has %s, which is no setting", name)
	}
}

func TestEveryConditionAndReasonIsDocumented(t *testing.T) {
	pages := []string{
		"docs/failure-modes.md", "docs/drain-and-repair.md", "docs/virtualmachine.md", "docs/smolvm.md", "docs/machines.md", "docs/networkconfiguration.md",
		"docs/kvmconfig.md", "docs/runner.md",
	}
	conditions, all := read(t, "docs/kvmconfig.md"), ""
	for _, page := range pages {
		all += read(t, page)
	}
	types, reasons := map[string]bool{}, map[string]bool{}
	for _, p := range checkedPackages(t) {
		collectReasons(p, reasons)
		if p.folder() == "service/controller/cluster" {
			collectConditionTypes(p, types)
		}
	}
	if len(types) < 10 || len(reasons) < 10 {
		t.Fatalf("the test has found the conditions %v and the reasons %v and overlooks most", types, reasons)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !strings.Contains(conditions, "| `"+name+"` |") {
			t.Errorf("docs/kvmconfig.md does not have the condition %s", name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		if !strings.Contains(all, "`"+reason+"`") {
			t.Errorf("none of %s has the reason %s", strings.Join(pages, ", "), reason)
		}
	}
}

// endRow matches a row of docs/runner.md: | code | `reason` | what to do |.
var endRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\| .+ \\|$")

func TestEveryStateAndEndOfARunnerIsDocumented(t *testing.T) {
	page := read(t, "docs/runner.md")
	ends := map[string]string{}
	for _, row := range endRow.FindAllStringSubmatch(page, -1) {
		ends[row[2]] = row[1]
	}
	for _, reason := range constants(t, "pkg/vm/keeper", "Reason") {
		if code := strconv.Itoa(keeper.Reason(reason).ExitCode()); ends[reason] != code {
			t.Errorf("docs/runner.md says that %s ends with code %q, it is %s", reason, ends[reason], code)
		}
	}
	for _, state := range constants(t, "pkg/vm/keeper", "State") {
		if !strings.Contains(page, "| `"+state+"` |") {
			t.Errorf("docs/runner.md does not have the state %s", state)
		}
	}
	expectFlags(t, command.New().Flags(), "docs/runner.md")
	vm, _, err := command.New().Find([]string{"vm"})
	if err != nil {
		t.Fatal(err)
	}
	expectFlags(t, vm.Flags(), "docs/vm-runner.md")
}

// expectFlags checks that a page has all flags, and the variables that set them.
func expectFlags(t *testing.T, flags *pflag.FlagSet, path string) {
	t.Helper()
	page := read(t, path)
	flags.VisitAll(func(f *pflag.Flag) {
		_, variable, _ := strings.Cut(f.Usage, " (")
		for _, name := range append(regexp.MustCompile("[A-Z]{2}[A-Z_]+").FindAllString(variable, -1), "--"+f.Name) {
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s does not have %s", path, name)
			}
		}
	})
}

// constants returns the values of a package's constants of the named type.
func constants(t *testing.T, folder, name string) (values []string) {
	t.Helper()
	for _, p := range checkedPackages(t) {
		if p.folder() != folder {
			continue
		}
		for _, member := range p.types.Scope().Names() {
			c, ok := p.types.Scope().Lookup(member).(*types.Const)
			if ok && types.TypeString(c.Type(), func(*types.Package) string { return "" }) == name {
				values = append(values, constant.StringVal(c.Val()))
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %s", folder, name)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// collectReasons finds the constant reasons in calls of problem.Newf and chain.Wait and in fields with the name Reason.
func collectReasons(p checkedPackage, reasons map[string]bool) {
	add := func(e ast.Expr) {
		if text, ok := p.text(e); ok && text != "" {
			reasons[text] = true
		}
	}
	inspect(p, func(call *ast.CallExpr) {
		name := types.ExprString(call.Fun)
		if slices.Contains([]string{"problem.Newf", "Newf", "chain.Wait", "Wait"}, name) && len(call.Args) > 1 {
			add(call.Args[0])
		}
	})
	inspect(p, func(field *ast.KeyValueExpr) {
		if types.ExprString(field.Key) == "Reason" {
			add(field.Value)
		}
	})
	inspect(p, func(assignment *ast.AssignStmt) {
		for i, target := range assignment.Lhs {
			// The reasons of package rolling are only for its tests and never become the reason of a condition.
			selector, ok := target.(*ast.SelectorExpr)
			if ok && selector.Sel.Name == "Reason" && len(assignment.Rhs) == len(assignment.Lhs) && p.folder() != "pkg/cluster/rolling" {
				add(assignment.Rhs[i])
			}
		}
	})
}

// collectConditionTypes finds the constants Condition….
func collectConditionTypes(p checkedPackage, found map[string]bool) {
	scope := p.types.Scope()
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && strings.HasPrefix(name, "Condition") {
			found[constant.StringVal(c.Val())] = true
		}
	}
}

// text returns the value of a constant expression.
func (p checkedPackage) text(e ast.Expr) (string, bool) {
	value := p.info.Types[e].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}

func TestEveryLabelAnnotationAndFinalizerIsDocumented(t *testing.T) {
	page := read(t, "docs/labels-and-annotations.md")
	names := 0
	for _, p := range checkedPackages(t) {
		if p.folder() != "pkg/cluster/key" {
			continue
		}
		for _, name := range p.types.Scope().Names() {
			c, ok := p.types.Scope().Lookup(name).(*types.Const)
			if !ok || !regexp.MustCompile("^(Label|Annotation|Finalizer|Condition)").MatchString(name) {
				continue
			}
			names++
			if value := constant.StringVal(c.Val()); !regexp.MustCompile("`" + regexp.QuoteMeta(value) + "(<[a-z]+>)?`").MatchString(page) {
				t.Errorf("docs/labels-and-annotations.md does not have %s, key.%s", value, name)
			}
		}
	}
	if names < 10 {
		t.Errorf("the test has found %d names and overlooks most", names)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, top...) {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), match[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, match[1])
			}
		}
	}
}

var (
	// promiseRow matches a row of a table in SECURITY.md and captures its last column.
	promiseRow = regexp.MustCompile(`(?m)^\|.*\| (.*) \|$`)
	quoted     = regexp.MustCompile("`([^`]+)`")
)

// TestEveryPromiseOfSecurityIsTested: the last column of each table row in SECURITY.md names the tests that prove it,
// each after its folder.
func TestEveryPromiseOfSecurityIsTested(t *testing.T) {
	tests := testsByFolder(t)
	cited := 0
	for _, row := range promiseRow.FindAllStringSubmatch(read(t, "SECURITY.md"), -1) {
		if row[1] == "shown by" {
			continue
		}
		missing, n := citations(row[1], tests)
		for _, name := range missing {
			t.Errorf("SECURITY.md cites %s, which does not exist", name)
		}
		if n == 0 {
			t.Errorf("SECURITY.md names no test for: %s", row[0])
		}
		cited += n
	}
	if cited < 20 {
		t.Errorf("the test has found %d citations and overlooks most", cited)
	}
}

// citations counts the tests that a text names and returns those that do not exist in the folder named before them.
func citations(text string, tests map[string]bool) (missing []string, n int) {
	folder := ""
	for _, name := range quoted.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(name[1], "Test") {
			folder = name[1]
			continue
		}
		n++
		if cited := folder + "." + name[1]; !tests[cited] {
			missing = append(missing, cited)
		}
	}
	return missing, n
}

func TestCitationsOfTestsThatDoNotExistAreFound(t *testing.T) {
	tests := map[string]bool{"pkg/a.TestOne": true, "pkg/b.TestTwo": true}
	for text, want := range map[string]string{
		"`pkg/a` `TestOne`":                      "",
		"`pkg/a` `TestOne`, `pkg/b` `TestTwo`":   "",
		"`pkg/a` `TestTwo`":                      "pkg/a.TestTwo",
		"`TestOne`":                              ".TestOne",
		"`pkg/a` `TestOne`, `TestGone`, `pkg/b`": "pkg/a.TestGone",
	} {
		if missing, n := citations(text, tests); strings.Join(missing, " ") != want || n == 0 {
			t.Errorf("%s: %v of %d are missing, want %q", text, missing, n, want)
		}
	}
}

// testsByFolder returns the tests of the checkout as "<folder>.<name>".
func testsByFolder(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	eachGoFile(t, func(path string, _ *token.FileSet, file *ast.File) {
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && strings.HasSuffix(path, "_test.go") {
				tests[filepath.Dir(path)+"."+f.Name.Name] = true
			}
		}
	})
	return tests
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

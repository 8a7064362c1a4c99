package main_test

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const controllers = "service/controller"

// shape is the files that each controller has, and which functions are in that file and in no other one.
var shape = map[string]func(*ast.FuncDecl) bool{
	// Which object a pass is about, what starts one, and how the loop is built.
	"controller.go": func(*ast.FuncDecl) bool { return false },
	// What is known before the chain runs. It only reads, see TestGatherOnlyReads.
	"gather.go": func(f *ast.FuncDecl) bool { return f.Recv != nil && f.Name.Name == "Gather" },
	// The handlers, in their order.
	"chain.go": func(f *ast.FuncDecl) bool {
		return f.Type.Results != nil && strings.HasPrefix(types.ExprString(f.Type.Results.List[0].Type), "chain.Chain[")
	},
	// What the user reads of the results.
	"conditions.go": func(f *ast.FuncDecl) bool { return f.Recv != nil && f.Name.Name == "Store" },
}

// shapeless are the files of shape that a controller does not have, and controllers that have none of them, and why.
var shapeless = map[string]string{
	"deleter/gather.go":                 "observe.Follower gathers: the deleter and unhealthynodeterminator decide on the same state",
	"unhealthynodeterminator/gather.go": "observe.Follower gathers, as for the deleter",
	"report":                            "it reports what cannot be decoded, in undecodable.go, and has no handlers",
}

// TestControllersHaveOneShape: a reader of one controller finds everything in the others.
func TestControllersHaveOneShape(t *testing.T) {
	folders, err := os.ReadDir(controllers)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		for file := range shape {
			name := filepath.Join(folder.Name(), file)
			_, err := os.Stat(filepath.Join(controllers, name))
			if why := cmp.Or(shapeless[name], shapeless[folder.Name()]); (why != "") == (err == nil) {
				t.Errorf("%s exists: %t; shapeless says %q", name, err == nil, why)
			}
		}
	}
	for name := range shapeless {
		controller, _, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(folders, func(f os.DirEntry) bool { return f.Name() == controller }) {
			t.Errorf("shapeless has %s, and there is no such controller", name)
		}
	}
	found := 0
	eachGoFile(t, func(path string, _ *token.FileSet, parsed *ast.File) {
		if !within(path, []string{controllers}) || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			for file, belongs := range shape {
				if !ok || !belongs(f) {
					continue
				}
				found++
				if filepath.Base(path) != file {
					t.Errorf("%s: %s belongs into %s", path, f.Name.Name, file)
				}
			}
		}
	})
	if found < 3*8 {
		t.Errorf("only %d functions were found", found)
	}
}

package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// odd are words and phrases that platform engineers do not use, or that hide who does what. docs/glossary.md has better
// ones.
var odd = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|anew|for ever|any more|let go|lets go|taken back|in vain|wished for|all the same|in its new form)\b`)

// plainPages are the pages outside docs that are checked, too.
var plainPages = []string{
	"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "helm/kvm-operator/README.md",
	"integration/images/addons/README.md", "integration/suites/chaos/README.md", "integration/images/guestimage/README.md",
}

// TestUsersReadPlainEnglish checks the strings (messages, errors and help) and the comments of the product, the
// descriptions of the CRDs, and the pages above.
func TestUsersReadPlainEnglish(t *testing.T) {
	for _, directory := range []string{"cmd", "flag", "pkg", "resources", "service"} {
		err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return checkFile(t, path)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages, err := filepath.Glob("helm/kvm-operator/crds/*.yaml")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no CRDs (%v)", err)
	}
	ofSmolVMs, err := filepath.Glob("helm/kvm-operator/files/smolvm/*.yaml")
	if err != nil || len(ofSmolVMs) == 0 {
		t.Fatalf("there are no CRDs of SmolVMs (%v)", err)
	}
	ofMachines, err := filepath.Glob("helm/kubevirt-operator/crds/*.yaml")
	if err != nil || len(ofMachines) == 0 {
		t.Fatalf("there are no CRDs of Machines (%v)", err)
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("there are no docs (%v)", err)
	}
	for _, page := range slices.Concat(pages, ofSmolVMs, ofMachines, docs, plainPages) {
		if page == "docs/glossary.md" {
			continue // it names the odd words
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word := odd.FindString(strings.ReplaceAll(line, "''nobody''", "")); word != "" {
				t.Errorf("%s:%d has %q", page, i+1, word)
			}
		}
	}
}

func checkFile(t *testing.T, path string) error {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		if word := odd.FindString(strings.ReplaceAll(group.Text(), "'nobody'", "")); word != "" {
			t.Errorf("%s: the comment has %q: %s", files.Position(group.Pos()), word, group.Text())
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if word := odd.FindString(text); err == nil && word != "" && text != "nobody" {
			t.Errorf("%s has %q: %s", files.Position(literal.Pos()), word, text)
		}
		return true
	})
	return nil
}

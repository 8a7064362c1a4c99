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
var odd = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|anew|for ever|any more|let go|lets go|taken back|in vain|wished for|all the same|in its new form|going on|not well|last words|leads elsewhere|(?:is|are) ill|behind [a-z ]+'s back)\b`)

// plainPages are the pages outside docs and integration that are checked, too.
var plainPages = []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "helm/kvm-operator/README.md"}

// TestUsersReadPlainEnglish checks the strings and the comments of the product and of all tests, the pages of
// integration, the descriptions of the CRDs, and the pages above.
func TestUsersReadPlainEnglish(t *testing.T) {
	for _, directory := range []string{"cmd", "flag", "helm", "integration", "pkg", "resources", "runner", "service", "smolvm"} {
		err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case filepath.Ext(path) == ".go":
				return checkFile(t, path)
			case filepath.Ext(path) == ".md" && directory == "integration":
				checkPage(t, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("there are no sources (%v)", err)
	}
	for _, path := range sources {
		if path == "language_test.go" {
			continue // it names the odd words
		}
		if err := checkFile(t, path); err != nil {
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
		checkPage(t, page)
	}
}

func checkPage(t *testing.T, page string) {
	t.Helper()
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

package main_test

import (
	"cmp"
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
// ones. A phrase may continue on the next line.
var odd = regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(strings.Join([]string{
	// Nobody knows who these are.
	"whoever", "nobody", "somebody", "anybody", "everybody", "whom", "he", "him", "his", "himself",
	// Words of old books.
	"anew", "for ever", "any more", "any longer", "once more", "in vain", "in spite of", "thus", "hence", "thereby", "whereby",
	"wherever", "whichever", "mends?", "mended", "mending", "wish", "wishes", "wished",
	// Idioms, and phrases that are translated from another language.
	"(?:go|goes|going|went|gone) on", "(?:stand|stands|stood|standing) in", "lets? go", "letting go", "of no use",
	"(?:tell|tells|told) why", "(?:tell|tells|told) of", "puts? back", "taken back", "what becomes of", "com(?:e|es) of",
	"(?:at|in) this moment", "in a moment", "in trouble", "all the same", "in its new form", "not well", "unwell", "sick", "ill",
	"last words", "leads elsewhere", "gets? along", "stays? as (?:it|they) (?:is|are|was|were)", "as it was",
	"behind [a-z ]+'s back", "again and again", "for good", "a while", "without end", "(?:is|are|was|were|be|been|being) told",
	"puts? (?:it )?right", "at hand", "at will", "of late", "far behind", "lest", "upon", "(?:left|leaves?|leaving) the spec",
}, "|"), " ", `[\s#]+`) + `)\b`)

// allowed removes what others wrote: the name of a user of Linux, and Kubernetes' description of a field.
var allowed = strings.NewReplacer("''nobody''", "", "'nobody'", "", "that the condition was set based upon", "")

// whole are files that are checked as a whole: documents, and what helm, kubectl, make and shells read.
var whole = []string{".md", ".yaml", ".yml", ".sh", ".tpl", ".txt", ".gotmpl", ".awk", "Makefile", "Dockerfile"}

// unchecked are files with words of others, and those that have to name the odd words. Comments in boot data stay,
// because a change of them replaces nodes.
var unchecked = regexp.MustCompile(`^(language_test\.go|docs/glossary\.md|\.tools/.*|pkg/cluster/cloudconfig/assets/.*|.*/testdata/.*)$`)

// TestUsersReadPlainEnglish checks the strings and the comments of all Go files, and all other files that people read.
func TestUsersReadPlainEnglish(t *testing.T) {
	checked := map[string]int{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		kind := cmp.Or(filepath.Ext(path), filepath.Base(path))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == ".git" || path == ".tools" || path == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || entry.Type()&fs.ModeSymlink != 0 || unchecked.MatchString(path):
			return nil
		case kind == ".go":
			err = checkFile(t, path)
		case slices.Contains(whole, kind):
			checkPage(t, path)
		}
		checked[kind]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range append(whole, ".go") {
		if checked[kind] == 0 {
			t.Errorf("there are no files of the kind %s", kind)
		}
	}
}

func checkPage(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	words := allowed.Replace(string(text))
	for _, at := range odd.FindAllStringIndex(words, -1) {
		t.Errorf("%s:%d has %q", page, 1+strings.Count(words[:at[0]], "\n"), words[at[0]:at[1]])
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
		if word := odd.FindString(allowed.Replace(group.Text())); word != "" {
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

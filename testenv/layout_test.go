package testenv

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits of the house style.
const (
	maxFileLines = 500
	maxFuncLines = 70
	maxTestLines = 100 // a scenario told in one piece
)

func TestLayoutTopLevel(t *testing.T) {
	folders := []string{".ci", ".git", "agent", "cmd", "hub", "packaging", "spool", "sync", "testenv"}
	files := []string{".gitignore", "go.mod", "go.sum", "tools.mod", "tools.sum", "LICENSE", "Makefile", "README.md"}
	made := []string{"bin", "dist", ".cache"} // by make; not in the repository
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case ignored(name):
		case e.IsDir() && !slices.Contains(folders, name) && !slices.Contains(made, name):
			t.Errorf("folder %s: the design has no such place at the top", name)
		case !e.IsDir() && !slices.Contains(files, name) && name != ".git": // a worktree's .git is a file
			t.Errorf("file %s: the design has no such place at the top", name)
		}
	}
	if entries, err := os.ReadDir("../sync"); err == nil {
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".go") {
				t.Errorf("sync/%s: sync is a folder, not a package", e.Name())
			}
		}
	}
}

// ignored are leftovers of `go test` that .gitignore names too.
func ignored(name string) bool {
	return slices.Contains([]string{".test", ".prof", ".out"}, filepath.Ext(name))
}

func TestLayoutFilesAndFunctionsAreShort(t *testing.T) {
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == ".cache"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if n := fset.File(f.FileStart).LineCount(); n > maxFileLines {
			t.Errorf("%s has %d lines; split it along the data path (limit %d)", name, n, maxFileLines)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			limit := maxFuncLines
			if strings.HasSuffix(name, "_test.go") {
				limit = maxTestLines
			}
			if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > limit {
				t.Errorf("%s: %s has %d lines; split it along the data path (limit %d)", fset.Position(fn.Pos()), fn.Name.Name, n, limit)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLayoutEveryPackageSaysWhatItGuarantees: the reader begins at the package comment.
func TestLayoutEveryPackageSaysWhatItGuarantees(t *testing.T) {
	fset := token.NewFileSet()
	documented := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		documented[filepath.Dir(name)] = documented[filepath.Dir(name)] || f.Doc.Text() != ""
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment says what the package guarantees and in which order to read it", dir)
		}
	}
}

package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// legalName matches the names of files with licences and copyright notices.
var legalName = regexp.MustCompile(`^(?i)(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// codeExtensions contains the extensions of source files. A source file is not a licence, even if its name matches legalName.
var codeExtensions = []string{".go", ".s", ".c", ".h", ".py", ".sh", ".json", ".yaml", ".yml", ".tmpl"}

// A fileText is a licence text, with the names of all files that contain exactly this text.
type fileText struct {
	content string
	files   []string // names of the files, each with its module
}

// writeNotices writes the licences of all modules in the programs, and of Go's standard library. It writes each text once, with the names
// of the files that contain the text. It uses the versions of the modules from which the programs were built. It returns an error if a
// module has no licence.
func writeNotices(out io.Writer, programs []string) error {
	modules := map[string]*debug.Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path+" "+m.Version] = m
		}
	}
	dirs, err := findSources(modules)
	if err != nil {
		return err
	}
	texts := map[string]*fileText{}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if err := collectLicences(texts, name, dirs[name]); err != nil {
			return err
		}
	}
	byFile := func(a, b *fileText) int { return cmp.Compare(a.files[0], b.files[0]) }
	list := slices.SortedFunc(maps.Values(texts), byFile)
	fmt.Fprintf(out, "The components of the programs of islet besides islet itself, and their licences.\n")
	for _, t := range list {
		fmt.Fprintf(out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(t.files, "\n"), strings.TrimSpace(t.content))
	}
	return nil
}

// findSources returns the source directories of the modules and of Go. The key is the name and the version. It downloads missing modules,
// and compares their checksums with the checksums in the programs.
func findSources(modules map[string]*debug.Module) (map[string]string, error) {
	root, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	lines := strings.Fields(string(root))
	if len(lines) != 2 {
		return nil, fmt.Errorf("unexpected output of go env: %q", root)
	}
	dirs := map[string]string{"Go " + strings.TrimPrefix(lines[1], "go"): lines[0]}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	if len(modules) == 0 {
		return dirs, nil
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w: %s", err, out)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var is struct{ Path, Version, Dir, Sum string }
		if err := dec.Decode(&is); err != nil {
			return nil, err
		}
		name := is.Path + " " + is.Version
		if m := modules[name]; m == nil || m.Sum != is.Sum {
			return nil, fmt.Errorf("the checksum of %s is not the checksum of the build", name)
		}
		dirs[name] = is.Dir
	}
	return dirs, nil
}

// collectLicences adds the licence texts of a module. The top directory of the module must contain a licence. Licence files in
// subdirectories apply to third-party code in the module. In Go's own source, only the top directory is searched.
func collectLicences(texts map[string]*fileText, name, dir string) error {
	found := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (strings.HasPrefix(name, "Go ") || d.Name() == "testdata" || d.Name() == "vendor" ||
			strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.Type().IsRegular() || !legalName.MatchString(d.Name()) || slices.Contains(codeExtensions, filepath.Ext(d.Name())):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found = found || filepath.Dir(path) == dir
		t := texts[string(content)]
		if t == nil {
			t = &fileText{content: string(content)}
			texts[string(content)] = t
		}
		t.files = append(t.files, name+": "+strings.TrimPrefix(path, dir+"/"))
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s has no licence file in its top directory", name)
	}
	return err
}

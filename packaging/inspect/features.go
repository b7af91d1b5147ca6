package main

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const ownModule = "github.com/islet-edge/islet/"

// A feature is a part of the program, with the packages that could be left out. A name that ends with a slash stands for all packages below
// it. A name that starts with ./ is a package of islet.
type feature struct {
	name     string
	packages []string
}

// features contains the features in the order of the table. A package can belong to two of them.
var features = []feature{
	{"CSI", []string{"./agent/volume/csi", "./edge/csinode"}},
	{"DRA", []string{"./agent/device/dra", "./edge/resourceslice"}},
	{"device plugins, CPU and memory managers", []string{
		"./agent/device/deviceplugin", "./agent/device/devicemanager", "./agent/device/cpumanager", "./agent/device/memorymanager",
		"./agent/device/podresources",
	}},
	{"remote runtime", []string{"./runtime/remote", "./agent/engine/podlogs"}},
	{"runtime classes with a containerd shim", []string{"./runtime/taskshim"}},
	{"status page", []string{"./agent/kubelet/page"}},
	{"doctor", []string{"./agent/doctor"}},
	{"commands, without doctor", []string{"./agent/cli", "./agent/cli/"}},
	{"updates, sent configurations", []string{"./agent/change/"}},
	{"exec, attach, port-forward", []string{"./runtime/stream", "./runtime/stream/", "k8s.io/cri-streaming/", "k8s.io/streaming/"}},
	{"metrics pages", []string{"./metrics/exposition", "github.com/prometheus/client_golang/"}},
	{"images: pull, import, unpack", []string{"./runtime/image"}},
	{"containerd's packages", []string{"github.com/containerd/containerd/v2/"}},
	{"containers and shims", []string{"./runtime/ctrd", "./runtime/shim", "./runtime/shim/", "./runtime/ocispec", "./runtime/cgroup"}},
	{"pod network", []string{"./net/"}},
	{"SQLite", []string{"modernc.org/sqlite", "modernc.org/sqlite/"}},
	{"link to the API server (client-go)", []string{"k8s.io/client-go/", "./edge/kube", "./edge/link", "./edge/outbox", "./edge/twin"}},
	{"types of Kubernetes (k8s.io/api)", []string{"k8s.io/api/"}},
	{"gRPC", []string{"google.golang.org/grpc", "google.golang.org/grpc/"}},
	{"protobuf", []string{"google.golang.org/protobuf/"}},
}

// matches reports whether a package belongs to the feature itself.
func (f feature) matches(path string) bool {
	if own, ok := strings.CutPrefix(path, ownModule); ok {
		path = "./" + own
	}
	return slices.ContainsFunc(f.packages, func(p string) bool {
		return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}

// A cost contains the bytes of a feature: its own packages, the packages that are linked only for it, and the share of the tables that the
// linker creates for their code.
type cost struct{ own, others, tables uint64 }

func (c cost) sum() uint64 { return c.own + c.others + c.tables }

// writeFeatures writes a table of the bytes that each feature costs the program in the file path. The program must have its symbols. It
// runs go list in the directory dir, which must contain the source of the program.
func writeFeatures(out io.Writer, path, dir string) error {
	imports, err := readImports(dir)
	if err != nil {
		return err
	}
	p, err := readProgram(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| feature | own packages | packages only for it | tables | together | of %.1f MB |\n", mb(p.bytes))
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, f := range features {
		c, err := p.costOf(f, imports)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %s | %.2f | %.2f | %.2f | %.2f MB | %.1f %% |\n", f.name, mb(c.own), mb(c.others), mb(c.tables), mb(c.sum()),
			100*float64(c.sum())/float64(p.bytes))
	}
	return nil
}

func mb(n uint64) float64 { return float64(n) / 1e6 }

// readImports returns the imports of all packages of the program. The imports of the package main have the key "main".
func readImports(dir string) (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Imports", ".")
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(text))); dec.More(); {
		var p struct {
			ImportPath, Name string
			Imports          []string
		}
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		if p.Name == "main" {
			p.ImportPath = "main"
		}
		all[p.ImportPath] = p.Imports
	}
	return all, nil
}

// A program contains the bytes of code and data by package.
type program struct {
	code, data map[string]uint64
	allCode    uint64
	tables     uint64 // bytes that belong to no package: tables of functions, types and strings
	bytes      uint64 // size of the stripped program
}

func readProgram(path string) (*program, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: build it without -s", path, err)
	}
	p := &program{code: map[string]uint64{}, data: map[string]uint64{}}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			p.bytes += s.Size
		}
	}
	p.tables = p.bytes
	for _, s := range symbols {
		sizes := p.data
		switch t := elf.ST_TYPE(s.Info); {
		case inMemoryOnly(f, s):
			continue
		case t == elf.STT_FUNC:
			sizes = p.code
			p.allCode += s.Size
		case t != elf.STT_OBJECT:
			continue
		}
		sizes[packageOf(s.Name)] += s.Size
		p.tables -= min(p.tables, s.Size)
	}
	if p.allCode == 0 {
		return nil, errors.New(path + " has no functions")
	}
	return p, nil
}

// packageOf returns the package of a symbol, or "" if the symbol belongs to none.
func packageOf(symbol string) string {
	name := strings.TrimPrefix(symbol, "type:")
	for _, prefix := range []string{".eq.", ".hash.", "go:itab."} {
		name = strings.TrimPrefix(name, prefix)
	}
	name = strings.TrimLeft(name, "*")
	if end := strings.IndexAny(name, "([,"); end >= 0 {
		name = name[:end]
	}
	at := strings.LastIndexByte(name, '/') + 1
	last, _, ok := strings.Cut(name[at:], ".")
	if !ok {
		return ""
	}
	return name[:at] + strings.ReplaceAll(last, "%2e", ".") // the linker writes a dot in the last element as %2e
}

// costOf returns the cost of a feature. A package is linked only for the feature if no path of imports leads to it around the feature's own
// packages.
func (p *program) costOf(f feature, imports map[string][]string) (c cost, err error) {
	without := map[string]bool{}
	var walk func(path string)
	walk = func(path string) {
		if !without[path] && !f.matches(path) {
			without[path] = true
			for _, next := range imports[path] {
				walk(next)
			}
		}
	}
	walk("main")
	var code uint64
	found := map[string]bool{}
	for path := range imports {
		if without[path] {
			continue
		}
		code += p.code[path]
		if !f.matches(path) {
			c.others += p.code[path] + p.data[path]
			continue
		}
		c.own += p.code[path] + p.data[path]
		for _, name := range f.packages {
			found[name] = found[name] || (feature{packages: []string{name}}).matches(path)
		}
	}
	for _, name := range f.packages {
		if !found[name] {
			return c, fmt.Errorf("%s: the program has no package %s", f.name, name)
		}
	}
	c.tables = uint64(float64(p.tables) * float64(code) / float64(p.allCode))
	return c, nil
}

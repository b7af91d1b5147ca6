package upstream

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// metricSources contains the packages that declare the metrics of a kubelet.
var metricSources = []string{
	"k8s.io/kubernetes/cmd/kubelet/app", "k8s.io/kubernetes/pkg/kubelet/...", "k8s.io/kubernetes/pkg/volume/...", "k8s.io/kubernetes/pkg/credentialprovider/...", "k8s.io/component-base/metrics/prometheus/...", "k8s.io/component-base/version/...",
	"k8s.io/component-base/compatibility/...", "k8s.io/controller-manager/pkg/informerfactory/...",
}

// A source is a package whose declarations of metrics are read.
type source struct {
	path   string
	files  map[string]*ast.File
	values map[string]ast.Expr // constants and variables of the package
	byPath map[string]*source
}

// kubelet returns the metrics that the source of the kubelet declares. Kubernetes' module has no list of them.
func kubelet(t *testing.T) (out []string) {
	t.Helper()
	text, err := exec.Command("go", append([]string{"list", "-e", "-f", "{{.ImportPath}} {{.Dir}} {{join .GoFiles \",\"}}"}, metricSources...)...).Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	all := map[string]*source{}
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		if len(w) < 3 {
			continue
		}
		s := &source{path: w[0], files: map[string]*ast.File{}, values: map[string]ast.Expr{}, byPath: all}
		all[s.path] = s
		for name := range strings.SplitSeq(w[2], ",") {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(w[1], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			s.files[name] = f
			s.declare(f)
		}
	}
	for _, s := range all {
		for name, f := range s.files {
			if name == "cri_metrics.go" { // the container runtime names these metrics
				continue
			}
			page := s.page(name)
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if l := s.metric(t, page, f, call); l != "" {
						out = append(out, l)
					}
				}
				return true
			})
		}
	}
	return out
}

// page returns the HTTP path on which a kubelet serves the metrics of a file.
func (s *source) page(file string) string {
	switch {
	case path.Base(s.path) == "prober":
		return "/metrics/probes"
	case file == "resource_metrics.go":
		return "/metrics/resource"
	case path.Base(s.path) == "slis":
		return "/metrics/slis"
	}
	return "/metrics"
}

func (s *source) declare(f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for i, name := range v.Names {
					if i < len(v.Values) {
						s.values[name.Name] = v.Values[i]
					}
				}
			}
		}
	}
}

// metric returns the line of a call that declares a metric, or "".
func (s *source) metric(t *testing.T, page string, f *ast.File, call *ast.CallExpr) string {
	t.Helper()
	function := ""
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		function = fun.Sel.Name
	case *ast.Ident:
		function = fun.Name
	}
	if function == "NewDesc" && len(call.Args) == 6 {
		return line(page, s.text(t, f, call.Args[0]), "custom", s.stability(f, call.Args[4]), s.labels(t, f, call.Args[2]))
	}
	kind := strings.TrimPrefix(strings.TrimPrefix(function, "New"), "Timing")
	kind = strings.TrimSuffix(strings.TrimSuffix(kind, "Vec"), "Func")
	if kind != "Counter" && kind != "Gauge" && kind != "Histogram" && kind != "Summary" || len(call.Args) == 0 {
		return ""
	}
	opts := call.Args[0]
	if u, ok := opts.(*ast.UnaryExpr); ok {
		opts = u.X
	}
	literal, ok := opts.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	parts, stability := map[string]string{}, "ALPHA"
	for _, e := range literal.Elts {
		kv := e.(*ast.KeyValueExpr)
		switch key := kv.Key.(*ast.Ident).Name; key {
		case "Namespace", "Subsystem", "Name":
			parts[key] = s.text(t, f, kv.Value)
		case "StabilityLevel":
			stability = s.stability(f, kv.Value)
		}
	}
	var labels []string
	if strings.HasSuffix(function, "Vec") {
		labels = s.labels(t, f, call.Args[1])
	}
	return line(page, join(parts["Namespace"], parts["Subsystem"], parts["Name"]), kind, stability, labels)
}

func join(parts ...string) string {
	return strings.Join(strings.FieldsFunc(strings.Join(parts, "\n"), func(r rune) bool { return r == '\n' }), "_")
}

func (s *source) stability(f *ast.File, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.Ident:
		return x.Name
	}
	return "ALPHA"
}

func (s *source) labels(t *testing.T, f *ast.File, e ast.Expr) (out []string) {
	t.Helper()
	owner, f, e := s.resolve(f, e)
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, l := range literal.Elts {
		out = append(out, owner.text(t, f, l))
	}
	return out
}

// resolve follows names to their values.
func (s *source) resolve(f *ast.File, e ast.Expr) (*source, *ast.File, ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			value, ok := s.values[x.Name]
			if !ok {
				return s, f, e
			}
			e = value
		case *ast.SelectorExpr:
			name, ok := x.X.(*ast.Ident)
			other := s.imported(f, name)
			if !ok || other == nil || other.values[x.Sel.Name] == nil {
				return s, f, e
			}
			s, e = other, other.values[x.Sel.Name]
		case *ast.CallExpr: // string(name)
			if fun, ok := x.Fun.(*ast.Ident); !ok || fun.Name != "string" {
				return s, f, e
			}
			e = x.Args[0]
		default:
			return s, f, e
		}
	}
}

func (s *source) imported(f *ast.File, name *ast.Ident) *source {
	if name == nil {
		return nil
	}
	for _, i := range f.Imports {
		at, _ := strconv.Unquote(i.Path.Value)
		if i.Name != nil && i.Name.Name == name.Name || i.Name == nil && path.Base(at) == name.Name {
			return s.byPath[at]
		}
	}
	return nil
}

// text returns the value of a constant expression.
func (s *source) text(t *testing.T, f *ast.File, e ast.Expr) string {
	t.Helper()
	s, f, e = s.resolve(f, e)
	switch x := e.(type) {
	case *ast.BasicLit:
		v, err := strconv.Unquote(x.Value)
		if err != nil {
			t.Fatal(err)
		}
		return v
	case *ast.BinaryExpr:
		return s.text(t, f, x.X) + s.text(t, f, x.Y)
	case *ast.CallExpr: // metrics.BuildFQName
		var parts []string
		for _, a := range x.Args {
			parts = append(parts, s.text(t, f, a))
		}
		return join(parts...)
	}
	t.Errorf("%s: cannot read the constant %T of a metric: %v", s.path, e, e)
	return ""
}

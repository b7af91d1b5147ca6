package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decodersFile is the path of a list of the decoders in the shipped programs. Every function that decodes, unpacks or reads a whole input
// has a row. A row contains the function's calls of decoders, the sender of the input, and the test that sends a bomb. The top of the file
// describes the format of a row.
const decodersFile = "decoders.txt"

// foreign contains the senders of untrusted input. A row with such a sender must name a test that sends a bomb. A row with another sender
// must give a reason.
var foreign = []string{"image", "registry", "server", "plugin", "pod", "manifest", "client", "configuration", "release", "bundle", "backup"}

// trusted contains the senders that have full control of the node anyway. The sender "own" is islet itself, which has written files that
// only root can change. The sender "caller" is the user who runs a command. The command uses only memory of the user's own process.
var trusted = []string{"own", "kernel", "root", "embedded", "caller"}

// decoders contains the decoding functions of packages, by import path. A name that ends with * matches all names with that prefix. A name
// that begins with & matches a literal of that type.
var decoders = map[string][]string{
	"archive/tar":       {"NewReader"},
	"archive/zip":       {"*"},
	"bufio":             {"NewReader*", "NewScanner"},
	"compress/bzip2":    {"*"},
	"compress/flate":    {"NewReader*"},
	"compress/gzip":     {"NewReader"},
	"compress/lzw":      {"NewReader"},
	"compress/zlib":     {"NewReader*"},
	"crypto/tls":        {"X509KeyPair", "LoadX509KeyPair"},
	"crypto/x509":       {"Parse*"},
	"debug/elf":         {"NewFile", "Open"},
	"encoding/asn1":     {"Unmarshal*"},
	"encoding/base64":   {"NewDecoder"},
	"encoding/binary":   {"Read"},
	"encoding/csv":      {"NewReader"},
	"encoding/gob":      {"NewDecoder"},
	"encoding/hex":      {"NewDecoder"},
	"encoding/json":     {"Unmarshal", "NewDecoder", "Indent", "Compact"},
	"encoding/json/v2":  {"Unmarshal*"},
	"encoding/pem":      {"Decode"},
	"encoding/xml":      {"Unmarshal", "NewDecoder"},
	"io":                {"ReadAll"},
	"io/fs":             {"ReadFile"},
	"net/http":          {"ReadResponse", "ReadRequest", "&Server", "&Transport", "DefaultTransport", "DefaultClient", "Get", "Post*", "Head"},
	"net/http/httputil": {"&ReverseProxy", "Dump*", "NewChunkedReader"},
	"net/textproto":     {"NewReader"},
	"os":                {"ReadFile"},
	"text/template":     {"New", "Parse*"},

	"github.com/containerd/containerd/v2/core/content":               {"ReadBlob"},
	"github.com/containerd/containerd/v2/core/images":                {"Manifest", "Config", "Children", "Platforms", "RootFS", "ConfigPlatform", "Check"},
	"github.com/containerd/containerd/v2/core/images/archive":        {"*"},
	"github.com/containerd/containerd/v2/core/remotes/docker":        {"NewResolver"},
	"github.com/containerd/containerd/v2/core/remotes/docker/config": {"ConfigureHosts"},
	"github.com/containerd/containerd/v2/pkg/archive":                {"Apply"},
	"github.com/containerd/containerd/v2/pkg/archive/compression":    {"*"},
	"github.com/containerd/containerd/v2/pkg/oci":                    {"With*"},
	"github.com/containerd/ttrpc":                                    {"NewClient", "NewServer"},
	"github.com/containernetworking/cni/libcni":                      {"*Conf*From*"},
	"github.com/containernetworking/cni/pkg/invoke":                  {"ExecPlugin*", "Delegate*"},
	"github.com/containernetworking/cni/pkg/skel":                    {"PluginMain*"},
	"github.com/containernetworking/cni/pkg/types/100":               {"NewResult"},
	"github.com/containernetworking/cni/pkg/types/create":            {"*"},
	"github.com/containernetworking/cni/pkg/version":                 {"Parse*", "NewResult"},
	"github.com/gorilla/websocket":                                   {"&Upgrader", "&Dialer", "DefaultDialer", "Upgrade", "ReadJSON"},
	"github.com/klauspost/compress/gzip":                             {"NewReader"},
	"github.com/klauspost/compress/zstd":                             {"NewReader"},
	"google.golang.org/grpc":                                         {"NewClient", "NewServer", "Dial", "DialContext"},
	"google.golang.org/protobuf/encoding/protojson":                  {"Unmarshal"},
	"google.golang.org/protobuf/encoding/prototext":                  {"Unmarshal"},
	"google.golang.org/protobuf/proto":                               {"Unmarshal"},
	"github.com/moby/spdystream/spdy":                                {"NewFramer*"},
	"github.com/prometheus/common/expfmt":                            {"NewDecoder", "&TextParser"},
	"k8s.io/apimachinery/pkg/runtime":                                {"Decode", "DecodeInto"},
	"k8s.io/apimachinery/pkg/util/yaml":                              {"*"},
	"k8s.io/apimachinery/pkg/util/strategicpatch":                    {"*"},
	"k8s.io/apimachinery/pkg/watch":                                  {"NewStreamWatcher"},
	"k8s.io/client-go/rest":                                          {"RESTClientFor*", "HTTPClientFor", "UnversionedRESTClientFor*"},
	"k8s.io/client-go/tools/clientcmd":                               {"Load*", "BuildConfig*"},
	"k8s.io/cri-streaming/pkg/streaming":                             {"NewServer"},
	"k8s.io/streaming/pkg/httpstream/spdy":                           {"NewClientConnection*", "NewResponseUpgrader*", "NewServerConnection*"},
	"sigs.k8s.io/json":                                               {"Unmarshal*"},
	"sigs.k8s.io/yaml":                                               {"Unmarshal*", "YAMLToJSON*", "JSONToYAML"},
	"tags.cncf.io/container-device-interface/pkg/cdi":                {"NewCache", "ReadSpec", "ParseSpec"},
	"github.com/moby/sys/mountinfo":                                  {"GetMounts*"},
}

// decodingMethods contains the names of decoding methods of any type.
var decodingMethods = []string{
	"AppendCertsFromPEM", "Decode", "DecodeElement", "Into", "NextReader", "ParseForm", "ParseMultipartForm", "ReadBytes",
	"ReadFile", "ReadFrame", "ReadJSON", "ReadLine", "ReadMessage", "ReadSlice", "ReadString", "Unmarshal", "UnmarshalStrict",
}

// TestDecoders compares the calls of decoders in the shipped programs with decodersFile. It fails for a call that is not listed, for a row
// without a call, and for a row that names a missing test.
func TestDecoders(t *testing.T) {
	found := map[string]string{} // the calls of each function, by its folder and name
	for folder := range shippedFolders(t) {
		maps.Copy(found, decodersOf(t, folder))
	}
	if len(found) < 100 {
		t.Fatalf("only %d functions decode: the search is broken", len(found))
	}
	rows := decoderRows(t)
	for _, where := range slices.Sorted(maps.Keys(found)) {
		r, listed := rows[where]
		switch {
		case !listed:
			t.Errorf("%s is not in %s. Add the sender of its input, and the test that sends a bomb:\n%s | %s | SENDER | FOLDER.TestNAME",
				where, decodersFile, where, found[where])
		case r.calls != found[where]:
			t.Errorf("%s calls %q, and %s says %q: does the bomb still reach all of them?", where, found[where], decodersFile, r.calls)
		}
	}
	tests := testNames{}
	for _, where := range slices.Sorted(maps.Keys(rows)) {
		if found[where] == "" {
			t.Errorf("%s is in %s but does not decode: remove its row", where, decodersFile)
			continue
		}
		if err := rows[where].check(tests); err != nil {
			t.Errorf("%s:%d: %s: %v", decodersFile, rows[where].line, where, err)
		}
	}
}

// A decoderRow is a row of decodersFile.
type decoderRow struct {
	line                  int
	calls, sender, answer string
}

// check returns an error for a row with an unknown sender. The row must also name an existing test, or give a reason.
func (r decoderRow) check(tests testNames) error {
	for sender := range strings.SplitSeq(r.sender, ",") {
		if !slices.Contains(foreign, sender) && !slices.Contains(trusted, sender) {
			return fmt.Errorf("%q is not a sender: one of %q needs a bomb, one of %q a reason", sender, foreign, trusted)
		}
	}
	first, _, _ := strings.Cut(r.sender, ",")
	if !slices.Contains(foreign, first) {
		if len(strings.Fields(r.answer)) < 3 {
			return fmt.Errorf("%q is not a reason", r.answer)
		}
		return nil
	}
	named := strings.FieldsFunc(r.answer, func(c rune) bool { return c == ',' || c == ' ' })
	if len(named) == 0 {
		return fmt.Errorf("the row has no bomb")
	}
	for _, test := range named {
		if folder, name, ok := strings.Cut(test, "."); !ok || !strings.HasPrefix(name, "Test") || !tests.in(folder)[name] {
			return fmt.Errorf("%q is not a test: write FOLDER.TestNAME", test)
		}
	}
	return nil
}

// decoderRows parses decodersFile.
func decoderRows(t *testing.T) map[string]decoderRow {
	t.Helper()
	f, err := os.Open(decodersFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, last, lines := map[string]decoderRow{}, "", bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "#") || lines.Text() == "" {
			continue
		}
		parts := strings.Split(lines.Text(), " | ")
		if len(parts) != 4 {
			t.Fatalf("%s:%d: not WHERE | CALLS | SENDER | BOMB OR REASON", decodersFile, n)
		}
		if parts[0] <= last {
			t.Errorf("%s:%d: %s does not come after %s", decodersFile, n, parts[0], last)
		}
		last = parts[0]
		rows[last] = decoderRow{line: n, calls: parts[1], sender: parts[2], answer: parts[3]}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// shippedFolders returns the folders of islet's packages that are linked into islet and its shim.
func shippedFolders(t *testing.T) map[string]bool {
	t.Helper()
	folders := map[string]bool{}
	for _, program := range []string{".", "./runtime/shim/cmd"} {
		for imp, p := range linked(t, program) {
			if p.Module != nil && p.Module.Path == module {
				folders[short(imp)] = true
			}
		}
	}
	return folders
}

// decodersOf returns the calls of decoders in a folder, by function.
func decodersOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	counts := map[string]map[string]int{}
	for _, f := range sources(t, folder) {
		for _, decl := range f.Decls {
			for _, call := range decodingCalls(decl, f.packages) {
				where := path.Join(".", folder) + "." + declName(decl)
				if counts[where] == nil {
					counts[where] = map[string]int{}
				}
				counts[where][call]++
			}
		}
	}
	found := map[string]string{}
	for where, calls := range counts {
		var list []string
		for _, call := range slices.Sorted(maps.Keys(calls)) {
			if n := calls[call]; n > 1 {
				call += "*" + strconv.Itoa(n)
			}
			list = append(list, call)
		}
		found[where] = strings.Join(list, " ")
	}
	return found
}

// decodingCalls returns the names of the decoders that a declaration calls or passes as values.
func decodingCalls(decl ast.Decl, packages map[string]string) (calls []string) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if s, ok := n.Type.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && named(decoders[packages[x.Name]], "&"+s.Sel.Name) {
					calls = append(calls, x.Name+"."+s.Sel.Name)
				}
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && named(decoders[packages[x.Name]], n.Sel.Name) {
				calls = append(calls, x.Name+"."+n.Sel.Name)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(decodingMethods, s.Sel.Name) {
				if x, ok := s.X.(*ast.Ident); !ok || packages[x.Name] == "" {
					calls = append(calls, "."+s.Sel.Name)
				}
			}
		}
		return true
	})
	return calls
}

// named reports whether a name matches one of the patterns.
func named(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok && strings.HasPrefix(pattern, "&") == strings.HasPrefix(name, "&")
	})
}

// declName returns the name of a function with its receiver, or of a variable.
func declName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || len(d.Recv.List) == 0 {
			return d.Name.Name
		}
		recv := d.Recv.List[0].Type
		if s, ok := recv.(*ast.StarExpr); ok {
			recv = s.X
		}
		if g, ok := recv.(*ast.IndexExpr); ok {
			recv = g.X
		}
		if id, ok := recv.(*ast.Ident); ok {
			return id.Name + "." + d.Name.Name
		}
	case *ast.GenDecl:
		if len(d.Specs) > 0 {
			if v, ok := d.Specs[0].(*ast.ValueSpec); ok && len(v.Names) > 0 {
				return v.Names[0].Name
			}
		}
	}
	return "?"
}

// testNames contains the names of the tests, by folder.
type testNames map[string]map[string]bool

// in returns the names of the tests in a folder. It parses each folder once.
func (all testNames) in(folder string) map[string]bool {
	if all[folder] != nil {
		return all[folder]
	}
	all[folder] = map[string]bool{}
	files, err := fs.Glob(os.DirFS(filepath.FromSlash(folder)), "*_test.go")
	if err != nil {
		return nil
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, name), nil, 0)
		if err != nil {
			continue // the compiler reports the error
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				all[folder][fn.Name.Name] = true
			}
		}
	}
	return all[folder]
}

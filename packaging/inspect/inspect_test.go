package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// buildProgram builds the program under test with symbols.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inspect")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "../mkimage")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestInspect(t *testing.T) {
	path := buildProgram(t)
	t.Run("sbom", func(t *testing.T) {
		t.Setenv("SOURCE_DATE_EPOCH", "86400")
		var first, second bytes.Buffer
		for _, out := range []*bytes.Buffer{&first, &second} {
			if err := run([]string{"sbom", path, "1.2.3"}, out); err != nil {
				t.Fatal(err)
			}
		}
		if first.String() != second.String() {
			t.Error("the same binary gave two documents")
		}
		var d document
		if err := json.Unmarshal(first.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		if d.Packages[0].Version != "1.2.3" || d.Creation.Created != "1970-01-02T00:00:00Z" {
			t.Errorf("version %q, created %q", d.Packages[0].Version, d.Creation.Created)
		}
		ids := map[string]bool{}
		for _, p := range d.Packages {
			if ids[p.ID] {
				t.Errorf("%s occurs twice", p.ID)
			}
			ids[p.ID] = true
			if !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
				t.Errorf("%q is not an SPDX identifier", p.ID)
			}
		}
		for _, want := range []string{"SPDXRef-stdlib", "SPDXRef-github.com-google-go-containerregistry"} {
			if !ids[want] {
				t.Errorf("%s is missing", want)
			}
		}
		if len(d.Relationships) != len(d.Packages) {
			t.Errorf("%d relationships of %d packages", len(d.Relationships), len(d.Packages))
		}
	})
	t.Run("sbom with the OCI runtime", func(t *testing.T) {
		parts := filepath.Join(t.TempDir(), "parts")
		sum := strings.Repeat("0a", 32)
		write := func(text string) {
			if err := os.WriteFile(parts, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("crun\t1.21\tGPL-2.0-or-later AND LGPL-2.1-or-later\t" + sum + "\nglibc\t2.36-9+deb12u14\tLGPL-2.1-or-later\t-\n")
		var out bytes.Buffer
		if err := run([]string{"sbom", path, "1.2.3", parts}, &out); err != nil {
			t.Fatal(err)
		}
		var d document
		if err := json.Unmarshal(out.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		crun, libc := d.Packages[len(d.Packages)-2], d.Packages[len(d.Packages)-1]
		if crun.Name != "crun" || crun.Checksums[0].Value != sum || libc.LicenseDeclared != "LGPL-2.1-or-later" ||
			libc.Version != "2.36-9+deb12u14" || libc.Checksums != nil {
			t.Errorf("%+v, %+v", crun, libc)
		}
		if want := []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-oci-crun"}, {"SPDXRef-oci-crun", "STATIC_LINK", "SPDXRef-oci-glibc"}}; !slices.Equal(d.Relationships[len(d.Relationships)-2:], want) {
			t.Errorf("%+v", d.Relationships)
		}
		// release.sh reads the output line by line.
		if !strings.Contains(out.String(), "\"name\": \"glibc\",\n      \"versionInfo\": \"2.36-9+deb12u14\",\n") {
			t.Errorf("the version is not below the name in\n%s", &out)
		}
		for _, wrong := range []string{"", "crun\t1\tMIT\n", "crun\t\tMIT\t-\n", "crun\t1\tMIT\tsum\n"} {
			write(wrong)
			if err := run([]string{"sbom", path, "1.2.3", parts}, &bytes.Buffer{}); err == nil {
				t.Errorf("%q is taken", wrong)
			}
		}
	})
	t.Run("notices", func(t *testing.T) {
		var first, second bytes.Buffer
		for _, out := range []*bytes.Buffer{&first, &second} {
			if err := run([]string{"notices", path, path}, out); err != nil {
				t.Fatal(err)
			}
		}
		if first.String() != second.String() {
			t.Error("the same binary gave two texts")
		}
		for _, want := range []string{"Go 1.", ": LICENSE\n", "The Go Authors", "github.com/google/go-containerregistry v", "Apache License"} {
			if !strings.Contains(first.String(), want) {
				t.Errorf("no %q in\n%.2000s", want, &first)
			}
		}
		if n := strings.Count(first.String(), "TERMS AND CONDITIONS FOR USE"); n > 6 {
			t.Errorf("one licence occurs %d times", n)
		}
		bare := t.TempDir()
		if err := os.WriteFile(filepath.Join(bare, "licence.go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := collectLicences(map[string]*fileText{}, "example.com/bare v1.0.0", bare); err == nil {
			t.Error("a module without a licence was skipped")
		}
	})
	t.Run("size", func(t *testing.T) {
		var out bytes.Buffer
		if err := run([]string{"size", path}, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"github.com/google/go-containerregistry", "github.com/islet-edge/islet", "Go's library"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no size of %s in\n%s", want, &out)
			}
		}
	})
	t.Run("features", func(t *testing.T) {
		// The program mkimage stands for islet.
		imports, err := readImports("../mkimage")
		if err != nil {
			t.Fatal(err)
		}
		p, err := readProgram(path)
		if err != nil {
			t.Fatal(err)
		}
		gzip, err := p.costOf(feature{"gzip", []string{"compress/gzip"}}, imports)
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.costOf(feature{"all", []string{"github.com/google/go-containerregistry/", "compress/gzip"}}, imports)
		if err != nil {
			t.Fatal(err)
		}
		if gzip.own == 0 || all.others == 0 || all.tables < gzip.tables || all.sum() > p.bytes {
			t.Errorf("compress/gzip costs %+v, it and go-containerregistry cost %+v of %d bytes", gzip, all, p.bytes)
		}
		if _, err := p.costOf(feature{"old", []string{"compress/gzip", "compress/none"}}, imports); err == nil {
			t.Error("no error for a package that the program does not have")
		}
	})
	t.Run("no binary", func(t *testing.T) {
		if err := run([]string{"size", "main.go"}, &bytes.Buffer{}); err == nil {
			t.Error("a source file has a size by module")
		}
	})
}

// TestCost checks that a feature's cost includes exactly the packages that are linked only for it.
func TestCost(t *testing.T) {
	const own = "github.com/islet-edge/islet/"
	imports := map[string][]string{
		"main": {own + "a", own + "b"}, own + "a": {"shared", "x/only"}, own + "b": {"shared"}, "shared": nil, "x/only": {"x/deep"}, "x/deep": {"shared"},
	}
	p := &program{
		code: map[string]uint64{own + "a": 10, own + "b": 20, "shared": 30, "x/only": 40, "x/deep": 100}, data: map[string]uint64{"x/deep": 5},
		allCode: 200, tables: 400,
	}
	for _, x := range []struct {
		packages []string
		want     cost
	}{
		{[]string{"./a"}, cost{10, 145, 300}},
		{[]string{"./b"}, cost{20, 0, 40}},
		{[]string{"x/"}, cost{145, 0, 280}},
		{[]string{"./a", "./b"}, cost{30, 175, 400}},
	} {
		if got, err := p.costOf(feature{"", x.packages}, imports); err != nil || got != x.want {
			t.Errorf("%v: %+v, %v; want %+v", x.packages, got, err, x.want)
		}
	}
}

// TestFeatures checks that every package of a feature exists.
func TestFeatures(t *testing.T) {
	imports, err := readImports("../..")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{code: map[string]uint64{}, data: map[string]uint64{}, allCode: 1}
	for _, f := range features {
		if _, err := p.costOf(f, imports); err != nil {
			t.Error(err)
		}
	}
}

func TestPackageOf(t *testing.T) {
	for symbol, want := range map[string]string{
		"k8s.io/api/core/v1.(*Pod).Marshal":                       "k8s.io/api/core/v1",
		"gopkg.in/yaml%2ev2.yaml_emit":                            "gopkg.in/yaml.v2",
		"type:.eq.net/http.http2Frame":                            "net/http",
		"go:itab.*os.File,io.Reader":                              "os",
		"slices.Sort[go.shape.[]a/b.C,go.shape.struct { x/y.Z }]": "slices",
		"main.run": "main",
		"x_cgo":    "",
	} {
		if got := packageOf(symbol); got != want {
			t.Errorf("%s: %q, want %q", symbol, got, want)
		}
	}
}

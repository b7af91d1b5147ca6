package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/islet-edge/islet"

// layers lists the packages of islet that a package may import. The first row whose district contains the package applies. The variable own
// stands for internal and the district itself. The variable lower stands for the districts on which agent is built. In addition:
//   - the root package of a district of agent is its door, which only agent and main may import;
//   - a package whose name ends with test only helps tests: it may import any package, and only such a package may import it. Therefore
//     no package of the program has such a name.
var layers = []struct {
	district string
	may      []string
}{
	{"internal", own},
	{"metrics", own},
	{"net", own},
	{"edge", own},
	{"runtime", and(own, "metrics")},
	{"packaging", own},
	{"agent/pod", and(own, lower...)}, // features use the hooks of a pod's life
	{"agent/cli", own},                // it uses interfaces for facts about the node
	{"agent/*", and(own, append(lower, "agent/pod/plan", "agent/pod/hook", "agent/plugin")...)},
	{"agent", everything}, // connects all of them
	{"", everything},      // main selects the task of this process
}

var (
	own        = []string{"internal", "."}
	lower      = []string{"edge", "runtime", "net", "metrics"}
	everything = []string{""}
)

func and(a []string, b ...string) []string { return append(slices.Clone(a), b...) }

// allows reports whether a package may import another one.
func allows(room, imp string) bool {
	if helpsTests(room) || helpsTests(imp) {
		return helpsTests(room)
	}
	for _, l := range layers {
		district := l.district
		if all, ok := strings.CutSuffix(district, "/*"); ok && strings.HasPrefix(room, all+"/") {
			district = strings.Join(strings.SplitN(room, "/", 3)[:2], "/")
		}
		if district != "" && room != district && !strings.HasPrefix(room, district+"/") || district == "" && room != "" {
			continue
		}
		if isDoor(imp) && len(l.may) > 1 {
			return room == imp
		}
		return slices.ContainsFunc(l.may, func(m string) bool {
			if m == "." {
				m = district
			}
			return m == "" || under(imp, []string{m})
		})
	}
	return false
}

// helpsTests reports whether a package is only for tests.
func helpsTests(room string) bool { return strings.HasSuffix(room, "test") }

// isDoor reports whether a package is the root of a district of agent.
func isDoor(imp string) bool {
	return strings.HasPrefix(imp, "agent/") && strings.Count(imp, "/") == 1
}

// TestAllows checks forbidden and allowed imports.
func TestAllows(t *testing.T) {
	for _, tt := range []struct {
		room, imp string
		want      bool
	}{
		{"internal/retry", "internal/clock", true}, {"internal/retry", "edge/kube", false}, {"internal/config", "agent/pod/plan", false},
		{"edge/kube", "edge/store", true}, {"edge/kube", "runtime/cri", false}, {"net/cni", "edge/store", false}, {"metrics/host", "runtime/cgroup", false},
		{"runtime/cgroup", "metrics", true}, {"runtime/ctrd", "agent/pod/plan", false}, {"runtime/ctrd", "net/netns", false},
		{"agent/pod/life/worker", "agent/pod/plan", true}, {"agent/pod/life/worker", "agent/volume/storage", false}, {"agent/pod/plan", "agent/plugin/plugins", false},
		{"agent/volume/csi", "agent/volume/storage", true}, {"agent/volume/csi", "agent/plugin/plugins", true}, {"agent/volume/csi", "agent/pod/hook", true},
		{"agent/volume/csi", "agent/pod/status", false}, {"agent/volume/csi", "agent/device/dra", false}, {"agent/volume/csi", "agent/volume", false},
		{"agent/volume", "agent/volume/csi", true}, {"agent/volume", "agent/device", false}, {"agent/volume", "agent/device/dra", false},
		{"agent/cli", "edge/store", false}, {"agent/cli", "internal/api", true}, {"agent/cli/pods", "agent/cli/client", true},
		{"agent/cli/pods", "agent/cli", false}, {"agent", "agent/volume", true}, {"agent", "agent/pod/status", true},
		{"", "agent/doctor", true}, {"packaging/sign", "internal/release", true}, {"packaging/sign", "agent/change/update", false},
		{"agent/kubelet/server/servertest", "agent/resource/usage", true}, {"unknown", "internal/keys", false},
		{"agent/change/selfcheck", "agent/change/trial", true}, {"agent/change/selfcheck", "agent/volume", false},
		{"", "agent/change/selftest", false}, {"agent", "internal/eventtest", false}, {"internal/podtest", "internal/eventtest", true},
	} {
		if got := allows(tt.room, tt.imp); got != tt.want {
			t.Errorf("%q imports %q: %v", tt.room, tt.imp, got)
		}
	}
}

// homes lists the heavy dependencies, with the folders that may import each of them.
var homes = map[string][]string{
	"modernc.org/sqlite":                      {"edge/store"},
	"k8s.io/client-go":                        {"edge", "runtime/stream/streamtest"},
	"github.com/containerd/containerd/v2":     {"runtime", "internal/registry"},
	"github.com/containernetworking":          {"net"},
	"github.com/vishvananda/netlink":          {"net", "runtime/namespace"},
	"github.com/google/nftables":              {"net"},
	"github.com/shirou/gopsutil":              {"metrics"},
	"github.com/opencontainers/cgroups":       {"runtime", "metrics"},
	"github.com/google/go-containerregistry":  {"packaging"},
	"k8s.io/component-helpers/resource":       {"internal/demand"},
	"tags.cncf.io/container-device-interface": {"runtime/ctrd"},
	"github.com/container-storage-interface":  {"agent/volume/csi"},
	"github.com/godbus/dbus":                  {"agent/host/shutdown", "runtime/cgroup"},
	"filippo.io/age":                          {"internal/bundle/sealed"},
	"github.com/google/go-tpm":                {"edge/keyfile/tpm"},
	"k8s.io/kubernetes":                       {},
}

func TestLayers(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		room := short(p.ImportPath)
		for _, imp := range p.Imports {
			if ours(imp) && !allows(room, short(imp)) {
				t.Errorf("%q may not import %q", room, short(imp))
			}
			for dep, home := range homes {
				if under(imp, []string{dep}) && !under(room, home) {
					t.Errorf("%q imports %s, whose home is %q", room, imp, home)
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("go list named no package")
	}
}

// wiringLines is the maximum number of lines of package agent. This package only builds, connects, runs and closes other parts. No line is
// wider than 140 columns. Code with a state or a loop belongs in a separate package.
const wiringLines = 1400

func TestWiringIsNoPlaceToLive(t *testing.T) {
	files, err := filepath.Glob("agent/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines == 0 || lines >= wiringLines {
		t.Errorf("package agent has %d lines, and the limit is %d: move code other than wiring to another package", lines, wiringLines)
	}
}

// TestDocumentedLimits checks that the documents state the same limits as the Makefile and TestWiringIsNoPlaceToLive.
func TestDocumentedLimits(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	budget := regexp.MustCompile(`(?m)^BUDGET_MB := (\d+)$`).FindSubmatch(makefile)
	if budget == nil {
		t.Fatal("the Makefile has no BUDGET_MB")
	}
	mb := string(budget[1]) + " MB"
	for _, doc := range []struct{ file, want string }{
		{"CONTRIBUTING.md", "fails beyond " + mb}, {"docs/performance.md", "`bin/islet` has at most " + mb},
		{"docs/design.md", "in the binary (" + mb + ")"},
		{"docs/design.md", fmt.Sprintf("It has less than %d,%03d lines", wiringLines/1000, wiringLines%1000)},
	} {
		text, err := os.ReadFile(doc.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), doc.want) {
			t.Errorf("%s does not contain %q", doc.file, doc.want)
		}
	}
}

func ours(imp string) bool { return imp == module || strings.HasPrefix(imp, module+"/") }

func short(imp string) string { return strings.TrimPrefix(strings.TrimPrefix(imp, module), "/") }

func under(imp string, allowed []string) bool {
	for _, a := range allowed {
		if imp == a || strings.HasPrefix(imp, a+"/") {
			return true
		}
	}
	return false
}

// TestDocsOfRooms checks that every package has a doc.go that describes its purpose, and names the packages in the folders below it. A
// program needs only main.go, and packages that help tests need not be named.
func TestDocsOfRooms(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}} {{.GoFiles}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		room, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		room = short(room)
		files := strings.Fields(strings.Trim(list, "[]"))
		if len(files) == 0 {
			continue // a program, or a package with only tests
		}
		seen++
		if !slices.Contains(files, "doc.go") {
			t.Errorf("%s has no doc.go", room)
		}
		parent, name := path.Split(room)
		if parent == "" || parent == "packaging/" || helpsTests(room) {
			continue
		}
		text, err := os.ReadFile(parent + "doc.go")
		if err != nil {
			t.Error(err)
		} else if !regexp.MustCompile(`\b` + name + `\b`).Match(text) {
			t.Errorf("%sdoc.go does not name %s", parent, name)
		}
	}
	if seen == 0 {
		t.Error("go list named no package")
	}
}

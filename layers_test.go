package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/islet-edge/islet"

// layers says which of our packages each folder may import. A folder that is
// missing here fails the test, so a new package needs a decision. The rules:
// main -> agent -> {edge, runtime, net} -> metrics; edge, runtime and net never
// import each other; inside agent only package agent and package cli's caller
// main wire siblings together; agent/api (the types of the local socket, which
// both its ends speak) and agent/logs (log files) are free of the rest.
var layers = map[string][]string{
	"": {"agent", "agent/cli", "net/cni"},

	"agent":           {"agent", "edge", "runtime", "net", "metrics"},
	"agent/access":    {},
	"agent/admit":     {},
	"agent/api":       {},
	"agent/cli":       {"agent/api"},
	"agent/collect":   {"runtime/cri"},
	"agent/config":    {},
	"agent/doctor":    {"metrics"},
	"agent/hook":      {},
	"agent/logs":      {},
	"agent/observe":   {"agent/plan", "runtime/cri"},
	"agent/plan":      {},
	"agent/server":    {"agent/api", "agent/logs", "runtime/cri", "metrics/exposition"},
	"agent/status":    {"agent/plan"},
	"agent/translate": {"agent/plan"},
	"agent/volume":    {"agent/hook"},
	"agent/worker":    {"agent/plan", "agent/hook", "agent/translate", "runtime/cri"},

	"agent/access/accesstest": {},                                           // for tests
	"agent/server/servertest": {"agent/api", "agent/server", "runtime/cri"}, // for tests

	"edge/apitest":       {"edge/kube", "edge/kube/kubetest"}, // for tests
	"edge/desired":       {"edge/store"},
	"edge/kube":          {},
	"edge/kube/kubetest": {},
	"edge/link":          {"edge/kube"},
	"edge/manifest":      {},
	"edge/node":          {"edge/kube", "edge/patch"},
	"edge/object":        {"edge/kube", "edge/store"},
	"edge/outbox":        {"edge/kube", "edge/patch"},
	"edge/patch":         {},
	"edge/review":        {"edge/kube"},
	"edge/source":        {"edge/manifest", "edge/desired", "edge/kube"},
	"edge/store":         {},

	"runtime/cgroup":        {"metrics"},
	"runtime/cri":           {},
	"runtime/crisuite":      {"runtime/cri"},
	"runtime/crisuite/prog": {},
	"runtime/ctrd":          {"runtime/cri", "runtime/daemon", "runtime/image", "runtime/namespace", "runtime/ocispec", "runtime/shim", "runtime/stream", "metrics"},
	"runtime/daemon":        {},
	"runtime/fake":          {"runtime/cri"},
	"runtime/image":         {"runtime/cri"},
	"runtime/namespace":     {},
	"runtime/ocispec":       {},

	"runtime/shim":        {"runtime/shim/wire"},
	"runtime/shim/cmd":    {"runtime/shim/server"},
	"runtime/shim/crilog": {},
	"runtime/shim/pack":   {},
	"runtime/shim/server": {"runtime/shim/wire", "runtime/shim/crilog"},
	"runtime/shim/wire":   {},

	"runtime/stream": {"runtime/cri"},

	"net/bridge":  {"net/netns", "net/nft"},
	"net/cni":     {"net/bridge", "net/cni/plugin", "net/ipam", "net/netns", "net/nft", "net/portmap"},
	"net/ipam":    {},
	"net/netns":   {},
	"net/nft":     {"net/netns"},
	"net/portmap": {"net/netns", "net/nft"},
	"net/uplink":  {"net/netns"},

	"net/cni/plugin":      {"net/bridge", "net/netns", "net/nft", "net/portmap"},
	"net/ipam/ipamtest":   {},
	"net/netns/netnstest": {"net/netns"},

	"metrics":        {},
	"metrics/cgroup": {},
	"metrics/host":   {},

	"metrics/exposition": {},

	"packaging":         {},
	"packaging/demo":    {},
	"packaging/mkimage": {},
}

// homes gives each heavy dependency the folders that may import it.
var homes = map[string][]string{
	"modernc.org/sqlite":                     {"edge/store"},
	"k8s.io/client-go":                       {"edge"},
	"github.com/containerd/containerd/v2":    {"runtime"},
	"github.com/containernetworking":         {"net"},
	"github.com/vishvananda/netlink":         {"net", "runtime/namespace"},
	"github.com/google/nftables":             {"net"},
	"github.com/shirou/gopsutil":             {"metrics"},
	"github.com/opencontainers/cgroups":      {"runtime", "metrics"},
	"github.com/google/go-containerregistry": {"packaging"},
	"k8s.io/kubernetes":                      {},
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
		allowed, known := layers[room]
		if !known {
			t.Errorf("%q has no layer: decide which of our packages it may import", room)
		}
		for _, imp := range p.Imports {
			if ours(imp) && !under(short(imp), allowed) {
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

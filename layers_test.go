package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/islet-edge/islet"

// layers says which of our packages each folder may import. A folder that is
// missing here fails the test, so a new package needs a decision. The rules:
// main -> agent -> {edge, runtime, net} -> {metrics, demand}; edge, runtime and net never
// import each other; inside agent only package agent and package cli's caller
// main wire siblings together; agent/api (the types of the local socket, which
// both its ends speak) is free of the rest. runtime/untrusted (files that pods and
// images made) is for whoever reads such.
var layers = map[string][]string{
	"": {"agent", "agent/cli", "agent/doctor", "agent/selftest", "agent/start", "net/cni"},

	"inherit": {}, // what a process takes over from its parent: a leaf, for the agent and the shim

	"keys":    {}, // of annotations and labels: a leaf, for all who read or write such
	"podspec": {}, // what a pod's spec names: a leaf, for all who go through it

	"readonly": {}, // which disks take no writes: a leaf, for all who write to one

	"keyring": {"weight"}, // credentials by what they are for: a leaf, for all who find or use one

	"weight/codec": {"weight"}, // of gRPC, for all who speak it with a peer that is not trusted

	"weight": {}, // how much memory a decoder will take: a leaf, for all who decode what is foreign

	"door": {"pulse"}, // who gives way when a port is full: a leaf, for all who listen

	"pulse/pulsetest": {}, // for tests

	"pulse": {}, // whether the peer of a connection has vanished: a leaf, for all whose writes wait

	"bootid": {}, // which boot this is: a leaf, for all who ask whether the machine was restarted

	"clock": {}, // which times cannot be: a leaf, for all who keep one

	"demand": {"keys", "podspec"}, // what pods ask for: a leaf, for all who count

	"agent":              {"agent", "edge", "runtime", "net", "metrics", "keys"},
	"agent/access":       {"regular"},
	"agent/admit":        {"agent/translate", "demand", "keys", "podspec"},
	"agent/allocate":     {"agent/admit", "demand"},
	"agent/api":          {},
	"agent/call":         {"runtime/cri"},
	"agent/claims":       {"agent/config", "agent/csi", "agent/plugins", "agent/storage", "edge/csinode", "edge/kube", "edge/node", "edge/object", "edge/store"},
	"agent/cli":          {"agent/api", "keys", "podspec"},
	"agent/provision":    {"edge/local", "runtime/mounts", "podspec"},
	"agent/collect":      {"runtime/cri", "runtime/mounts", "runtime/untrusted"},
	"agent/config":       {"agent/release", "durable", "readonly", "regular", "weight"},
	"agent/trial":        {"durable"}, // how a configuration comes to be kept: pure
	"agent/guard":        {},          // the process that watches over one on trial
	"agent/home":         {"agent/config", "runtime/cgroup"},
	"agent/configure":    {"bootid", "agent/access", "agent/api", "agent/config", "agent/guard", "agent/trial", "durable", "edge/configsource", "edge/kube", "edge/link", "keys"},
	"agent/csi":          {"agent/plugins", "agent/storage", "retry", "runtime/mounts"},
	"agent/doctor":       {"agent/api", "agent/config", "agent/hardware", "agent/hostport", "agent/shutdown", "agent/volatile", "clock", "keys", "metrics", "net/bridge", "net/cni", "net/netns", "runtime/abilities"},
	"agent/credentials":  {"keyring", "readonly", "runtime/untrusted", "weight"},
	"agent/device":       {"agent/topology", "edge/store", "podspec"},
	"agent/deviceplugin": {"agent/device", "agent/plugins", "agent/rpc", "agent/socket", "edge/store", "readonly"},
	"agent/dirty":        {},
	"agent/dra":          {"agent/plugins", "edge/store", "podspec", "retry"},
	"agent/eviction":     {"agent/plan", "demand", "keys", "metrics/cgroup", "metrics/host", "metrics/room", "podspec", "runtime/untrusted"},
	"agent/features":     {},
	"agent/hardware":     {"bootid", "agent/config", "agent/device", "podspec", "runtime/mounts", "runtime/untrusted"},
	"agent/hook":         {},
	"agent/hostport":     {"podspec"},
	"agent/lifecycle":    {"agent/call"},
	"agent/logs":         {"runtime/untrusted"},
	"agent/observe":      {"agent/dirty", "agent/plan", "runtime/cri", "runtime/untrusted", "keys"},
	"agent/oom":          {},
	"agent/plan":         {"podspec"},
	"agent/plugins":      {"readonly", "retry", "weight", "weight/codec"},
	"agent/pods":         {"agent/admit", "agent/allocate", "agent/dirty", "agent/plan", "agent/status", "agent/worker", "demand", "edge/desired", "edge/store"},
	"agent/podresources": {"agent/device", "agent/dra", "agent/pinning", "agent/rpc", "agent/socket", "podspec"},
	"agent/probe":        {"agent/call", "agent/dirty", "agent/plan", "agent/translate", "podspec"},
	"agent/pulls":        {"edge/store", "runtime/cri", "keyring"},
	"agent/rpc":          {"agent/socket"},
	"agent/server":       {"agent/admit", "agent/api", "agent/logs", "agent/socket", "door", "runtime/cri", "metrics/exposition", "keys", "podspec", "runtime/stream/frames", "runtime/stream/linger", "runtime/stream/tunnel"},
	"agent/socket":       {"readonly", "retry"},
	"agent/status":       {"agent/plan", "demand", "podspec"},
	"agent/translate":    {"agent/plan", "demand", "keys", "podspec"},
	"agent/userns":       {"durable", "podspec", "runtime/untrusted"},
	"agent/storage":      {"edge/store", "retry", "runtime/mounts", "runtime/untrusted", "podspec"}, // of the store it knows the rows
	"agent/volume":       {"agent/hook", "demand", "runtime/mounts", "runtime/untrusted", "podspec"},
	"agent/worker":       {"agent/plan", "agent/features", "agent/hook", "agent/translate", "runtime/cri", "keyring", "keys", "podspec", "retry"},

	// CPUs and memory of containers' own.
	"agent/topology":      {},
	"agent/cpumanager":    {"agent/topology", "demand", "podspec"},
	"agent/memorymanager": {"agent/topology", "demand", "podspec"},
	"agent/pinning":       {"bootid", "agent/config", "agent/cpumanager", "agent/device", "agent/memorymanager", "agent/reserve", "agent/topology", "edge/store", "keys", "podspec"},

	// The rooms that package agent wires; none knows the whole.
	"agent/cluster":    {"bootid", "agent/config", "agent/configure", "edge", "keys", "metrics/host", "net/uplink"},
	"agent/containers": {"bootid", "agent/api", "agent/config", "agent/figures", "agent/reserve", "agent/rotate", "agent/server", "agent/socket", "agent/worker", "edge/link", "edge/store", "net/cni", "runtime", "metrics/cgroup", "keys"},
	"agent/devices":    {"agent/device", "agent/deviceplugin", "agent/dra", "agent/figures", "agent/hardware", "agent/pinning", "agent/plugins", "agent/podresources", "agent/socket", "edge/kube", "edge/resourceslice", "podspec"},
	"agent/describe":   {"agent/api", "agent/config", "agent/containers", "agent/device", "agent/hardware", "agent/plan", "agent/process", "agent/volatile", "edge", "net/cni"},
	"agent/flash":      {"bootid", "agent/api", "clock", "metrics"},
	"agent/figures":    {"agent/plan", "agent/worker", "edge/link", "metrics/exposition", "runtime/cri", "runtime/ctrd", "runtime/image", "podspec"},
	"agent/health":     {"agent/server"},
	"agent/machine":    {"agent/admit", "agent/config", "agent/quota", "agent/reserve", "agent/status", "agent/translate", "edge/node", "metrics/host", "net/address", "net/netns"},
	"agent/objects":    {"agent/api", "agent/dirty", "agent/provision", "agent/server", "edge/desired", "edge/kube", "edge/local", "edge/manifest", "edge/object", "edge/podcertificate", "keyring", "podspec"},
	"agent/page":       {"agent/api", "door", "metrics/host", "metrics/process"},
	"agent/ports":      {"agent/access", "agent/config", "agent/server", "door", "edge/link", "edge/review"},
	"agent/process":    {"agent/api", "agent/config", "agent/volatile", "runtime/mounts"},
	"agent/quota":      {},
	"agent/release":    {"durable"},
	"agent/reserve":    {},
	"agent/recovery":   {"agent/plan", "agent/status", "edge/desired", "keys", "podspec"},
	"agent/rotate":     {"agent/plan", "runtime/untrusted"},
	"agent/settle":     {},
	"agent/shutdown":   {"demand", "regular"},
	"agent/start":      {"inherit", "agent/config", "agent/configure", "agent/guard", "agent/home", "agent/ports", "agent/process", "agent/settle"}, // the process, before package agent
	"agent/sources":    {"agent/config", "edge/desired", "edge/local", "edge/manifest", "edge/source", "keys"},
	"agent/usage":      {"agent/api", "metrics", "runtime/cri", "keys", "podspec"},
	"agent/selftest":   {"agent/update", "edge/store", "runtime/shim"},
	"agent/update":     {"agent/api", "agent/config", "agent/release", "agent/trial", "regular", "retry"},
	"agent/upkeep":     {"agent/config", "agent/containers", "agent/flash", "agent/garbage", "agent/home", "agent/oom", "agent/process", "agent/rotate", "runtime/cgroup"},
	"agent/volatile":   {"readonly", "runtime/mounts"},

	"agent/garbage": {"agent/api", "agent/config", "agent/plan", "clock", "metrics/host", "runtime/cri", "keys", "podspec"},

	"agent/fieldtest":         {},                                                                                                   // for tests: the pages that list every field
	"agent/eventtest":         {},                                                                                                   // for tests: events of a kubelet, of docs/events.md
	"agent/access/accesstest": {},                                                                                                   // for tests
	"agent/server/servertest": {"agent/api", "agent/garbage", "agent/server", "agent/socket", "agent/usage", "runtime/cri", "keys"}, // for tests

	"edge/apitest":        {"edge/kube", "edge/kube/kubetest"}, // for tests
	"edge/brake":          {"edge/desired", "edge/kube"},
	"edge/configsource":   {"edge/kube", "retry"},
	"edge/csinode":        {"edge/kube", "retry", "weight"},
	"edge/resourceslice":  {"edge/kube", "retry"},
	"edge/desired":        {"demand", "edge/store", "keys"},
	"edge/history":        {"edge/kube"},
	"edge/kube":           {"retry", "weight"},
	"edge/kube/kubetest":  {},
	"edge/manifest":       {"demand", "keys", "podspec", "weight"},
	"edge/local":          {"edge/manifest", "edge/store", "keyring", "keys", "podspec"},
	"edge/link":           {"durable", "edge/kube", "keys", "retry", "weight"},
	"edge/node":           {"edge/kube", "edge/patch", "retry"},
	"edge/object":         {"edge/kube", "edge/store", "retry", "keyring", "keys", "podspec", "weight"},
	"edge/outbox":         {"edge/kube", "edge/patch", "edge/store", "retry", "keys", "podspec"},
	"edge/patch":          {},
	"edge/podcertificate": {"edge/kube", "edge/store", "keys", "retry", "weight"},
	"edge/review":         {"edge/kube"},
	"edge/source":         {"edge/manifest", "edge/desired", "edge/kube", "edge/local", "retry", "keys"},
	"edge/twin":           {"edge/kube", "keys"},
	"edge/store":          {"durable", "edge/store/pages", "keyring", "readonly"},
	"edge/store/pages":    {},

	"runtime/mounts/mountstest": {}, // for tests

	"runtime/abilities":     {}, // of OCI runtimes: for all who say what this node can
	"runtime/apparmor":      {},
	"runtime/cgroup":        {"metrics", "demand"},
	"runtime/cri":           {"weight", "weight/codec"},
	"runtime/crisuite":      {"runtime/cri"},
	"runtime/crisuite/prog": {},
	"runtime/ctrd":          {"readonly", "bootid", "inherit", "keys", "runtime/abilities", "runtime/apparmor", "runtime/cgroup", "runtime/cri", "runtime/daemon", "runtime/drain", "runtime/image", "runtime/mounts", "runtime/namespace", "runtime/ocispec", "runtime/selinux", "runtime/shim", "runtime/stream", "runtime/taskshim", "runtime/tree", "runtime/untrusted", "metrics"},
	"runtime/drain":         {}, // the end of output: commands, containers and attached readers
	"runtime/daemon":        {"regular", "runtime/mounts"},
	"runtime/fake":          {"runtime/cri"},
	"runtime/image":         {"runtime/cri", "runtime/mounts", "runtime/untrusted"},
	"runtime/mounts":        {},
	"runtime/namespace":     {},
	"runtime/ocispec":       {"keys", "regular", "weight"},
	"runtime/remote":        {"runtime/cri", "keys"},
	"runtime/selinux":       {},

	"runtime/shim":        {"runtime/drain", "runtime/shim/wire"},
	"runtime/shim/cmd":    {"inherit", "runtime/shim/server", "runtime/untrusted"},
	"runtime/shim/crilog": {"runtime/untrusted"},
	"runtime/shim/pack":   {},
	"runtime/shim/server": {"runtime/drain", "runtime/shim/wire", "runtime/shim/crilog"},
	"runtime/shim/wire":   {},

	"runtime/stream":            {"door", "runtime/cri", "runtime/stream/frames", "runtime/stream/linger", "runtime/stream/tunnel"},
	"runtime/stream/frames":     {},                                           // both servers of SPDY
	"runtime/stream/linger":     {"pulse"},                                    // every server of streams
	"runtime/stream/streamtest": {"pulse/pulsetest", "runtime/stream/linger"}, // for tests
	"runtime/stream/tunnel":     {"runtime/stream/linger"},                    // both servers of port-forward: here and in agent/server
	"runtime/taskshim":          {"inherit", "regular", "runtime/drain", "runtime/shim", "metrics"},
	"runtime/tree":              {},
	"runtime/untrusted":         {}, // files that others made: agent rooms that read such may import it

	"net/address": {"net/netns"},
	"net/bridge":  {"net/netns", "net/nft"},
	"net/cni":     {"durable", "keys", "regular", "weight", "net/bridge", "net/cni/plugin", "net/ipam", "net/netns", "net/nft", "net/notice", "net/portmap"},
	"net/ipam":    {},
	"net/netns":   {},
	"net/notice":  {"net/netns"},
	"net/nft":     {"net/netns"},
	"net/portmap": {"net/netns", "net/nft"},
	"net/uplink":  {"net/netns"},

	"net/cni/plugin":      {"net/bridge", "net/netns", "net/nft", "net/portmap", "weight"},
	"net/ipam/ipamtest":   {},
	"net/netns/netnstest": {"net/netns"},

	"metrics":         {},
	"metrics/cgroup":  {"metrics/kernfile"},
	"metrics/disk":    {"metrics/kernfile"},
	"metrics/host":    {"bootid"},
	"metrics/process": {"metrics/kernfile"},
	"metrics/room":    {"metrics/cgroup", "metrics/host"},
	"metrics/sample":  {"metrics/cgroup", "metrics/process"},

	"metrics/kernfile": {}, // files that the kernel makes: a leaf, for the rooms of metrics that read such

	"metrics/exposition": {"metrics"},

	"durable": {}, // files that a loss of power leaves whole; a leaf that everybody may use
	"retry":   {}, // when to try again; a leaf that everybody may use
	"regular": {}, // files by names that somebody gave; a leaf that everybody may use

	"packaging":            {},
	"packaging/advisories": {"durable"},
	"packaging/demo":       {},
	"packaging/inspect":    {},
	"packaging/mkimage":    {},
	"packaging/sign":       {"agent/release"},
}

// homes gives each heavy dependency the folders that may import it.
var homes = map[string][]string{
	"modernc.org/sqlite":                      {"edge/store"},
	"k8s.io/client-go":                        {"edge", "runtime/stream/streamtest"},
	"github.com/containerd/containerd/v2":     {"runtime"},
	"github.com/containernetworking":          {"net"},
	"github.com/vishvananda/netlink":          {"net", "runtime/namespace"},
	"github.com/google/nftables":              {"net"},
	"github.com/shirou/gopsutil":              {"metrics"},
	"github.com/opencontainers/cgroups":       {"runtime", "metrics"},
	"github.com/google/go-containerregistry":  {"packaging"},
	"k8s.io/component-helpers/resource":       {"demand"},
	"tags.cncf.io/container-device-interface": {"runtime/ctrd"},
	"github.com/container-storage-interface":  {"agent/csi"},
	"github.com/godbus/dbus":                  {"agent/shutdown", "runtime/cgroup"},
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

// wiringLines is how long package agent may be: it builds, connects, runs and closes.
// What has state or a loop has a room of its own.
const wiringLines = 1000

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
		t.Errorf("package agent has %d lines, not under %d: move what is not wiring to a room", lines, wiringLines)
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

// TestDocsOfRooms: a reader finds what a room does in its doc.go; of a program it is in its main.go.
func TestDocsOfRooms(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}} {{.GoFiles}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		room, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		files := strings.Fields(strings.Trim(list, "[]"))
		if len(files) == 0 {
			continue // a program, or tests only
		}
		if seen++; !slices.Contains(files, "doc.go") {
			t.Errorf("%s has no doc.go", short(room))
		}
	}
	if seen == 0 {
		t.Error("go list named no package")
	}
}

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
// main wire siblings together; internal/api (the types of the local socket, which
// both its ends speak) is free of the rest. internal/untrusted (files that pods and
// images made) is for whoever reads such.
var layers = map[string][]string{
	"": {"agent", "agent/cli", "agent/doctor", "agent/change/selftest", "agent/start", "net/cni"},

	"internal/inherit": {}, // what a process takes over from its parent: a leaf, for the agent and the shim

	"internal/keys":    {}, // of annotations and labels: a leaf, for all who read or write such
	"internal/podspec": {}, // what a pod's spec names: a leaf, for all who go through it

	"internal/readonly": {}, // which disks take no writes: a leaf, for all who write to one

	"internal/keyring": {"internal/weight"}, // credentials by what they are for: a leaf, for all who find or use one

	"internal/weight/codec": {"internal/weight"}, // of gRPC, for all who speak it with a peer that is not trusted

	"internal/weight": {}, // how much memory a decoder will take: a leaf, for all who decode what is foreign

	"internal/door": {"internal/pulse"}, // who gives way when a port is full: a leaf, for all who listen

	"internal/pulse/pulsetest": {}, // for tests

	"internal/pulse": {}, // whether the peer of a connection has vanished: a leaf, for all whose writes wait

	"internal/bootid": {}, // which boot this is: a leaf, for all who ask whether the machine was restarted

	"internal/clock": {}, // which times cannot be: a leaf, for all who keep one

	"internal/demand": {"internal/keys", "internal/podspec"}, // what pods ask for: a leaf, for all who count

	"agent":                      {"agent", "edge", "runtime", "net", "metrics", "internal/keys"},
	"agent/kubelet/access":       {"internal/regular"},
	"agent/pod/spec/admit":       {"agent/pod/spec/translate", "internal/demand", "internal/keys", "internal/podspec"},
	"agent/pod/spec/allocate":    {"agent/pod/spec/admit", "internal/demand"},
	"internal/api":               {},
	"agent/pod/probe/call":       {"runtime/cri"},
	"agent/volume":               {"internal/config", "agent/volume/csi", "agent/plugin/plugins", "agent/volume/storage", "edge/csinode", "edge/kube", "edge/node", "edge/object", "edge/store"},
	"agent/cli":                  {"internal/api", "internal/keys", "internal/podspec"},
	"agent/volume/provision":     {"edge/local", "runtime/mounts", "internal/podspec"},
	"agent/pod/collect":          {"runtime/cri", "runtime/mounts", "internal/untrusted"},
	"internal/config":            {"internal/release", "internal/durable", "internal/readonly", "internal/regular", "internal/weight"},
	"agent/change/trial":         {"internal/durable"}, // how a configuration comes to be kept: pure
	"agent/change/guard":         {},                   // the process that watches over one on trial
	"agent/host/home":            {"internal/config", "runtime/cgroup"},
	"agent/change/configure":     {"internal/bootid", "agent/kubelet/access", "internal/api", "internal/config", "agent/change/guard", "agent/change/trial", "internal/durable", "edge/configsource", "edge/kube", "edge/link", "internal/keys"},
	"agent/volume/csi":           {"agent/plugin/plugins", "agent/volume/storage", "internal/retry", "runtime/mounts"},
	"agent/doctor":               {"internal/api", "internal/config", "agent/device/hardware", "agent/pod/spec/hostport", "agent/host/shutdown", "agent/host/volatile", "internal/clock", "internal/keys", "metrics", "net/bridge", "net/cni", "net/netns", "runtime/abilities"},
	"agent/engine/credentials":   {"internal/keyring", "internal/readonly", "internal/untrusted", "internal/weight"},
	"agent/device/devicemanager": {"agent/device/topology", "edge/store", "internal/podspec"},
	"agent/device/deviceplugin":  {"agent/device/devicemanager", "agent/plugin/plugins", "agent/plugin/rpc", "internal/socket", "edge/store", "internal/readonly"},
	"internal/dirty":             {},
	"agent/device/dra":           {"agent/plugin/plugins", "edge/store", "internal/podspec", "internal/retry"},
	"agent/resource/eviction":    {"agent/pod/plan", "internal/demand", "internal/keys", "metrics/cgroup", "metrics/host", "metrics/room", "internal/podspec", "internal/untrusted"},
	"agent/pod/life/features":    {},
	"agent/device/hardware":      {"internal/bootid", "internal/config", "agent/device/devicemanager", "internal/podspec", "runtime/mounts", "internal/untrusted"},
	"agent/pod/hook":             {},
	"agent/pod/spec/hostport":    {"internal/podspec"},
	"agent/pod/probe/lifecycle":  {"agent/pod/probe/call"},
	"agent/kubelet/logs":         {"internal/untrusted"},
	"agent/pod/life/observe":     {"internal/dirty", "agent/pod/plan", "runtime/cri", "internal/untrusted", "internal/keys"},
	"agent/resource/oom":         {},
	"agent/pod/plan":             {"internal/podspec"},
	"agent/plugin/plugins":       {"internal/readonly", "internal/retry", "internal/weight", "internal/weight/codec"},
	"agent/pod/life/pods":        {"agent/pod/spec/admit", "agent/pod/spec/allocate", "internal/dirty", "agent/pod/plan", "agent/pod/status", "agent/pod/life/worker", "internal/demand", "edge/desired", "edge/store"},
	"agent/device/podresources":  {"agent/device/devicemanager", "agent/device/dra", "agent/device/pinning", "agent/plugin/rpc", "internal/socket", "internal/podspec"},
	"agent/pod/probe":            {"agent/pod/probe/call", "internal/dirty", "agent/pod/plan", "agent/pod/spec/translate", "internal/podspec"},
	"agent/engine/pulls":         {"edge/store", "runtime/cri", "internal/keyring"},
	"agent/plugin/rpc":           {"internal/socket"},
	"agent/kubelet/server":       {"agent/pod/spec/admit", "internal/api", "agent/kubelet/logs", "internal/socket", "internal/door", "runtime/cri", "metrics/exposition", "internal/keys", "internal/podspec", "runtime/stream/frames", "runtime/stream/linger", "runtime/stream/tunnel"},
	"internal/socket":            {"internal/readonly", "internal/retry"},
	"agent/pod/status":           {"agent/pod/plan", "internal/demand", "internal/podspec"},
	"agent/pod/spec/translate":   {"agent/pod/plan", "internal/demand", "internal/keys", "internal/podspec"},
	"agent/pod/spec/userns":      {"internal/durable", "internal/podspec", "internal/untrusted"},
	"agent/volume/storage":       {"edge/store", "internal/retry", "runtime/mounts", "internal/untrusted", "internal/podspec"}, // of the store it knows the rows
	"agent/volume/podvolumes":    {"agent/pod/hook", "internal/demand", "runtime/mounts", "internal/untrusted", "internal/podspec"},
	"agent/pod/life/worker":      {"agent/pod/plan", "agent/pod/life/features", "agent/pod/hook", "agent/pod/spec/translate", "runtime/cri", "internal/keyring", "internal/keys", "internal/podspec", "internal/retry"},

	// CPUs and memory of containers' own.
	"agent/device/topology":      {},
	"agent/device/cpumanager":    {"agent/device/topology", "internal/demand", "internal/podspec"},
	"agent/device/memorymanager": {"agent/device/topology", "internal/demand", "internal/podspec"},
	"agent/device/pinning":       {"internal/bootid", "internal/config", "agent/device/cpumanager", "agent/device/devicemanager", "agent/device/memorymanager", "internal/reserve", "agent/device/topology", "edge/store", "internal/keys", "internal/podspec"},

	// The rooms that package agent wires; none knows the whole.
	"agent/cluster":           {"internal/bootid", "internal/config", "agent/change/configure", "edge", "internal/keys", "metrics/host", "net/uplink"},
	"agent/engine":            {"internal/bootid", "internal/api", "internal/config", "agent/pod/figures", "internal/reserve", "agent/engine/rotate", "agent/kubelet/server", "internal/socket", "agent/pod/life/worker", "edge/link", "edge/store", "net/cni", "runtime", "metrics/cgroup", "internal/keys"},
	"agent/device":            {"agent/device/devicemanager", "agent/device/deviceplugin", "agent/device/dra", "agent/pod/figures", "agent/device/hardware", "agent/device/pinning", "agent/plugin/plugins", "agent/device/podresources", "internal/socket", "edge/kube", "edge/resourceslice", "internal/podspec"},
	"agent/kubelet/describe":  {"internal/api", "internal/config", "agent/engine", "agent/device/devicemanager", "agent/device/hardware", "agent/pod/plan", "agent/host/process", "agent/host/volatile", "edge", "net/cni"},
	"agent/resource/flash":    {"internal/bootid", "internal/api", "internal/clock", "metrics"},
	"agent/pod/figures":       {"agent/pod/plan", "agent/pod/life/worker", "edge/link", "metrics/exposition", "runtime/cri", "runtime/ctrd", "runtime/image", "internal/podspec"},
	"agent/kubelet/health":    {"agent/kubelet/server"},
	"agent/pod/machine":       {"agent/pod/spec/admit", "internal/config", "internal/quota", "internal/reserve", "agent/pod/status", "agent/pod/spec/translate", "edge/node", "metrics/host", "net/address", "net/netns"},
	"agent/volume/objects":    {"internal/api", "internal/dirty", "agent/volume/provision", "agent/kubelet/server", "edge/desired", "edge/kube", "edge/local", "edge/manifest", "edge/object", "edge/podcertificate", "internal/keyring", "internal/podspec"},
	"agent/kubelet/page":      {"internal/api", "internal/door", "metrics/host", "metrics/process"},
	"agent/kubelet/ports":     {"agent/kubelet/access", "internal/config", "agent/kubelet/server", "internal/door", "edge/link", "edge/review"},
	"agent/host/process":      {"internal/api", "internal/config", "agent/host/volatile", "runtime/mounts"},
	"internal/quota":          {},
	"internal/release":        {"internal/durable"},
	"internal/reserve":        {},
	"agent/pod/life/recovery": {"agent/pod/plan", "agent/pod/status", "edge/desired", "internal/keys", "internal/podspec"},
	"agent/engine/rotate":     {"agent/pod/plan", "internal/untrusted"},
	"agent/resource/settle":   {},
	"agent/host/shutdown":     {"internal/demand", "internal/regular"},
	"agent/start":             {"internal/inherit", "internal/config", "agent/change/configure", "agent/change/guard", "agent/host/home", "agent/kubelet/ports", "agent/host/process", "agent/resource/settle"}, // the process, before package agent
	"agent/cluster/sources":   {"internal/config", "edge/desired", "edge/local", "edge/manifest", "edge/source", "internal/keys"},
	"agent/resource/usage":    {"internal/api", "metrics", "runtime/cri", "internal/keys", "internal/podspec"},
	"agent/change/selftest":   {"agent/change/update", "edge/store", "runtime/shim"},
	"agent/change/update":     {"internal/api", "internal/config", "internal/release", "agent/change/trial", "internal/regular", "internal/retry"},
	"agent/resource":          {"internal/config", "agent/engine", "agent/resource/flash", "agent/resource/garbage", "agent/host/home", "agent/resource/oom", "agent/host/process", "agent/engine/rotate", "runtime/cgroup"},
	"agent/host/volatile":     {"internal/readonly", "runtime/mounts"},

	"agent/resource/garbage": {"internal/api", "internal/config", "agent/pod/plan", "internal/clock", "metrics/host", "runtime/cri", "internal/keys", "internal/podspec"},

	"internal/fieldtest":              {},                                                                                                                                            // for tests: the pages that list every field
	"internal/eventtest":              {},                                                                                                                                            // for tests: events of a kubelet, of docs/events.md
	"agent/kubelet/access/accesstest": {},                                                                                                                                            // for tests
	"agent/kubelet/server/servertest": {"internal/api", "agent/resource/garbage", "agent/kubelet/server", "internal/socket", "agent/resource/usage", "runtime/cri", "internal/keys"}, // for tests

	"edge/apitest":        {"edge/kube", "edge/kube/kubetest"}, // for tests
	"edge/brake":          {"edge/desired", "edge/kube"},
	"edge/configsource":   {"edge/kube", "internal/retry"},
	"edge/csinode":        {"edge/kube", "internal/retry", "internal/weight"},
	"edge/resourceslice":  {"edge/kube", "internal/retry"},
	"edge/desired":        {"internal/demand", "edge/store", "internal/keys"},
	"edge/history":        {"edge/kube"},
	"edge/kube":           {"internal/retry", "internal/weight"},
	"edge/kube/kubetest":  {},
	"edge/manifest":       {"internal/demand", "internal/keys", "internal/podspec", "internal/weight"},
	"edge/local":          {"edge/manifest", "edge/store", "internal/keyring", "internal/keys", "internal/podspec"},
	"edge/link":           {"internal/durable", "edge/kube", "internal/keys", "internal/retry", "internal/weight"},
	"edge/node":           {"edge/kube", "edge/patch", "internal/retry"},
	"edge/object":         {"edge/kube", "edge/store", "internal/retry", "internal/keyring", "internal/keys", "internal/podspec", "internal/weight"},
	"edge/outbox":         {"edge/kube", "edge/patch", "edge/store", "internal/retry", "internal/keys", "internal/podspec"},
	"edge/patch":          {},
	"edge/podcertificate": {"edge/kube", "edge/store", "internal/keys", "internal/retry", "internal/weight"},
	"edge/review":         {"edge/kube"},
	"edge/source":         {"edge/manifest", "edge/desired", "edge/kube", "edge/local", "internal/retry", "internal/keys"},
	"edge/twin":           {"edge/kube", "internal/keys"},
	"edge/store":          {"internal/durable", "edge/store/pages", "internal/keyring", "internal/readonly"},
	"edge/store/pages":    {},

	"runtime/mounts/mountstest": {}, // for tests

	"runtime/abilities":     {}, // of OCI runtimes: for all who say what this node can
	"runtime/apparmor":      {},
	"runtime/cgroup":        {"metrics", "internal/demand"},
	"runtime/cri":           {"internal/weight", "internal/weight/codec"},
	"runtime/crisuite":      {"runtime/cri"},
	"runtime/crisuite/prog": {},
	"runtime/ctrd":          {"internal/readonly", "internal/bootid", "internal/inherit", "internal/keys", "runtime/abilities", "runtime/apparmor", "runtime/cgroup", "runtime/cri", "runtime/daemon", "runtime/drain", "runtime/image", "runtime/mounts", "runtime/namespace", "runtime/ocispec", "runtime/selinux", "runtime/shim", "runtime/stream", "runtime/taskshim", "runtime/tree", "internal/untrusted", "metrics"},
	"runtime/drain":         {}, // the end of output: commands, containers and attached readers
	"runtime/daemon":        {"internal/regular", "runtime/mounts"},
	"runtime/fake":          {"runtime/cri"},
	"runtime/image":         {"runtime/cri", "runtime/mounts", "internal/untrusted"},
	"runtime/mounts":        {},
	"runtime/namespace":     {},
	"runtime/ocispec":       {"internal/keys", "internal/regular", "internal/weight"},
	"runtime/remote":        {"runtime/cri", "internal/keys"},
	"runtime/selinux":       {},

	"runtime/shim":        {"runtime/drain", "runtime/shim/wire"},
	"runtime/shim/cmd":    {"internal/inherit", "runtime/shim/server", "internal/untrusted"},
	"runtime/shim/crilog": {"internal/untrusted"},
	"runtime/shim/pack":   {},
	"runtime/shim/server": {"runtime/drain", "runtime/shim/wire", "runtime/shim/crilog"},
	"runtime/shim/wire":   {},

	"runtime/stream":            {"internal/door", "runtime/cri", "runtime/stream/frames", "runtime/stream/linger", "runtime/stream/tunnel"},
	"runtime/stream/frames":     {},                                                    // both servers of SPDY
	"runtime/stream/linger":     {"internal/pulse"},                                    // every server of streams
	"runtime/stream/streamtest": {"internal/pulse/pulsetest", "runtime/stream/linger"}, // for tests
	"runtime/stream/tunnel":     {"runtime/stream/linger"},                             // both servers of port-forward: here and in agent/kubelet/server
	"runtime/taskshim":          {"internal/inherit", "internal/regular", "runtime/drain", "runtime/shim", "metrics"},
	"runtime/tree":              {},
	"internal/untrusted":        {}, // files that others made: agent rooms that read such may import it

	"net/address": {"net/netns"},
	"net/bridge":  {"net/netns", "net/nft"},
	"net/cni":     {"internal/durable", "internal/keys", "internal/regular", "internal/weight", "net/bridge", "net/cni/plugin", "net/ipam", "net/netns", "net/nft", "net/notice", "net/portmap"},
	"net/ipam":    {},
	"net/netns":   {},
	"net/notice":  {"net/netns"},
	"net/nft":     {"net/netns"},
	"net/portmap": {"net/netns", "net/nft"},
	"net/uplink":  {"net/netns"},

	"net/cni/plugin":      {"net/bridge", "net/netns", "net/nft", "net/portmap", "internal/weight"},
	"net/ipam/ipamtest":   {},
	"net/netns/netnstest": {"net/netns"},

	"metrics":         {},
	"metrics/cgroup":  {"metrics/kernfile"},
	"metrics/disk":    {"metrics/kernfile"},
	"metrics/host":    {"internal/bootid"},
	"metrics/process": {"metrics/kernfile"},
	"metrics/room":    {"metrics/cgroup", "metrics/host"},
	"metrics/sample":  {"metrics/cgroup", "metrics/process"},

	"metrics/kernfile": {}, // files that the kernel makes: a leaf, for the rooms of metrics that read such

	"metrics/exposition": {"metrics"},

	"internal/durable": {}, // files that a loss of power leaves whole; a leaf that everybody may use
	"internal/retry":   {}, // when to try again; a leaf that everybody may use
	"internal/regular": {}, // files by names that somebody gave; a leaf that everybody may use

	"packaging":            {},
	"packaging/advisories": {"internal/durable"},
	"packaging/demo":       {},
	"packaging/inspect":    {},
	"packaging/mkimage":    {},
	"packaging/sign":       {"internal/release"},
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
	"k8s.io/component-helpers/resource":       {"internal/demand"},
	"tags.cncf.io/container-device-interface": {"runtime/ctrd"},
	"github.com/container-storage-interface":  {"agent/volume/csi"},
	"github.com/godbus/dbus":                  {"agent/host/shutdown", "runtime/cgroup"},
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

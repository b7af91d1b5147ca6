package pinning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/realtime"
)

// TestNone checks that there is no Manager without a policy. The methods of a nil Manager do nothing.
func TestNone(t *testing.T) {
	if w := newWorld(t); w.Manager != nil {
		t.Error("a Manager exists")
	}
	var m *Manager
	if m.Run(t.Context()) != nil || m.Prepare(t.Context(), nil) != nil || m.Release(t.Context(), "x") != nil ||
		m.Exclusive("x", "c") || m.Collectors() != nil || len(m.Holding("x", "c").CPUs)+len(m.Allocatable().CPUs) > 0 {
		t.Error("a nil Manager does something")
	}
}

// TestLife checks that a container keeps its exclusive CPUs when the agent restarts. Other containers get the remaining CPUs, and running
// containers are moved to them.
func TestLife(t *testing.T) {
	w := newWorld(t, static("--cpu-manager-reconcile-period=1h")...)
	shared := w.pod("shared", "100m")
	w.admit(shared, "", "")
	if w.NeedsAllocation(shared) {
		t.Error("a container with half a CPU wants exclusive CPUs")
	}
	w.startContainer(shared, 0)
	if got := w.cpus["shared0"]; got != "0-7" {
		t.Errorf("shared: %s", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	w.Connect(w)
	go func() { done <- w.Run(ctx) }()
	own := w.pod("own", "2", "1500m")
	if !w.NeedsAllocation(own) {
		t.Error("two CPUs are not wanted")
	}
	w.admit(own, "", "")
	if got := <-w.moved; got != "shared0=0-1,3-5,7" { // the pod gets a whole core
		t.Errorf("moved %s", got)
	}
	mine, _ := w.config(own, 0)
	if rest, _ := w.config(own, 1); rest != w.cpus["shared0"] || mine == "" || mine == rest {
		t.Errorf("own %s, shared %s", mine, rest)
	}
	w.startContainer(own, 0)
	if !w.Exclusive("own", "c0") || w.Exclusive("own", "c1") || !w.Pod(own) || w.Pod(shared) {
		t.Error("the exclusive CPUs are wrong")
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil { // kill -9: nothing was stored since the last step
		t.Fatal(err)
	}
	if w.NeedsAllocation(own) {
		t.Error("a pod with CPUs is admitted again")
	}
	if again, _ := w.config(own, 0); again != mine {
		t.Errorf("after a restart %s, not %s", again, mine)
	}
	if h := w.Holding("own", "c0"); len(h.CPUs) != 2 || len(w.Allocatable().CPUs) != 7 {
		t.Errorf("reported %+v", h)
	}
	if starting, err := w.reconcile(t.Context(), w); err != nil || starting {
		t.Error(starting, err)
	}
	if err := w.Ended(t.Context(), own); err != nil || w.freed != 1 || w.Exclusive("own", "c0") {
		t.Error(err, w.freed)
	}
	if err := w.Prepare(t.Context(), own); err != nil || !w.Exclusive("own", "c0") {
		t.Error("the pod runs again", err)
	}
	for range 2 {
		if err := w.Release(t.Context(), "own"); err != nil {
			t.Fatal(err)
		}
	}
	if rows, err := w.db.Devices(t.Context()); err != nil || len(rows) > 0 {
		t.Errorf("left %v: %v", rows, err)
	}
}

// TestStarting checks a container that starts late: it was configured before another pod got exclusive CPUs, and started afterwards. Such a
// container is moved to the remaining CPUs.
func TestStarting(t *testing.T) {
	w := newWorld(t, static()...)
	shared := w.pod("shared", "100m")
	before, _ := w.config(shared, 0)
	w.admit(w.pod("own", "1"), "", "")
	if starting, err := w.reconcile(t.Context(), w); err != nil || !starting {
		t.Fatal("the starting container is not reported:", starting, err)
	}
	w.mu.Lock()
	w.running["late"] = &api.Container{Id: "late", CreatedAt: time.Now().UnixNano(), Labels: map[string]string{"io.kubernetes.pod.uid": "shared", "io.kubernetes.container.name": "c0"}}
	w.cpus["late"] = before
	w.mu.Unlock()
	starting, err := w.reconcile(t.Context(), w)
	if want, _ := w.config(shared, 0); err != nil || starting || w.cpus["late"] != want || want == before {
		t.Errorf("CPUs %s, not %s: %t %v", w.cpus["late"], want, starting, err)
	}
}

// TestRefused checks that a rejection has the same message as in a kubelet, and that a rejected pod has no CPUs.
func TestRefused(t *testing.T) {
	w := newWorld(t, static()...)
	w.admit(w.pod("big", "8"), "UnexpectedAdmissionError",
		"Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is unexpected")
	w.admit(w.pod("two", "5", "4"), "UnexpectedAdmissionError", "requested=4, available=2")
	if rows, err := w.db.Devices(t.Context()); err != nil || len(rows) > 0 || w.Exclusive("two", "c0") {
		t.Errorf("left %v: %v", rows, err)
	}
	w.flags = append(static(), "--cpu-manager-policy-options=full-pcpus-only=true")
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	w.admit(w.pod("odd", "3"), "SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2")
	w.db.Close()
	if _, _, err := w.Admit(t.Context(), w.Manager.podOf("even")); err == nil {
		t.Error("a decision that cannot be stored has an effect")
	}
}

// TestOptions checks that each option of the configuration file changes the assignment.
func TestOptions(t *testing.T) {
	const static = "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	far := fstest.MapFS{"sys/devices/system/node/node0/distance": nil, "sys/devices/system/node/node1/distance": nil}
	nine := fstest.MapFS{"sys/devices/system/node/online": text("0-8")}
	for node := 2; node < 9; node++ {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		nine[dir+"cpulist"], nine[dir+"meminfo"] = text(""), text(fmt.Sprintf("Node %d MemTotal: 1024 kB", node))
	}
	const two = `2,6 on "", shared 0-1,3-5,7` // result without options
	// This helper returns the CPUs and memory nodes of a container that requests cpus, and the CPUs that other containers share. If the pod
	// is rejected, it returns the reason.
	has := func(t *testing.T, file string, host fstest.MapFS, cpus string) string {
		path := filepath.Join(t.TempDir(), "kubelet.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+file), 0o600); err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, path: filepath.Join(t.TempDir(), "islet.db"), boot: "1", flags: []string{"--config=" + path}, host: host}
		if err := w.start(); err != nil {
			return err.Error()
		}
		own := w.pod("own", cpus)
		reason, _, err := w.Admit(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		if reason != "" {
			return reason
		}
		set, mems := w.config(own, 0)
		shared, _ := w.config(w.pod("shared", "100m"), 0)
		return fmt.Sprintf("%s on %q, shared %s", set, mems, shared)
	}
	for name, c := range map[string]struct {
		file, option string
		host         fstest.MapFS
		cpus         string
		without      string
		with         string
	}{
		"full cores":   {static, "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", nil, "3", `2,4,6 on "", shared 0-1,3,5,7`, "SMTAlignmentError"},
		"strict":       {static, "cpuManagerPolicyOptions: {strict-cpu-reservation: 'true'}", nil, "2", two, `2,6 on "", shared 1,3-5,7`},
		"across nodes": {static, "cpuManagerPolicyOptions: {distribute-cpus-across-numa: 'true'}", nil, "6", `1-3,5-7 on "", shared 0,4`, `1-6 on "", shared 0,7`}, // as 3 and 3 instead of 2 and 4
		"across cores": {static, "cpuManagerPolicyOptions: {distribute-cpus-across-cores: 'true'}\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}", nil, "2", two, `2,4 on "", shared 0-1,3,5-7`},
		"no gate": {static, "cpuManagerPolicyOptions: {distribute-cpus-across-cores: 'true'}", nil, "2", two,
			`cpuManagerPolicyOptions: CPU Manager Policy Alpha-level Options not enabled, but option "distribute-cpus-across-cores" provided`},
		"by socket": {static + "topologyManagerPolicy: single-numa-node\n", "cpuManagerPolicyOptions: {align-by-socket: 'true'}\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}", nil, "2", two,
			"cpuManagerPolicy: Topology manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"},
		"by cache": {static, "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: 'true', distribute-cpus-across-numa: 'true'}", nil, "2", two,
			"cpuManagerPolicyOptions: static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time"},
		"closest": {static + "topologyManagerPolicy: best-effort\n", "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}", far, "2", two,
			"topologyManagerPolicy: prefer-closest-numa-nodes: the kernel does not report the distances of NUMA node 0"},
		"nodes": {static + "topologyManagerPolicy: best-effort\n", "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '9'}", nine, "2",
			"topologyManagerPolicy: unsupported on machines with more than 8 NUMA Nodes", two},
		"memory": {static + "kubeReserved: {memory: 100Mi}\n", "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 1, limits: {memory: 200Mi}}]", nil, "2", two, `2,6 on "0", shared 0-1,3-5,7`},
		"memory is short": {static + "kubeReserved: {memory: 100Mi}\n", "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 1, limits: {memory: 201Mi}}]", nil, "2", two,
			`memoryManagerPolicy: the total amount "201Mi" of type "memory" is not equal to the value "200Mi" determined by Node Allocatable feature`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := has(t, c.file, c.host, c.cpus); got != c.without {
				t.Errorf("without: %s, not %s", got, c.without)
			}
			if got := has(t, c.file+c.option+"\n", c.host, c.cpus); got != c.with {
				t.Errorf("with: %s, not %s", got, c.with)
			}
		})
	}
}

// podOf returns a pod that is not stored.
func (m *Manager) podOf(uid string) *v1.Pod {
	l := podtest.CPUAndMemory("2", "1Gi")
	return podtest.New(uid, podtest.Requests(l), podtest.Limits(l))
}

// TestChanged checks that a change of the policy is rejected while running pods have exclusive CPUs. It is accepted when no pod has
// exclusive CPUs, and after a reboot. The pods then lose their CPUs and keep their devices.
func TestChanged(t *testing.T) {
	w := newWorld(t, static()...)
	w.plug()
	w.admit(w.podWith("own", "2", serial, 1), "", "")
	w.flags = nil
	err := w.start()
	if err == nil || !strings.Contains(err.Error(),
		`cpuManagerPolicy: configured policy "none" differs from state checkpoint policy "static": running pods depend on the stored assignments (c0 of own): drain this node`) {
		t.Fatal(err)
	}
	w.flags = []string{"--cpu-manager-policy=static", "--reserved-cpus=0-6"}
	if err := w.start(); err == nil || !strings.Contains(err.Error(), "is not a subset of the allocatable CPUs") {
		t.Fatal(err)
	}
	w.boot = "2"
	if err := w.start(); err != nil || w.Exclusive("own", "c0") {
		t.Fatal("after a reboot", err)
	}
	w.flags = nil
	if err := w.start(); err != nil || w.Manager != nil {
		t.Fatal("no container has exclusive CPUs", err)
	}
	if h := w.devices.Holdings(); len(h) != 1 || h[0].Resource != serial {
		t.Errorf("the devices are %+v", h)
	}
}

// TestReleasesOwnRows checks that the release of a pod's CPUs and memory does not release its devices, and the reverse.
func TestReleasesOwnRows(t *testing.T) {
	for _, cpusFirst := range []bool{true, false} {
		w := newWorld(t, static()...)
		w.plug()
		p := w.podWith("own", "2", serial, 1)
		w.admit(p, "", "")
		var err error
		if cpusFirst {
			err = w.Release(t.Context(), p.UID)
		} else {
			err = w.devices.Release(t.Context(), p.UID)
		}
		if err := errors.Join(err, w.start()); err != nil {
			t.Fatal(err)
		}
		if devices := len(w.devices.Holdings()) == 1; devices != cpusFirst || w.Exclusive("own", "c0") == cpusFirst {
			t.Errorf("after the release of one of the two, CPUs: %v: %v", cpusFirst, w.devices.Holdings())
		}
	}
}

// TestHostile checks that the agent does not start if a row in the store is damaged. The error names the container.
func TestHostile(t *testing.T) {
	for _, given := range []string{"x", "0-99999999", "-1", ""} {
		w := newWorld(t, static()...)
		p := w.pod("own", "1")
		if err := w.db.GiveDevices(t.Context(), []store.Devices{{UID: p.UID, Container: "c0", Resource: rowCPU, Count: 1, Given: []byte(given)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.start(); err == nil || !strings.Contains(err.Error(), "read the CPUs of container c0 of pod own") {
			t.Errorf("%q: %v", given, err)
		}
	}
	var row memoryRow
	if json.Unmarshal([]byte(`{"seq":1,"blocks":[{"kind":"memory","nodes":1,"size":5,"held":5}]}`), &row) != nil || row.Blocks[0].Held != 5 {
		t.Error("the stored format has changed")
	}
}

// TestIsolated checks that only containers with the annotation get isolated CPUs, and only as many as the kernel isolates. If no pod may
// have the annotation, isolated CPUs are like any other CPU.
func TestIsolated(t *testing.T) {
	edge := filepath.Join(t.TempDir(), "edge.yaml")
	rule := "realTime: {pods: [{namespaces: ['*'], sources: [file], isolatedCPUs: true}]}\n"
	if err := os.WriteFile(edge, []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"+rule), 0o600); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"sys/devices/system/cpu/isolated": {Data: []byte("5-6\n")}}
	w := &world{t: t, path: filepath.Join(t.TempDir(), "islet.db"), boot: "1", flags: static("--edge-config=" + edge), host: files,
		running: map[string]*api.Container{}, cpus: map[string]string{}, moved: make(chan string, 100)}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	plain, own, late := w.pod("plain", "1", "100m"), w.pod("own", "1", "1"), w.pod("late", "1")
	own.Annotations = map[string]string{keys.IsolatedCPUs + "c0": "true"}
	plain.Spec.Containers[1].Resources.Requests = plain.Spec.Containers[1].Resources.Limits
	for _, p := range []*v1.Pod{own, plain, late} {
		w.admit(p, "", "")
	}
	for _, c := range []struct {
		pod  *v1.Pod
		i    int
		want string
	}{{own, 0, "6"}, {own, 1, "4"}, {plain, 0, "2"}, {plain, 1, "0,3,7"}, {late, 0, "1"}} {
		if got, _ := w.config(c.pod, c.i); got != c.want {
			t.Errorf("container %d of %s has CPUs %s, not %s", c.i, c.pod.Name, got, c.want)
		}
	}
	late.Annotations = map[string]string{keys.IsolatedCPUs + "c0": "true"}
	config := &api.ContainerConfig{Linux: &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{}}}
	if err := w.Container(t.Context(), late, &late.Spec.Containers[0], config); err == nil {
		t.Error("an annotation that was added later is ignored")
	}
	most := w.pod("most", "2")
	most.Annotations = late.Annotations
	w.admit(most, realtime.Unavailable, keys.IsolatedCPUs+"c0")

	w = &world{t: t, path: filepath.Join(t.TempDir(), "islet.db"), boot: "1", flags: static(), host: files}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	if shared, _ := w.config(w.pod("shared", "100m"), 0); shared != "0-7" {
		t.Errorf("without a rule, containers share CPUs %s", shared)
	}
}

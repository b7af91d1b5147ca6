package pinning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/reserve"
)

// A world is a machine with a real store. The machine has two sockets, each with two cores of two threads.
type world struct {
	*Manager
	t       *testing.T
	path    string
	db      *store.Store
	devices *devicemanager.Manager
	boot    string
	flags   []string
	host    fstest.MapFS // these files replace files of the function host; may be nil
	freed   int

	mu      sync.Mutex
	running map[string]*api.Container
	cpus    map[string]string // the key is a container ID
	moved   chan string
}

func newWorld(t *testing.T, flags ...string) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "islet.db"), boot: "1", flags: flags, running: map[string]*api.Container{}, cpus: map[string]string{}, moved: make(chan string, 100)}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// host returns the files that describe the topology. CPUs 0, 2, 4 and 6 are on NUMA node 0 and socket 0, the other CPUs on node 1 and
// socket 1. CPU n+4 is the second thread of the core of CPU n.
func host(boot string) fstest.MapFS {
	files := fstest.MapFS{}
	put := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	put("proc/sys/kernel/random/boot_id", boot)
	put("sys/devices/system/cpu/online", "0-7")
	for cpu := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		put(dir+"physical_package_id", fmt.Sprint(cpu%2))
		put(dir+"core_cpus_list", fmt.Sprintf("%d,%d", cpu%4, cpu%4+4))
	}
	put("sys/devices/system/node/online", "0-1")
	for node := range 2 {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		put(dir+"cpulist", []string{"0,2,4,6", "1,3,5,7"}[node])
		put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: %d kB", node, 4<<20))
		put(dir+"distance", []string{"10 21", "21 10"}[node])
	}
	return files
}

func (w *world) start() error {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if w.db != nil {
		w.db.Close()
	}
	db, err := store.Open(w.t.Context(), w.path, log)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	w.db = db
	cfg, _, err := config.Load(append([]string{"--hostname-override=n", "--state-dir=" + filepath.Dir(w.path)}, w.flags...))
	if err != nil {
		w.t.Fatal(err)
	}
	share, err := reserve.New(&cfg.Kubelet, reserve.Machine{CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, Capacity: v1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi")}})
	if err != nil {
		w.t.Fatal(err)
	}
	files := host(w.boot)
	for name, f := range w.host {
		files[name] = f
		if f == nil {
			delete(files, name)
		}
	}
	w.devices = devicemanager.New(devicemanager.Config{Store: db, Log: log})
	if err := w.devices.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.Manager, err = Open(w.t.Context(), Config{Config: cfg, Share: share, Host: files, Store: db, Devices: w.devices, OnRelease: func() { w.mu.Lock(); w.freed++; w.mu.Unlock() }, Log: log})
	return err
}

// pod returns a pod with one container for each element of cpus. Each element is the number of CPUs that the container requests. Each
// container requests 1 GiB of memory.
func (w *world) pod(uid string, cpus ...string) *v1.Pod {
	p := podtest.New(uid, podtest.Containers())
	for i, n := range cpus {
		l := v1.ResourceList{v1.ResourceCPU: resource.MustParse(n), v1.ResourceMemory: resource.MustParse("1Gi")}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Image: "x", Resources: v1.ResourceRequirements{Requests: l.DeepCopy(), Limits: l}})
	}
	if err := w.db.UpdatePods(w.t.Context(), []store.Pod{{Pod: p, Source: "file"}}, nil); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) admit(p *v1.Pod, reason, message string) {
	w.t.Helper()
	r, m, err := w.Admit(w.t.Context(), p)
	if err != nil || r != reason || !strings.Contains(m, message) {
		w.t.Fatalf("pod %s: %q %q: %v", p.UID, r, m, err)
	}
}

// config returns the CPUs and memory nodes that the container's configuration for the runtime contains.
func (w *world) config(p *v1.Pod, i int) (cpus, mems string) {
	w.t.Helper()
	out := &api.ContainerConfig{Linux: &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{}}}
	if err := w.Container(w.t.Context(), p, &p.Spec.Containers[i], out); err != nil {
		w.t.Fatal(err)
	}
	return out.Linux.Resources.CpusetCpus, out.Linux.Resources.CpusetMems
}

func (w *world) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &api.ListContainersResponse{}
	for _, c := range w.running {
		out.Containers = append(out.Containers, c)
	}
	return out, nil
}

func (w *world) UpdateContainerResources(_ context.Context,
	q *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[q.ContainerId] == nil {
		return nil, errors.New("it is not there")
	}
	w.cpus[q.ContainerId] = q.Linux.CpusetCpus
	w.moved <- q.ContainerId + "=" + q.Linux.CpusetCpus
	return &api.UpdateContainerResourcesResponse{}, nil
}

// startContainer adds a container with its configured CPUs to the running containers.
func (w *world) startContainer(p *v1.Pod, i int) {
	cpus, _ := w.config(p, i)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := fmt.Sprint(p.UID, i)
	w.running[id] = &api.Container{Id: id, CreatedAt: time.Now().UnixNano(), Labels: map[string]string{"io.kubernetes.pod.uid": string(p.UID), "io.kubernetes.container.name": p.Spec.Containers[i].Name}}
	w.cpus[id] = cpus
}

func static(more ...string) []string {
	return append([]string{"--cpu-manager-policy=static", "--reserved-cpus=0"}, more...)
}

package servertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/resource/usage"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/socket"
)

// A Node is a fake node with its server. It implements the interfaces of server.Config.
type Node struct {
	Dir     string
	Socket  string
	Runtime *Runtime
	Server  *server.Server
	// Describe, Details, Settings, Restart and Events set the fields of server.Config that have the same names. They
	// may be nil. The field Origin of server.Config returns the Origin in Details.
	Describe func(*api.Status)
	Details  func(types.UID) api.Details
	Settings func() any
	Restart  func(uid types.UID, container, id string, grace time.Duration)
	Events   func() []api.Event
	// Devices are the devices that containers can request. OtherDevices are the devices that belong to no resource.
	Devices, OtherDevices []api.Device

	// Root is the root directory of every container for copies without tar. Empty means that there is none.
	Root string

	// Time is the state of the clock.
	Time api.Clock

	mu      sync.Mutex
	pods    []*v1.Pod
	changed chan struct{}
}

// Start starts a Node with a socket in a temporary directory. The returned function stops the server. To a client, the agent then seems to
// have been killed.
func Start(t testing.TB, change ...func(*server.Config)) (n *Node, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "islet") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	n = &Node{Dir: dir, Socket: filepath.Join(dir, "s"), changed: make(chan struct{}), Runtime: newRuntime()}
	log := slog.New(slog.DiscardHandler)
	cfg := server.Config{IgnoredFields: ignoredFields, Version: "1.2.3", NodeName: "pi", LogsDir: filepath.Join(dir, "logs"),
		KubeVersion: "v1.36.3", Pods: n, Local: n, Runtime: n.Runtime, Images: n.Runtime, Decode: decode,
		Log: log, Clock: n, Devices: n.devices,
		Kubelet: server.Kubelet{Debugging: true, Profiling: true, SystemLogs: filepath.Join(dir, "host-logs"),
			Checkpoints: filepath.Join(dir, "checkpoints"), CheckpointTimeout: 2 * time.Minute,
			Config: &kubelet.KubeletConfiguration{
				StaticPodURLHeader: map[string][]string{"Authorization": {"secret"}}}},
		Restart: func(uid types.UID, container, id string, grace time.Duration) {
			if n.Restart != nil {
				n.Restart(uid, container, id, grace)
			}
		},
		ContainerRoot: func(context.Context, string) (*containerfiles.Root, error) {
			if n.Root == "" {
				return nil, containerfiles.ErrNoRoot
			}
			return containerfiles.At(n.Root)
		},
		Describe: func(_ context.Context, s *api.Status) {
			if n.Describe != nil {
				n.Describe(s)
			}
		},
		Settings: func() any {
			if n.Settings == nil {
				return nil
			}
			return n.Settings()
		},
		Events: func() []api.Event {
			if n.Events == nil {
				return nil
			}
			return n.Events()
		},
		Details: func(uid types.UID) (d api.Details) {
			if n.Details != nil {
				d = n.Details(uid)
			}
			return d
		},
		Origin: func(uid types.UID) string {
			if n.Details == nil {
				return ""
			}
			return n.Details(uid).Origin
		}}
	cfg.Garbage = garbage.New(garbage.Config{
		Images: n.Runtime, Runtime: n.Runtime, Pods: n.List, Offline: func() bool { return false },
		Meta: meta{}, Now: time.Now, Log: log,
	})
	cfg.Usage = usage.New(usage.Config{NodeName: cfg.NodeName, Runtime: n.Runtime, Pods: n.forEachPod, Started: time.Now()})
	for _, f := range change {
		f(&cfg)
	}
	n.Server, err = server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return n, n.Serve(t)
}

// Serve serves the node on its socket until the returned function is called. Start calls Serve first. A test may call it again to simulate
// a restart of the agent. The containers and pods stay the same.
func (n *Node) Serve(t testing.TB) (stop func()) {
	t.Helper()
	ln, err := socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}).ListenLocal(n.Socket, server.MaxLocal)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Server.Run(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// meta is an empty store that ignores all writes.
type meta struct{}

func (meta) Meta(context.Context, string) (string, bool, error) { return "", false, nil }
func (meta) SetMeta(context.Context, string, string) error      { return nil }

// Dial connects to the socket.
func (n *Node) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", n.Socket)
}

// Put adds a pod. It replaces the pod with the same UID, if there is one.
func (n *Node) Put(pod *v1.Pod) {
	n.changePods(func() {
		n.pods = append(slices.DeleteFunc(n.pods, func(p *v1.Pod) bool { return p.UID == pod.UID }), pod)
	})
}

// Remove removes a pod.
func (n *Node) Remove(uid types.UID) {
	n.changePods(func() { n.pods = slices.DeleteFunc(n.pods, func(p *v1.Pod) bool { return p.UID == uid }) })
}

func (n *Node) changePods(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

// List implements pods.Lister.
func (n *Node) List() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *Node) forEachPod(f func(*v1.Pod, *v1.PodStatus)) {
	for _, p := range n.List() {
		f(p, &p.Status)
	}
}

// Changed implements pods.Lister.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// Apply implements pods.Local.
func (n *Node) Apply(_ context.Context, pods []*v1.Pod) error {
	for _, p := range pods {
		n.Put(p)
	}
	return nil
}

// Delete implements pods.Local. If grace is 0, Delete removes the pod at once. Otherwise the pod stays Terminating until Remove is
// called.
func (n *Node) Delete(_ context.Context, uid types.UID, grace *int64) error {
	if grace != nil && *grace == 0 {
		n.Remove(uid)
		return nil
	}
	n.changePods(func() {
		if i := slices.IndexFunc(n.pods, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
			pod, now := n.pods[i].DeepCopy(), metav1.Now()
			pod.DeletionTimestamp = &now
			n.pods = append(slices.Delete(slices.Clone(n.pods), i, i+1), pod)
		}
	})
	return nil
}

// AddEphemeral implements pods.Local. The added container runs at once. If its command is
// "exit", it has already ended, with the exit code 7.
func (n *Node) AddEphemeral(_ context.Context, uid types.UID, add func(*v1.Pod) (*v1.Pod, error)) (err error) {
	n.changePods(func() {
		i := slices.IndexFunc(n.pods, func(p *v1.Pod) bool { return p.UID == uid })
		var pod *v1.Pod
		if pod, err = add(n.pods[i]); err != nil {
			return
		}
		c := pod.Spec.EphemeralContainers[len(pod.Spec.EphemeralContainers)-1]
		id := pod.Name + "-" + c.Name
		state := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		n.Runtime.run(pod, id, c.Name, filepath.Join(n.Dir, id, "0.log"))
		if slices.Equal(c.Command, []string{"exit"}) {
			state = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 7, ContainerID: "islet://" + id}}
			n.Runtime.Exit(id)
		}
		pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses,
			v1.ContainerStatus{Name: c.Name, ContainerID: "islet://" + id, State: state})
		n.pods = append(slices.Delete(slices.Clone(n.pods), i, i+1), pod)
	})
	return err
}

// ignoredFields returns the fields of a pod that have no effect on a node without storage limits.
func ignoredFields(pod *v1.Pod) (fields, sentences []string) {
	for _, f := range admit.IgnoredFields(pod, admit.Node{}) {
		fields, sentences = append(fields, f.Field), append(sentences, f.String())
	}
	return fields, sentences
}

func decode(data []byte, origin string) (m manifest.Set, err error) {
	var pod v1.Pod
	if err := yaml.UnmarshalStrict(data, &pod); err != nil {
		return m, fmt.Errorf("%s: %w", origin, err)
	}
	if pod.Name == "" {
		return m, nil
	}
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	pod.UID = types.UID("uid-" + pod.Name + "-" + pod.Spec.NodeName)
	pod.Annotations = map[string]string{keys.ConfigSource: keys.SourceLocal}
	return manifest.Set{Pods: []*v1.Pod{&pod}}, nil
}

// Pod adds a running pod of the local source. The pod has a container for each of the given names. In the runtime, a container has the ID
// POD-CONTAINER.
func (n *Node) Pod(name string, started time.Time, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{keys.ConfigSource: keys.SourceLocal}}}
	at := metav1.NewTime(started)
	pod.Spec.NodeName = "pi"
	pod.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &at, PodIP: "10.42.0.7", HostIP: "192.0.2.1",
		PodIPs: []v1.PodIP{{IP: "10.42.0.7"}}, QOSClass: v1.PodQOSBestEffort,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	for _, c := range containers {
		id := name + "-" + c
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c, Image: "localhost/" + c + ":1"})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: c, Ready: true,
			ContainerID: "islet://" + id, Image: "localhost/" + c + ":1",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}})
		n.Runtime.run(pod, id, c, filepath.Join(n.Dir, id, "0.log"))
	}
	n.Put(pod)
	return pod
}

// Log appends lines in CRI format to the log of a container.
func (n *Node) Log(t testing.TB, id string, lines ...string) {
	t.Helper()
	path := filepath.Join(n.Dir, id, "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "2026-11-21T02:03:04.000000005Z stdout F %s\n", l)
	}
	if _, err := io.WriteString(f, b.String()); err != nil {
		t.Fatal(err)
	}
}

// Replace restarts a container. The new container has the ID POD-CONTAINER-2, and the old container becomes the status's
// LastTerminationState. Concurrent calls for containers of the same pod are safe.
func (n *Node) Replace(pod, container string) {
	n.changePods(func() {
		i := slices.IndexFunc(n.pods, func(p *v1.Pod) bool { return p.Name == pod })
		p := n.pods[i].DeepCopy()
		for i := range p.Status.ContainerStatuses {
			if st := &p.Status.ContainerStatuses[i]; st.Name == container {
				st.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: st.ContainerID}
				st.ContainerID += "-2"
				st.RestartCount++
				id := pod + "-" + container + "-2"
				n.Runtime.run(p, id, container, filepath.Join(n.Dir, id, "0.log"))
			}
		}
		n.pods = append(slices.Delete(slices.Clone(n.pods), i, i+1), p)
	})
}

// Clock returns Time.
func (n *Node) Clock() api.Clock { return n.Time }

// ResetClock deletes the whole content of Time except the machine's time.
func (n *Node) ResetClock(context.Context) error {
	n.Time = api.Clock{Now: n.Time.Machine, Machine: n.Time.Machine}
	return nil
}

func (n *Node) devices(all bool) ([]api.Device, error) {
	out := append([]api.Device{}, n.Devices...)
	if all {
		out = append(out, n.OtherDevices...)
	}
	return out, nil
}

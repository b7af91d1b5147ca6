package crisuite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A podResource is a shared resource of a pod, which belongs to the pause container in other
// runtimes. All containers of the pod must see the same resource, regardless of the order of their
// starts, and it must exist as long as the sandbox.
type podResource struct {
	what string
	// createArgs contains the arguments with which prog creates the resource. prog runs in a privileged container, which ends before the
	// others start. If the sandbox creates the resource, there are no arguments.
	createArgs []string
	// printArgs contains the arguments with which prog prints the resource in the other containers.
	printArgs []string
	// The fields privileged and ordinary contain the expected output of the two kinds of
	// containers. If ordinary is empty, both kinds print the same.
	privileged, ordinary string
}

// podResources contains the tested resources.
var podResources = []podResource{
	{what: "the sysfs of the network namespace is writable in a privileged container",
		printArgs:  []string{"put", "/sys/class/net/lo/ifalias", "pod"},
		privileged: "put: <nil>", ordinary: "put: open /sys/class/net/lo/ifalias: read-only file system"},
	{what: "the superblock of the sysfs is writable", printArgs: []string{"super", "/sys"}, privileged: "rw"},
	{what: "a message queue", createArgs: []string{"put", "/dev/mqueue/queue", ""}, printArgs: []string{"ls", "/dev/mqueue"},
		privileged: "queue"},
	{what: "a message queue is writable", printArgs: []string{"opens", "/dev/mqueue/queue"}, privileged: "open: <nil>"},
	{what: "the superblock of the message queues", printArgs: []string{"super", "/dev/mqueue"}, privileged: "rw"},
	{what: "a file of /dev/shm", createArgs: []string{"write", "/dev/shm/kept", "x"}, printArgs: []string{"read", "/dev/shm/kept"},
		privileged: "x"},
	{what: "size and mode of /dev/shm", printArgs: []string{"room", "/dev/shm"}, privileged: "64 dtrwxrwxrwx"},
	{what: "a shared memory segment", createArgs: []string{"segment", "4711", "4096"},
		printArgs: []string{"segment", "4711", "0"}, privileged: "segment: <nil>"},
	{what: "a network sysctl of the pod", printArgs: []string{"read", "/proc/sys/net/ipv4/ip_unprivileged_port_start"}, privileged: "33"},
	{what: "an IPC sysctl of the pod", printArgs: []string{"read", "/proc/sys/kernel/msgmax"}, privileged: "9000"},
	{what: "a sysctl that a container set", createArgs: []string{"put", "/proc/sys/net/ipv4/tcp_retries2", "11"},
		printArgs: []string{"read", "/proc/sys/net/ipv4/tcp_retries2"}, privileged: "11"},
	{what: "a hostname that a container set", createArgs: []string{"rename", "renamed"}, printArgs: []string{"hostname"},
		privileged: "renamed"},
	{what: "loopback is up", printArgs: []string{"read", "/sys/class/net/lo/flags"}, privileged: "0x9"},
}

// testOrder starts and restarts an ordinary and a privileged container of a pod in both orders.
// Both must always see the same shared resources, regardless of which container started first.
func testOrder(t *testing.T, b *bench) {
	attempt := uint32(0)
	for _, processes := range []api.NamespaceMode{api.NamespaceMode_CONTAINER, api.NamespaceMode_POD} {
		for _, order := range [][]string{{"ordinary", "privileged"}, {"privileged", "ordinary"}} {
			cfg := b.podConfig(func(c *api.PodSandboxConfig) {
				c.Metadata.Attempt = attempt
				c.Linux.SecurityContext.NamespaceOptions.Pid = processes
				// A kubelet sets Privileged for the sandbox of a pod with a privileged container.
				c.Linux.SecurityContext.Privileged = true
				c.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "33", "kernel.msgmax": "9000"}
			})
			p := &orderedPod{b, b.runPod(cfg), cfg, fmt.Sprintf("%v, %v", processes, order), attempt * 100}
			attempt++
			p.createResources()
			first, second := p.start(order[0]), p.start(order[1])
			p.stop(first)
			first = p.start(order[0])
			p.stop(second)
			second = p.start(order[1])
			p.stop(second)
			p.stop(first)
			p.start(order[1])
		}
	}
}

// An orderedPod is the pod for one order of starts.
type orderedPod struct {
	*bench
	id    string
	cfg   *api.PodSandboxConfig
	order string
	made  uint32 // number of the last container
}

func (p *orderedPod) next(kind string, args ...string) *api.ContainerConfig {
	p.made++
	c := p.containerConfig(kind, args...)
	c.Metadata.Attempt, c.LogPath = p.made, fmt.Sprintf("%s/%d.log", kind, p.made)
	c.Linux.SecurityContext.Privileged = kind == "privileged"
	c.Linux.SecurityContext.NamespaceOptions.Pid = p.cfg.Linux.SecurityContext.NamespaceOptions.Pid
	return c
}

// createResources runs a container that creates the shared resources.
func (p *orderedPod) createResources() {
	var args []string
	for _, k := range podResources {
		args = append(args, k.createArgs...)
	}
	if _, st := p.runForOutput(p.id, p.cfg, p.next("privileged", args...)); st.ExitCode != 0 {
		p.Fatalf("%s: the container that creates the resources has exit code %d", p.order, st.ExitCode)
	}
}

// start starts a container, waits for its complete output, and checks the output.
func (p *orderedPod) start(kind string) string {
	p.Helper()
	var args []string
	for _, k := range podResources {
		args = append(append(args, "print", "== "+k.what), k.printArgs...)
	}
	c := p.next(kind, append(args, "wait")...)
	id := p.create(p.id, p.cfg, c)
	p.bench.start(id)
	p.awaitLog(c, "waiting\n")
	found := strings.Split(p.readLog(c), "== ")[1:]
	for i, k := range podResources {
		want := k.privileged
		if kind == "ordinary" && k.ordinary != "" {
			want = k.ordinary
		}
		if _, got, _ := strings.Cut(found[i], "\n"); !slices.Contains(strings.Split(got, "\n"), want) {
			p.Errorf("%s: container %d, %s: %s: got %q, want %q", p.order, p.made, kind, k.what, got, want)
		}
	}
	return id
}

func (p *orderedPod) stop(id string) {
	p.Helper()
	must(p.Runtime.StopContainer(p.ctx, &api.StopContainerRequest{ContainerId: id}))(p.bench)
}

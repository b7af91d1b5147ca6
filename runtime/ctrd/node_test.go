package ctrd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
)

// A node is a runtime with its own storage and directories.
type node struct {
	*ctrd.Runtime
	dir, run string
	cgroup   string
	oci      string // OCI runtime; if empty, the default

	snapshotter string // snapshotter; if empty, overlay
	shimPods    int
	shim        string
	handlers    map[string]ctrd.Handler
	handler     string // runtime handler of the pods
	daemon      *daemon.Daemon
	network     *network
	images      *image.Service
	imported    string // snapshotter that has the test image
}

// programs contains the programs that the tests need. They are built once for all tests.
var programs struct {
	once       sync.Once
	shim       string
	prog       string
	image      []byte
	cleanupDir string
}

// Some /proc files of this process describe the main thread. Therefore the main goroutine stays on the main thread, as in the main function
// of islet.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
	}
	os.Exit(amongSharedMounts(func() int { return runAll(m) }))
}

func runAll(m *testing.M) int {
	code := m.Run()
	if programs.cleanupDir != "" {
		os.RemoveAll(programs.cleanupDir)
	}
	return code
}

func build(t testing.TB) {
	t.Helper()
	programs.once.Do(func() {
		if dir := os.Getenv("ISLET_TEST_PROGRAMS"); dir != "" { // on a machine without Go, such as a virtual machine
			programs.shim, programs.prog = filepath.Join(dir, "shim"), filepath.Join(dir, "prog")
			programs.image = crisuite.Image(t, programs.prog)
			return
		}
		dir, err := os.MkdirTemp("", "islet-test")
		if err != nil {
			t.Fatal(err)
		}
		programs.cleanupDir = dir
		programs.shim = filepath.Join(dir, "islet-shim")
		if err := os.Rename(crisuite.Build(t, "github.com/islet-edge/islet/runtime/shim/cmd"), programs.shim); err != nil {
			t.Fatal(err)
		}
		programs.prog = filepath.Join(dir, "prog")
		if err := os.Rename(crisuite.Build(t, "github.com/islet-edge/islet/runtime/crisuite/prog"), programs.prog); err != nil {
			t.Fatal(err)
		}
		programs.image = crisuite.Image(t, programs.prog)
	})
	if programs.image == nil {
		t.Fatal("the programs were not built")
	}
}

// newNode starts a node with the test image. At the end of the test it checks that no resource of the node is left.
func newNode(t testing.TB, shimPods int) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	build(t)
	run, err := os.MkdirTemp("", "ir") // the path is short, because it is part of the sockets' paths
	if err != nil {
		t.Fatal(err)
	}
	n := &node{dir: t.TempDir(), run: run, cgroup: "/" + filepath.Base(run), shimPods: shimPods, shim: programs.shim, network: &network{up: map[string]bool{}}, oci: os.Getenv("ISLET_TEST_OCI")}
	if systemd() {
		n.cgroup += ".slice"
	}
	n.mountRun(t)
	t.Cleanup(n.clean(t))
	n.start(t)
	return n
}

// systemd reports whether the tests use systemd's cgroup driver.
func systemd() bool { return os.Getenv("ISLET_TEST_SYSTEMD") != "" }

// mountRun mounts the run directory in memory, like /run, so that a reboot removes its content.
func (n *node) mountRun(t testing.TB) {
	t.Helper()
	if err := unix.Mount("run", n.run, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
}

func (n *node) start(t testing.TB) {
	t.Helper()
	if err := n.open(slog.New(slog.NewTextHandler(testWriter{t}, nil)), programs.image); err != nil {
		t.Fatal(err)
	}
}

// open starts the parts of the node. If archive is not nil, the node imports the image in this archive.
func (n *node) open(log *slog.Logger, archive []byte) error {
	return n.openRuntime(context.Background(), log, archive)
}

// openRuntime is like open. The runtime gets the context.
func (n *node) openRuntime(runtimeCtx context.Context, log *slog.Logger, archive []byte) error {
	ctx := context.Background()
	var err error
	if n.daemon, err = daemon.Start(ctx, daemon.Config{Root: filepath.Join(n.dir, "containerd"), Snapshotter: n.snapshotter, Log: log}); err != nil {
		return err
	}
	images, err := image.New(image.Config{Client: n.daemon.Client(), Root: filepath.Join(n.dir, "containerd"), Snapshotter: n.daemon.Snapshotter(), Log: log})
	if err != nil {
		return err
	}
	if s := n.daemon.Snapshotter(); archive != nil && n.imported != s { // a restart finds the image in the store
		n.imported = s
		if _, err := images.ImportArchive(ctx, bytes.NewReader(archive), "prog.tar", nil); err != nil {
			return err
		}
	}
	n.images = images
	n.Runtime, err = ctrd.New(runtimeCtx, ctrd.Config{
		Daemon: n.daemon, Images: images, Network: n.network, StateDir: filepath.Join(n.dir, "state"), RunDir: n.run,
		PodDirs:  []string{filepath.Join(n.dir, "pods")},
		ShimPath: n.shim, ShimPods: n.shimPods, LogMaxSize: 10 << 20, LogMaxFiles: 5, Log: log,
		OCIRuntime: n.oci, Handlers: n.handlers, SystemdCgroup: systemd(), CDIDirs: n.cdi(),
	})
	return err
}

// cdi returns the directories of CDI specifications.
func (n *node) cdi() []string {
	return []string{filepath.Join(n.dir, "etc-cdi"), filepath.Join(n.dir, "run-cdi")}
}

// stop ends the runtime as the end of the agent does. Containers keep running.
func (n *node) stop(t testing.TB) {
	t.Helper()
	if n.Runtime != nil {
		if err := n.Runtime.Close(); err != nil {
			t.Error(err)
		}
		if err := n.daemon.Close(); err != nil {
			t.Error(err)
		}
	}
	n.Runtime = nil
}

func (n *node) clean(t testing.TB) func() {
	return func() {
		if n.Runtime != nil {
			n.removeAll(t)
			n.checkClean(t)
		}
		n.stop(t)
		n.powerOff(t) // after a failed test, resources may be left
		os.RemoveAll(n.run)
	}
}

func (n *node) removeAll(t testing.TB) {
	t.Helper()
	list, err := n.ListPodSandbox(context.Background(), &api.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if _, err := n.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			t.Error(err)
		}
	}
}

// checkClean checks that no resource of the node is left.
func (n *node) checkClean(t testing.TB) {
	t.Helper()
	// crun 1.9 and later caches compiled seccomp profiles there, limits their number and reuses them until the next boot.
	os.RemoveAll(filepath.Join(n.run, "oci", ".cache"))
	for _, d := range []string{"b", "ns", "s", "sandboxes", "oci"} {
		expectEmpty(t, filepath.Join(n.run, d))
	}
	if n.handler != "" {
		eventually(t, "no containerd shim is left", func() bool { return len(n.taskShims(t, "")) == 0 })
	}
	for _, d := range []string{"sandboxes", "containers"} {
		expectEmpty(t, filepath.Join(n.dir, "state", d))
	}
	for _, c := range cgroupDirs(n.cgroup) {
		// After the agent was killed, a containerd shim may leave empty cgroups. The agent removes them with the cgroup of the pod.
		if n.handler != "" {
			removeCgroup(c)
		}
		for _, e := range subdirs(c) {
			t.Errorf("cgroup %s is left", e)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		own := slices.Contains([]string{n.run + "/b", n.run + "/ns", n.run + "/sandboxes"}, strings.Fields(line)[4])
		if strings.Contains(line, n.run+"/") && !own {
			t.Errorf("mount is left: %s", line)
		}
	}
	if left := n.network.left(); len(left) > 0 {
		t.Errorf("networks are left: %v", left)
	}
}

func expectEmpty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", filepath.Join(dir, e.Name()))
	}
}

func cgroupDirs(path string) []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	v2, _ := filepath.Glob("/sys/fs/cgroup" + path)
	return append(v1, v2...)
}

func subdirs(dir string) (out []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

func removeCgroup(dir string) {
	for _, d := range subdirs(dir) {
		removeCgroup(d)
	}
	os.Remove(dir)
}

// reboot ends every process, mount and namespace of the node.
func (n *node) reboot(t testing.TB) {
	t.Helper()
	n.powerOff(t)
	n.mountRun(t)
	n.network.deleteLost()
}

func (n *node) powerOff(t testing.TB) {
	t.Helper()
	for pid := range n.shims(t, "") {
		unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range n.taskShims(t, "") {
		unix.Kill(pid, unix.SIGKILL)
	}
	eventually(t, "all processes are gone", func() bool {
		left := 0
		for _, c := range cgroupDirs(n.cgroup) {
			filepath.Walk(c, func(p string, _ os.FileInfo, _ error) error {
				if filepath.Base(p) == "cgroup.procs" {
					b, _ := os.ReadFile(p)
					for _, f := range strings.Fields(string(b)) {
						pid, _ := strconv.Atoi(f)
						unix.Kill(pid, unix.SIGKILL)
						left++
					}
				}
				return nil
			})
		}
		return left == 0
	})
	for _, c := range cgroupDirs(n.cgroup) {
		removeCgroup(c)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[4] == n.run || strings.HasPrefix(f[4], n.run+"/") {
			points = append(points, f[4])
		}
	}
	for _, p := range slices.Backward(points) {
		unix.Unmount(p, unix.MNT_DETACH)
	}
}

// A network assigns addresses and records them.
type network struct {
	mu        sync.Mutex
	up        map[string]bool
	n         int
	broken    error // after Setup has set up the network, and before Teardown removes it
	teardowns int   // calls of Teardown
}

func (n *network) Setup(_ context.Context, id, netns string, _ *api.PodSandboxConfig) ([]netip.Addr, error) {
	if _, err := os.Stat(netns); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[id] = true
	n.n++
	if n.broken != nil {
		return nil, n.broken
	}
	return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.88.%d.%d", n.n/256, n.n%256))}, nil
}

func (n *network) Teardown(_ context.Context, id, _ string, _ *api.PodSandboxConfig) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.teardowns++
	if n.broken != nil {
		return n.broken
	}
	delete(n.up, id)
	return nil
}

func (n *network) setBroken(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = err
}

// takeTeardowns returns the number of calls of Teardown since its last call.
func (n *network) takeTeardowns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.teardowns = 0 }()
	return n.teardowns
}

func (n *network) deleteLost() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.up)
}

func (n *network) Ready() error { return nil }

func (n *network) left() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.up {
		out = append(out, id)
	}
	return out
}

// A testWriter writes to the log of a test until the test ends.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

package remote

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/fake"
	"github.com/islet-edge/islet/runtime/stream"
)

// serve serves a runtime on a socket until stop is called or the test ends.
func serve(t *testing.T, path string, r cri.Runtime, i cri.Images) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cri.Serve(ctx, l, r, i); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// open opens the runtime at path and runs it until the test ends.
func open(t *testing.T, path string, change ...func(*Config)) *Runtime {
	t.Helper()
	c := Config{Endpoint: path, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A streamer is a fake runtime whose Streamer is nil.
type streamer struct {
	*fake.Runtime
	cri.Streamer
}

// TestFakeSuite runs the contract tests with a client of a fake runtime.
func TestFakeSuite(t *testing.T) {
	rt := fake.New(crisuite.ImageRef)
	served, err := stream.Wrap(streamer{Runtime: rt}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, served, rt)
	crisuite.Run(t, crisuite.Subject{Runtime: Streaming{open(t, path)}})
}

// This list contains the tests that every runtime must pass. Some of the other tests cover the built-in runtime: pods without a pause
// process, commands that end with their caller, checkpoints, stricter validation, and exit times that are never before the start. Others
// cover features that containerd 1.6 lacks: events, and users and stop signals in the status.
var promised = []string{"SandboxLife", "SandboxFilter", "ContainerLife", "ContainerFilter", "RemoveRunning",
	"StartError", "Logs", "LogRotation", "Image", "Mounts", "ReadonlyRoot", "Security", "Target", "HostProcesses",
	"Files", "Exec", "ExecTimeout", "Forward", "Update"}

// This list contains additional tests for current versions. containerd 1.6 may first report that a container has ended, and only later add
// the reason OOMKilled.
var promisedLater = []string{"OOM", "Stop", "Terminal", "Attach"}

// TestContainerdSuite runs the contract tests with each version of containerd in $ISLET_CONTAINERD. See test/remote/programs.sh.
func TestContainerdSuite(t *testing.T) {
	root := os.Getenv("ISLET_CONTAINERD")
	if root == "" {
		t.Skip("make test-remote gets the runtimes and runs this test")
	}
	programs, err := filepath.Glob(filepath.Join(root, "*", "containerd"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("no containerd in %s: %v", root, err)
	}
	for _, program := range programs {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) { suite(t, filepath.Dir(program)) })
	}
}

func suite(t *testing.T, dir string) {
	disk, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(disk); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(disk, "s")
	config := filepath.Join(disk, "containerd.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[3]q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[1]s/bin"
conf_dir = "%[1]s/cni"
`, disk, socket, pauseRef), 0o644); err != nil {
		t.Fatal(err)
	}
	network(t, disk)
	startContainerd(t, dir, disk, config)
	rt := open(t, socket)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if _, err := rt.Await(ctx); err != nil {
		t.Fatalf("containerd does not answer: %v", err)
	}
	for _, archive := range []string{image(t, crisuite.ImageRef), image(t, pauseRef)} {
		ctr := exec.Command(filepath.Join(dir, "ctr"), "--address", socket, "-n", "k8s.io", "images", "import", archive)
		if out, err := ctr.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	only := promised
	if filepath.Base(dir) == "current" {
		only = slices.Concat(promised, promisedLater)
	}
	crisuite.Run(t, crisuite.Subject{Runtime: Streaming{rt}, Kernel: true, CgroupParent: "/" + filepath.Base(disk), OnlyTests: only,
		Process: func(t testing.TB, pid int) int { return process(t, filepath.Base(disk), pid) }})
}

const pauseRef = "localhost/pause:test"

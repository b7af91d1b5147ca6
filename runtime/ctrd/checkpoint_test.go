package ctrd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
)

// members returns the contents of the files in an archive by their names.
func members(t *testing.T, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// TestCheckpoint uses a script instead of CRIU. It checks the content of the archive. A failed checkpoint must not leave an archive.
func TestCheckpoint(t *testing.T) {
	n := newNode(t, 4)
	real, _ := n.wrapper(t, "real")
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in
*" checkpoint "*)
	while [ $# -gt 1 ]; do [ "$1" = --image-path ] && echo memory >"$2/pages-1.img"; shift; done
	[ -e %[1]s/broken ] && { echo "it cannot be dumped" >&2; exit 1; }
	exit 0 ;;
esac
exec %[2]s "$@"
`, dir, real)
	for name, text := range map[string]string{"criu": "#!/bin/sh\n", "dumper": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	n.stop(t)
	n.handlers = map[string]ctrd.Handler{"dumper": {OCIRuntime: filepath.Join(dir, "dumper")}}
	n.start(t)
	ctx := t.Context()
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(1), RuntimeHandler: "dumper"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, Config: containerConfig("main", "write", "/made", "by it", "wait")})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "checkpoint.tar")
	req := &api.CheckpointContainerRequest{ContainerId: c.ContainerId, Location: path, Timeout: 100}
	if _, err := n.CheckpointContainer(ctx, req); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a container that is not running: %v", err)
	}
	if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	n.waitLogged(t, 1, "main", "waiting")
	if _, err := n.CheckpointContainer(ctx, req); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	in := members(t, b)
	if in["checkpoint/pages-1.img"] != "memory\n" || !strings.Contains(in["spec.dump"], "/prog") ||
		!strings.Contains(in["config.dump"], c.ContainerId) {
		t.Errorf("the archive has %v", in)
	}
	if changed := members(t, []byte(in["rootfs-diff.tar"])); changed["made"] != "by it" || changed["prog"] != "" {
		t.Errorf("the changed files are %v", changed)
	}
	if _, err := n.CheckpointContainer(ctx, req); err == nil {
		t.Error("an archive was overwritten")
	}
	req.Location = filepath.Join(dir, "second.tar")
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CheckpointContainer(ctx, req); err == nil || !strings.Contains(err.Error(), "it cannot be dumped") {
		t.Errorf("got %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := []string{"broken", "checkpoint.tar", "criu", "dumper"}; !slices.Equal(names, want) {
		t.Errorf("the directory has %v", names)
	}
	req.Location = "relative.tar"
	if _, err := n.CheckpointContainer(ctx, req); !errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}

// TestRemoveUnfinishedCheckpoints checks that the next start removes interrupted checkpoints, and keeps the archives.
func TestRemoveUnfinishedCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if err := ctrd.RemoveUnfinishedCheckpoints(dir); err != nil {
		t.Error("no directory:", err)
	}
	for _, path := range []string{".checkpoint-1/content/checkpoint/pages-1.img", ".checkpoint-2/archive.tar", "checkpoint-web.tar/x"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := ctrd.RemoveUnfinishedCheckpoints(dir); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
	if left, err := filepath.Glob(dir + "/.*"); err != nil || len(left) != 0 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// waitLogged waits until a container's log contains a text.
func (n *node) waitLogged(t testing.TB, pod int, container, text string) {
	t.Helper()
	path := filepath.Join(n.dir, "logs", fmt.Sprint(pod), container+".log")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%q is not logged", text)
		}
	}
}

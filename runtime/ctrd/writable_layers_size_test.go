package ctrd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/daemon"
)

const payload = 1 << 20

// deepen creates n nested directories. The innermost one contains a file with payload bytes.
func deepen(t *testing.T, dir string, n int) {
	t.Helper()
	dir = filepath.Join(dir, strings.Repeat("d/", n))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "data"), make([]byte, payload), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestLayerHides checks a container that writes deeply nested directories. The runtime reports the size of its layer, or that the layer has
// too many files. The figures of other containers are still reported. The tests of package disk cover other ways to hide files.
func TestLayerHides(t *testing.T) {
	for _, snapshotter := range []string{daemon.Overlay, daemon.Native} {
		t.Run(snapshotter, func(t *testing.T) {
			n := newNode(t, 4)
			n.stop(t)
			n.snapshotter = snapshotter
			n.start(t)
			top := map[string]string{daemon.Overlay: "upper", daemon.Native: "rootfs"}[snapshotter]
			var ids []string
			writes := func(put func(dir string)) string {
				_, id := n.runPod(t, len(ids), "wait")
				put(filepath.Join(n.dir, "state", "containers", id, top))
				ids = append(ids, id)
				return id
			}
			some := writes(func(dir string) { deepen(t, dir, 100) })
			abyss := writes(func(dir string) { deepen(t, dir, 1100) })
			all, err := n.WritableLayers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			list, err := n.ListContainerStats(t.Context(), &api.ListContainerStatsRequest{})
			if err != nil || len(list.Stats) != len(ids) {
				t.Fatalf("%v %v", list, err)
			}
			for _, id := range ids {
				_, whole, err := n.WholeLayer(t.Context(), id)
				if err != nil || whole != (id != abyss) {
					t.Errorf("whole: %v, %v", whole, err)
				}
				if used := all[id].GetUsedBytes().GetValue(); used < payload && id != abyss {
					t.Errorf("%d bytes of %d are reported", used, payload)
				}
				if inodes := all[id].GetInodesUsed().GetValue(); inodes < 100 {
					t.Errorf("%d inodes are reported", inodes)
				}
			}
			if u, _, _ := n.WholeLayer(t.Context(), some); u.FsId.GetMountpoint() == "" || u.Timestamp == 0 {
				t.Errorf("got %v", u)
			}
		})
	}
}

// TestDroppedLayer checks that the runtime reports no size for a deleted layer. It does not report a cached size either.
func TestDroppedLayer(t *testing.T) {
	n := newNode(t, 4)
	_, id := n.runPod(t, 0, "exit", "0")
	eventually(t, "it ends", func() bool { return n.status(t, id).State == api.ContainerState_CONTAINER_EXITED })
	deepen(t, filepath.Join(n.dir, "state", "containers", id, "upper"), 1)
	used := func() uint64 {
		t.Helper()
		st, err := n.ContainerStats(t.Context(), &api.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return st.Stats.WritableLayer.GetUsedBytes().GetValue()
	}
	if u := used(); u < payload {
		t.Errorf("%d bytes are reported", u)
	}
	if err := n.DropLayers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := used(); u != 0 {
		t.Errorf("%d bytes are reported after they were freed", u)
	}
}

// TestFiguresLeftOut checks that a caller gets an error and no partial figures if its context has ended.
func TestFiguresLeftOut(t *testing.T) {
	n := newNode(t, 4)
	n.runPod(t, 0, "wait")
	gone, stop := context.WithCancel(t.Context())
	stop()
	if all, err := n.WritableLayers(gone); err == nil {
		t.Errorf("got %v", all)
	}
	if list, err := n.ListContainerStats(gone, &api.ListContainerStatsRequest{}); err == nil {
		t.Errorf("got %v", list)
	}
}

package userns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// handler is a fake runtime. It returns the same features for each pod.
type handler struct {
	name string
	can  bool
	err  error
}

func (h *handler) ForPod(context.Context, *v1.Pod) (string, *api.RuntimeHandlerFeatures, error) {
	return h.name, &api.RuntimeHandlerFeatures{UserNamespaces: h.can}, h.err
}

func newUsers(t *testing.T, pods string, slots uint32) *Users {
	return New(Config{
		Pods: pods, Handlers: &handler{can: true}, Log: slog.New(slog.DiscardHandler),
		Space: func() (Space, error) { return Space{Range{unit, slots * unit}, unit}, nil },
	})
}

func pod(uid string) *v1.Pod {
	p := podtest.New(uid)
	p.Spec.HostUsers = new(bool)
	return p
}

func (u *Users) sandbox(t *testing.T, p *v1.Pod) (uint32, error) {
	t.Helper()
	cfg := &api.PodSandboxConfig{Linux: &api.LinuxPodSandboxConfig{SecurityContext: &api.LinuxSandboxSecurityContext{NamespaceOptions: &api.NamespaceOption{}}}}
	if err := u.Sandbox(t.Context(), p, cfg); err != nil {
		return 0, err
	}
	o := cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	if o == nil {
		return 0, nil
	}
	if len(o.Uids) != 1 || len(o.Gids) != 1 || o.Uids[0].String() != o.Gids[0].String() || o.Uids[0].Length != unit ||
		o.Uids[0].ContainerId != 0 || o.Mode != api.NamespaceMode_POD {
		t.Errorf("user namespace %v", o)
	}
	return o.Uids[0].HostId, nil
}

func (u *Users) requireRange(t *testing.T, uid string, first uint32) {
	t.Helper()
	if got, err := u.sandbox(t, pod(uid)); err != nil || got != first*unit {
		t.Errorf("pod %s has %d, %v, not %d", uid, got, err, first*unit)
	}
}

// TestLife checks that a pod keeps its range when the agent restarts. No other pod gets the range before the pod's deletion.
func TestLife(t *testing.T) {
	dir := t.TempDir()
	u := newUsers(t, dir, 3)
	u.requireRange(t, "a", 1)
	u.requireRange(t, "b", 2)
	u.requireRange(t, "a", 1) // the next sandbox of the pod
	u = newUsers(t, dir, 3)
	u.requireRange(t, "c", 3)
	u.requireRange(t, "b", 2)
	if _, err := u.sandbox(t, pod("d")); err == nil || !strings.Contains(err.Error(), "could not find an empty slot") {
		t.Errorf("a fourth pod of three: %v", err)
	}
	for range 2 {
		if err := u.Release(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	u.requireRange(t, "d", 2)
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil { // the directory of an orphaned pod is removed
		t.Fatal(err)
	}
	u.requireRange(t, "e", 1)
	host := pod("f")
	host.Spec.HostUsers = nil
	if got, err := u.sandbox(t, host); got != 0 || err != nil {
		t.Errorf("a pod with the host's users: %d, %v", got, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "d", "userns")); err != nil ||
		string(b) != `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}` {
		t.Errorf("the lease is %q, %v, which a kubelet cannot read", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*.new")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestContainer checks that a container joins the user namespace of its pod. The container's mounts are mapped.
func TestContainer(t *testing.T) {
	u := newUsers(t, t.TempDir(), 3)
	u.requireRange(t, "a", 1)
	for _, p := range []*v1.Pod{pod("a"), {}} {
		out := &api.ContainerConfig{Mounts: []*api.Mount{{}, {}}, Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{NamespaceOptions: &api.NamespaceOption{}}}}
		if err := u.Container(t.Context(), p, &v1.Container{}, out); err != nil {
			t.Fatal(err)
		}
		o := out.Linux.SecurityContext.NamespaceOptions.UsernsOptions
		for _, m := range out.Mounts {
			own := podspec.HasUserNamespace(&p.Spec)
			if own != (o != nil) || own && (o.Uids[0].HostId != unit || m.UidMappings[0] != o.Uids[0] || m.GidMappings[0] != o.Gids[0]) ||
				!own && m.UidMappings != nil {
				t.Errorf("namespace %v, mount %v", o, m)
			}
		}
	}
}

// TestRefused checks that a pod gets no range if its runtime handler does not support user namespaces. The message is the same as in a
// kubelet.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		h    handler
		want string
	}{
		{handler{}, "can't set `spec.hostUsers: false`, runtime does not support user namespaces"},
		{handler{name: "old"}, "can't set `spec.hostUsers: false`, RuntimeClass handler \"old\" does not support user namespaces"},
		{handler{name: "none", can: true, err: errors.New("the handler \"none\" is not known")}, "handler \"none\" does not support user namespaces: the handler \"none\" is not known"},
	} {
		u := newUsers(t, dir, 3)
		u.c.Handlers = &c.h
		if _, err := u.sandbox(t, pod("a")); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got %v", err)
		}
	}
	u := newUsers(t, dir, 3)
	u.c.Space = func() (Space, error) { return Space{}, errors.New("no space") }
	if _, err := u.sandbox(t, pod("a")); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
	for _, uid := range []string{"", "..", "../x", "a/b"} {
		if _, err := newUsers(t, dir, 3).sandbox(t, pod(uid)); err == nil {
			t.Errorf("UID %q was given a range", uid)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestHostileLeases checks that an invalid or duplicate range in a pod's file causes an error for this pod only. After the pod's deletion,
// the file is ignored.
func TestHostileLeases(t *testing.T) {
	m := func(host, inside, length uint64) string {
		return fmt.Sprintf(`[{"hostId":%d,"containerId":%d,"length":%d}]`, host, inside, length)
	}
	for name, text := range map[string]string{
		"empty":           "",
		"torn":            `{"uidMappings":[{"hostId":655`,
		"nothing":         `{}`,
		"two":             `{"uidMappings":[{"hostId":65536,"length":1},{"hostId":65537,"length":1}],"gidMappings":` + m(65536, 0, 65536) + `}`,
		"not the same":    `{"uidMappings":` + m(65536, 0, 65536) + `,"gidMappings":` + m(131072, 0, 65536) + `}`,
		"root unmapped":   `{"uidMappings":` + m(65536, 1, 65536) + `,"gidMappings":` + m(65536, 1, 65536) + `}`,
		"the host's root": `{"uidMappings":` + m(0, 0, 65536) + `,"gidMappings":` + m(0, 0, 65536) + `}`,
		"too long":        `{"uidMappings":` + m(65536, 0, 4294967295) + `,"gidMappings":` + m(65536, 0, 4294967295) + `}`,
		"large":           strings.Repeat(" ", maxLease) + `{}`,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "bad"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "bad", "userns"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		u := newUsers(t, dir, 3)
		u.requireRange(t, "good", 1)
		if _, err := u.sandbox(t, pod("bad")); err == nil {
			t.Errorf("%s: the pod has a range", name)
		}
		if err := u.Release(t.Context(), "bad"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		u.requireRange(t, "bad", 2)
	}
	dir := t.TempDir()
	for _, uid := range []string{"a", "b"} { // one pod's directory is a copy of the other's
		if err := writeLease(dir, types.UID(uid), Range{2 * unit, unit}); err != nil {
			t.Fatal(err)
		}
	}
	u := newUsers(t, dir, 3)
	_, errA := u.sandbox(t, pod("a"))
	if _, errB := u.sandbox(t, pod("b")); (errA == nil) == (errB == nil) {
		t.Errorf("one range for two pods: %v, %v", errA, errB)
	}
	if err := os.Symlink("../a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "fifo", "userns"), 0o750); err != nil {
		t.Fatal(err)
	}
	newUsers(t, dir, 3).requireRange(t, "c", 1)
}

// TestTogether checks that pods that start at the same time get different ranges.
func TestTogether(t *testing.T) {
	u := newUsers(t, t.TempDir(), 20)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint32]bool{}
	for i := range 20 {
		wg.Go(func() {
			first, err := u.sandbox(t, pod(fmt.Sprint("p", i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[first] {
				t.Errorf("%d again: %v", first, err)
			}
			seen[first] = true
		})
	}
	wg.Wait()
}

// TestGetsubids checks how the output and the exit code of getsubids are handled.
func TestGetsubids(t *testing.T) {
	program := filepath.Join(t.TempDir(), "getsubids")
	for script, want := range map[string]string{
		`echo "0: $1 65536 65536"`:    "",
		`echo nobody >&2; exit 1`:     "exit status 1",
		`while :; do echo many; done`: "too long",
	} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := subIDs(program, "kubelet")
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && out != "0: kubelet 65536 65536\n" {
			t.Errorf("%s: %q, %v", script, out, err)
		}
	}
}

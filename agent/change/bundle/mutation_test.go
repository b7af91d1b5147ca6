package bundle

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/agent/change/update"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/image"
)

// A verifier is a world whose imports read and verify all blobs of an image.
type verifier struct{ *world }

func (v verifier) ImportBundleImage(ctx context.Context, l format.Layout, img image.BundleImage, tell func(cri.ImportProgress)) error {
	p, err := format.ReadImage(l, img.Manifest)
	if err != nil {
		return err
	}
	for _, d := range p.Layers {
		r, err := format.OpenBlob(l, d)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			return err
		}
	}
	return v.world.ImportBundleImage(ctx, l, img, tell)
}

// A planner is a Keeper that checks configurations and assigns none.
type planner struct{ *configure.Keeper }

func (planner) AssignBundle(*trial.Configuration) error { return nil }

// A victim is a node with a bundle in use, to which mutated bundles are applied. It decodes everything that a bundle can have.
type victim struct {
	*world
	t        *testing.T
	root     string // has the state directory and its neighbours
	keeper   *configure.Keeper
	programs *update.Updater
	remote   Remote

	meta   map[string]string // of the database, as at the beginning
	tree   map[string]digest.Digest
	pins   []string
	memory uint64 // the most that an application has allocated
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{world: newWorld(t), t: t, root: t.TempDir()}
	v.dir = filepath.Join(v.root, "lib/islet/state")
	for name, text := range map[string]string{
		"etc/passwd": "root", "lib/islet/state/other": "x", "edge.yaml": edgeHead, "bin/islet": "program",
	} {
		bundletest.Write(t, v.root, bundletest.File{Name: name, Data: []byte(text)})
	}
	s := configure.Begin(guard.Role{}, []string{"--hostname-override=a", "--state-dir=" + v.dir, "--run-dir=" + v.dir + "/run",
		"--root-dir=" + v.dir + "/root", "--fail-swap-on=false", "--edge-config=" + filepath.Join(v.root, "edge.yaml")})
	cfg, _, err := s.Load()
	v.must(err)
	v.keeper, err = configure.Open(configure.Config{
		Config: cfg, Start: s, Version: bundletest.Version, IsNewer: func(string, string) (bool, error) { return false, nil },
		Events: eventtest.Sink(func(eventtest.Event) {}), Now: time.Now, Log: slog.New(slog.DiscardHandler), End: func(error) {},
	})
	v.must(err)
	v.keeper.Connect(configure.Node{Pods: v.list})
	v.programs = update.New(update.Config{
		Stager: update.Stager{Dir: filepath.Join(v.dir, "update"), Program: filepath.Join(v.root, "bin/islet"), Version: bundletest.Version,
			Arch: runtime.GOARCH, Threshold: 1, Log: slog.New(slog.DiscardHandler),
			Keys: []release.Key{release.Key(bundletest.ProgramKey().Public().(ed25519.PublicKey))}},
		Offer: func(*update.StagedProgram, string, bool) (string, bool, error) {
			t.Error("a program was offered")
			return "", false, nil
		},
		StagedPath: func() string { return "" },
	})
	n := v.boot()
	_, err = apply(n, v.bundle(2, nil), false)
	v.must(err)
	n.changing.Lock()
	v.must(n.change(func(r *Record) error { r.Keep(v.clock); return nil }))
	n.changing.Unlock()
	v.check(n, "at the beginning")
	v.meta, v.pins, v.tree = maps.Clone(v.world.meta), slices.Clone(v.pinned), v.walk()
	return v
}

// boot returns the node after a start of the agent.
func (v *victim) boot() *Node {
	n := v.world.open(nil, v.remote)
	n.c.Images, n.c.OpenSecret = verifier{v.world}, bundletest.Identity(v).Open
	n.configurations, n.programs = planner{v.keeper}, v.programs
	return n
}

// walk returns all files, and the digests of their contents. It leaves out the layers that are being fetched.
func (v *victim) walk() map[string]digest.Digest {
	tree := map[string]digest.Digest{}
	v.must(filepath.WalkDir(v.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == downloadDir {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		tree[strings.TrimPrefix(path, v.root)] = digest.FromBytes(data)
		return err
	}))
	return tree
}

// apply applies a bundle, and returns its ID if it is on trial. It fails the test if the node was harmed: an error changes nothing, and a
// success only the record and the folder of the bundle.
func (v *victim) apply(n *Node, what string, q request) (id digest.Digest, err error) {
	v.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b, err := n.apply(v.t.Context(), q, func(string, int64, int64) {})
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc // so it is also a limit of the memory at any time
	v.memory = max(v.memory, used)
	if used > 64<<20 {
		v.Errorf("%s: %d MiB were allocated: %v", what, used>>20, err)
	}
	now := v.walk()
	if err != nil {
		if !maps.Equal(now, v.tree) || !maps.Equal(v.world.meta, v.meta) || !slices.Equal(v.pinned, v.pins) {
			v.Errorf("%s: %v, but something was written: %v, %v, %q", what, err, now, v.world.meta, v.pinned)
		}
		if r := n.now(); r.Trial != nil || r.Current == nil || r.Current.Number != 2 {
			v.Errorf("%s: %v, but the record is %+v", what, err, r)
		}
		return "", err
	}
	folder := "/lib/islet/state/bundles/" + folderName(digest.Digest(b.Digest)) + "/"
	for name := range now {
		_, isOld := v.tree[name]
		inside := strings.TrimPrefix(strings.TrimPrefix(name, folder), "files/")
		if isNew := strings.HasPrefix(name, folder) && !strings.Contains(inside, "/"); !isOld && !isNew {
			v.Errorf("%s: has written %s", what, name)
		}
	}
	for name, d := range v.tree {
		if now[name] != d && name != "/lib/islet/state/"+File {
			v.Errorf("%s: has changed %s", what, name)
		}
	}
	v.check(n, what)
	return digest.Digest(b.Digest), nil
}

// reset returns to the state before an application.
func (v *victim) reset(saved string) {
	v.must(os.RemoveAll(v.dir))
	v.must(os.CopyFS(v.dir, os.DirFS(saved)))
	v.world.meta, v.pinned, v.imported = maps.Clone(v.meta), slices.Clone(v.pins), maps.Clone(v.imported)
}

// TestMutations applies bundles with hostile changes to a node that uses another bundle. Half of them are signed again after the change, as
// by a signer with bad intentions. The node either rejects a bundle and changes nothing, or has it on trial and changes nothing else. It
// never needs more than 64 MiB. A change without a signature has no effect.
func TestMutations(t *testing.T) {
	v := newVictim(t)
	file := v.bundle(42, func(dir string) {
		v.must(os.RemoveAll(dir))
		bundletest.FullSource(v, dir, runtime.GOARCH)
	})
	original, err := os.ReadFile(file)
	v.must(err)
	m := bundletest.NewMutable(t, original, v.key)
	saved := filepath.Join(t.TempDir(), "saved")
	v.must(os.CopyFS(saved, os.DirFS(v.dir)))

	want, err := v.apply(v.boot(), "the original", request{open: func() (format.Layout, error) { return m, nil }})
	v.must(err)
	v.reset(saved)
	tried, signed, name := 0, 0, filepath.Join(t.TempDir(), "bundle.tar")
	for i := range bundletest.Mutations(200) {
		mutant, isSigned, tar := m.Mutate(i)
		open := func() (format.Layout, error) { return mutant, nil }
		if tar != nil {
			v.must(os.WriteFile(name, tar, 0o600))
			open = func() (format.Layout, error) { return format.OpenLayout(name) }
		}
		id, err := v.apply(v.boot(), fmt.Sprintf("mutation %d", i), request{open: open})
		if err != nil {
			continue
		}
		tried++
		if isSigned {
			signed++
		}
		if !isSigned && id != want {
			t.Errorf("mutation %d: a change without a signature has an effect", i)
		}
		v.reset(saved)
	}
	if signed == 0 {
		t.Error("no bundle that was signed again is on trial: the mutations reach only the reader")
	}
	t.Logf("%d bundles were on trial, %d of them with a hostile change; at most %d KiB were allocated", tried, signed, v.memory>>10)
}

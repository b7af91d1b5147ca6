package image

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/daemon"
)

func TestImport(t *testing.T) {
	img := small(t)
	docker := dockerArchive(t, map[string]v1.Image{"demo:1": img})
	oci := ociArchive(t, func(p layout.Path) error { return p.AppendImage(img, named1("demo:1")) })
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"docker", docker}, {"docker gzip", gzipped(t, docker)}, {"docker zstd", zstded(t, docker)},
		{"oci", oci}, {"oci gzip", gzipped(t, oci)}, {"oci zstd", zstded(t, oci)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, nil)
			for _, imp := range []string{"stream", "stream", "file", "file"} { // an import may be repeated
				refs, err := importers[imp](t, s, c.data)
				if err != nil {
					t.Fatal(err)
				}
				if want := []string{"docker.io/library/demo:1"}; !slices.Equal(refs, want) {
					t.Fatalf("references %v, want %v", refs, want)
				}
			}
			wantImage(t, s, "demo:1", imageID(t, img))
			wantFiles(t, s, "demo:1", map[string]string{"hello": "hello\n", "etc/motd": "welcome"}, "gone")
			wantLayers(t, s, img)
			got := left(t, s)
			if n := count(got, "blob "); n != 2 {
				t.Errorf("%d blobs remain, want config and manifest: %q", n, got)
			}
			if count(got, "lease ")+count(got, "download ") > 0 {
				t.Errorf("left over: %q", got)
			}
			if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "demo:1"}}); err != nil {
				t.Fatal(err)
			}
			if got := left(t, s); len(got) > 0 {
				t.Errorf("left over after the removal: %q", got)
			}
			wantLayers(t, s)
		})
	}
}

func TestImportChoosesPlatform(t *testing.T) {
	native := small(t)
	other := imageFor(t, "s390x", "", layerOf(t, file{name: "other", body: "x"}))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: native})
	data := ociArchive(t, func(p layout.Path) error { return p.AppendIndex(index, named1("multi:1")) })
	dir := t.TempDir()
	d := newDaemon(t, dir)
	s := serviceOn(t, d, dir, nil)
	if _, err := s.ImportArchive(t.Context(), bytes.NewReader(data), "multi.tar", nil); err != nil {
		t.Fatal(err)
	}
	wantImage(t, s, "multi:1", imageID(t, native))
	sum, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, s, "docker.io/library/multi@"+sum.String(), imageID(t, native))

	// A new process finds the same image in containerd's records.
	again := serviceOn(t, d, dir, nil)
	wantImage(t, again, "multi:1", imageID(t, native))

	foreign := dockerArchive(t, map[string]v1.Image{"foreign:1": other})
	_, err = s.ImportArchive(t.Context(), bytes.NewReader(foreign), "foreign.tar", nil)
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "s390x") {
		t.Fatalf("import for another platform: %v", err)
	}
}

func wantImage(t *testing.T, s *Service, ref, id string) {
	t.Helper()
	for _, r := range []string{ref, id, strings.TrimPrefix(id, "sha256:")[:12]} {
		st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: &api.ImageSpec{Image: r}, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		if st.Image.GetId() != id || !strings.Contains(st.Info["info"], "chainID") {
			t.Fatalf("status of %s: %v, want %s", r, st, id)
		}
		if st.Image.GetUid().GetValue() != 1000 {
			t.Fatalf("uid of %s: %v", r, st.Image.GetUid())
		}
	}
}

// wantLayers checks that ListLayers returns the chain IDs of the layers of images, and nothing else while a container has a snapshot.
func wantLayers(t *testing.T, s *Service, of ...v1.Image) {
	t.Helper()
	var want []string
	for _, img := range of {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		var diffs []digest.Digest
		for _, d := range config.RootFS.DiffIDs {
			diffs = append(diffs, digest.Digest(d.String()))
		}
		for _, id := range identity.ChainIDs(diffs) {
			want = append(want, id.String())
		}
	}
	slices.Sort(want)
	ctx := withNamespace(t.Context())
	if _, err := s.snapshotter().Prepare(ctx, "container", ""); err != nil {
		t.Fatal(err)
	}
	defer s.snapshotter().Remove(ctx, "container")
	if got, err := s.ListLayers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("layers %q, want %q: %v", got, want, err)
	}
}

// wantFiles checks the files of an image as a container sees them.
func wantFiles(t *testing.T, s *Service, ref string, want map[string]string, gone ...string) {
	t.Helper()
	ctx := withNamespace(t.Context())
	r, err := s.Resolve(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := s.snapshotter().View(ctx, t.Name(), r.ChainID)
	if err != nil {
		t.Fatal(err)
	}
	defer s.snapshotter().Remove(ctx, t.Name())
	if err := mount.WithReadonlyTempMount(ctx, mounts, func(root string) error {
		for name, body := range want {
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || string(b) != body {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		for _, name := range gone {
			if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
				t.Errorf("%s exists", name)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func count(list []string, prefix string) int {
	n := 0
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// TestImportTruncated checks that the import of a truncated archive returns an error. It leaves no data.
func TestImportTruncated(t *testing.T) {
	s := newService(t, nil)
	for name, data := range map[string][]byte{
		"docker": dockerArchive(t, map[string]v1.Image{"demo:1": small(t)}),
		"oci":    ociArchive(t, func(p layout.Path) error { return p.AppendImage(small(t), named1("demo:1")) }),
	} {
		for _, data := range [][]byte{data, gzipped(t, data), zstded(t, data)} {
			for i := range 12 {
				cut := len(data) * i / 12
				for way, imp := range importers {
					if _, err := imp(t, s, data[:cut]); err == nil {
						t.Fatalf("%s %s: the first %d of %d bytes were accepted as an archive", way, name, cut, len(data))
					}
				}
			}
		}
	}
	if got := left(t, s); len(got) > 0 {
		t.Fatalf("left over: %q", got)
	}
}

// TestForsake checks layers that a process has unpacked, but not recorded as an image before it was killed. The next process removes them.
func TestForsake(t *testing.T) {
	dir := t.TempDir()
	d := newDaemon(t, dir)
	first := serviceOn(t, d, dir, nil)
	ctx, _, err := first.withLease(withNamespace(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	data := dockerArchive(t, map[string]v1.Image{"demo:1": small(t)})
	a, err := first.readArchive(ctx, bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := a.listImages(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := first.chooseImage(ctx, list[0].target, a.read)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.unpackLayers(ctx, p, unpackState{}, a); err != nil {
		t.Fatal(err)
	}

	next := serviceOn(t, d, dir, nil)
	if n := count(left(t, next), "snapshot "); n != 2 {
		t.Fatalf("%d snapshots are left, want 2", n)
	}
	if err := next.dropUnfinished(withNamespace(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := left(t, next); len(got) > 0 {
		t.Fatalf("left over: %q", got)
	}
}

// TestSnapshotters checks that each snapshotter applies layers completely. Whiteouts are included.
func TestSnapshotters(t *testing.T) {
	data := dockerArchive(t, map[string]v1.Image{"demo:1": small(t)})
	for _, name := range []string{daemon.Overlay, daemon.Native} {
		t.Run(name, func(t *testing.T) {
			dir := onSmallDisk(t, 256<<20)
			d, err := daemon.Start(t.Context(), daemon.Config{Root: dir, Snapshotter: name, Log: logger(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			s := serviceOn(t, d, dir, nil)
			if _, err := importers["file"](t, s, data); err != nil {
				t.Fatal(err)
			}
			wantFiles(t, s, "demo:1", map[string]string{"hello": "hello\n", "etc/motd": "welcome"}, "gone", ".wh.gone")
		})
	}
}

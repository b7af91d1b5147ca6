package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// assemble returns a bundle with one file and other blobs.
func assemble(t testing.TB, text string, blobs ...bundle.Part) *bundle.Artefact {
	t.Helper()
	file := bundle.NewFile("web.yaml", bundle.MediaManifest, []byte(text))
	a, err := bundle.Assemble(&bundle.Contents{Name: "kiosk", Number: 1}, []bundle.Part{file}, blobs)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestUnreadable checks that Assemble rejects contents that no reader accepts.
func TestUnreadable(t *testing.T) {
	d := bundle.NewPart("", nil).Digest
	image := func(name string) bundle.Image {
		return bundle.Image{Name: name, Digest: d, Manifests: []bundle.ImageManifest{{"linux/amd64", bundle.DockerManifest, d, 1}}}
	}
	large := &bundle.Contents{Name: "kiosk", Number: 1, Platforms: []string{"linux/amd64"}, For: &bundle.Target{}}
	for i := range 1000 { // each list is as long as allowed
		large.Images = append(large.Images, image(fmt.Sprintf("localhost/%0502d", i)))
		large.For.Names = append(large.For.Names, fmt.Sprintf("%0253d", i))
	}
	blobs := make([]bundle.Part, bundle.MaxBlobs-1) // contents.json and the file are two more
	for i := range blobs {
		blobs[i].Digest = digest.Digest(fmt.Sprintf("sha256:%064d", i))
	}
	empty := &bundle.Contents{Name: "kiosk", Number: 1, Images: []bundle.Image{{Name: "localhost/web:1", Digest: d}}}
	many := make([]bundle.Part, 2*bundle.MaxBlobs+1)
	for i := range many {
		many[i].MediaType = ocispec.MediaTypeImageLayer
	}
	for name, x := range map[string]struct {
		contents *bundle.Contents
		blobs    []bundle.Part
		bad      string
	}{
		"a large text":    {large, nil, "contents.json has "},
		"no manifest":     {empty, nil, "localhost/web:1"},
		"too many layers": {&bundle.Contents{Name: "kiosk", Number: 1}, many, "layers"},
		"too many blobs":  {&bundle.Contents{Name: "kiosk", Number: 1}, blobs, "blobs"},
	} {
		files := []bundle.Part{bundle.NewFile("web.yaml", bundle.MediaManifest, []byte("x"))}
		if _, err := bundle.Assemble(x.contents, files, x.blobs); err == nil || !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// listTree returns the files below a directory with their contents, and its links with their targets.
func listTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return err
		case !e.Type().IsRegular():
			tree[path], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		tree[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestForeignDirectories checks that WriteDir changes nothing in a directory with other things than a bundle, and nothing outside of the
// directory.
func TestForeignDirectories(t *testing.T) {
	a := assemble(t, "new")
	layout := func(dir string) {
		bundletest.Write(t, dir, bundletest.OCI(t, bundletest.Image{Name: "localhost/web:1", Platforms: []string{"linux/amd64", "linux/arm64"},
			Layers: []string{"base"}})...)
	}
	for name, prepare := range map[string]func(dir, other string) error{
		"a layout of images": func(dir, _ string) error { layout(dir); return nil },
		"a damaged layout": func(dir, _ string) error {
			layout(dir)
			index := bundletest.Marshal(t, ocispec.Index{Manifests: []ocispec.Descriptor{bundle.NewPart(ocispec.MediaTypeImageIndex, nil).Descriptor}})
			return os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600)
		},
		"a large index.json": func(dir, _ string) error {
			layout(dir)
			return os.WriteFile(filepath.Join(dir, "index.json"), bytes.Repeat([]byte(" "), 1<<20), 0o600)
		},
		"other files":     func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600) },
		"a link of blobs": func(dir, other string) error { return replaceByLink(other, filepath.Join(dir, "blobs")) },
		"a link of sha256": func(dir, other string) error {
			return replaceByLink(other+"/sha256", filepath.Join(dir, "blobs/sha256"))
		},
		"a link to sibling": func(dir, _ string) error { return replaceByLink("../mine", filepath.Join(dir, "blobs/sha256")) },
	} {
		base := t.TempDir()
		dir, other := filepath.Join(base, "stick"), filepath.Join(base, "other")
		bundletest.Write(t, other, bundletest.File{Name: "sha256/letter", Data: []byte("x")})
		if strings.Contains(name, "link") {
			if err := assemble(t, "old").WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			bundletest.Write(t, dir, bundletest.File{Name: "mine/letter", Data: []byte("x")})
		} else if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := prepare(dir, other); err != nil {
			t.Fatal(err)
		}
		before := listTree(t, base)
		if err := a.WriteDir(dir); err == nil {
			t.Errorf("%s: a bundle is written", name)
		}
		if after := listTree(t, base); !maps.Equal(before, after) {
			t.Errorf("%s: has %d files instead of %d, or others", name, len(after), len(before))
		}
	}
}

// replaceByLink makes name a link.
func replaceByLink(target, name string) error {
	return errors.Join(os.RemoveAll(name), os.Symlink(target, name))
}

// TestPowerLoss checks that a directory contains either the complete old bundle or the complete new one if the power fails between two
// syncs. So at each sync the directory must have all blobs of the index.json that is on the disk, and of the one that is written next.
func TestPowerLoss(t *testing.T) {
	before, after := assemble(t, "old"), assemble(t, "new")
	for fail := 1; ; fail++ {
		dir := filepath.Join(t.TempDir(), "stick")
		if err := before.WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		failure, count := errors.New("no power"), 0
		var synced []string
		onDisk := listTree(t, dir)[filepath.Join(dir, "index.json")]
		sync := func(root *os.Root) error {
			name, err := filepath.Rel(dir, root.Name())
			if err != nil {
				t.Fatal(err)
			}
			if count++; count == fail {
				return failure
			}
			synced = append(synced, name)
			if name == "." {
				onDisk = listTree(t, dir)[filepath.Join(dir, "index.json")]
			}
			return bundle.SyncDir(root)
		}
		err := after.WriteDirSynced(dir, sync)
		// What a node finds: the index.json of the last sync of its directory, and the blobs as they are now.
		if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(onDisk), 0o600); err != nil {
			t.Fatal(err)
		}
		checkWhole(t, dir)
		if err == nil {
			if last := synced[len(synced)-1]; filepath.Base(last) != "sha256" || filepath.Base(synced[0]) != "sha256" {
				t.Errorf("synced are %q", synced)
			}
			if left := len(listTree(t, filepath.Join(dir, "blobs"))); left != 4 {
				t.Errorf("%d blobs are left", left)
			}
			return
		}
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if err := after.WriteDir(dir); err != nil { // it can be repeated
			t.Error(err)
		}
		checkWhole(t, dir)
	}
}

// checkWhole fails the test unless a directory has a bundle with all of its blobs.
func checkWhole(t testing.TB, dir string) {
	t.Helper()
	l, err := bundle.OpenLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := bundle.Open(l, nil)
	if err == nil {
		err = b.Verify(context.Background(), func(int64, int64) {})
	}
	if err != nil {
		t.Error(err)
	}
}

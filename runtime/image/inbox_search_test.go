package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readTime returns the time of the last read of a file. The file system must record every read.
func readTime(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(info.Sys().(*syscall.Stat_t).Atim.Unix())
}

// removeImages removes images, as a user does.
func (x *inboxTest) removeImages(t *testing.T, refs ...string) {
	t.Helper()
	for _, ref := range refs {
		if _, err := x.svc.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: ref}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInboxMissingImages checks two images that archives had once and that no archive has now. Their pods ask for them again and again, in
// turns. The archives are not read each time.
func TestInboxMissingImages(t *testing.T) {
	x := newInbox(t)
	if err := unix.Mount("tmpfs", x.dir, "tmpfs", unix.MS_STRICTATIME, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(x.dir, unix.MNT_DETACH) })
	archives := map[string]string{"one.tar": "one:1", "two.tar.gz": "two:1"}
	for name, ref := range archives {
		data := dockerArchive(t, map[string]v1.Image{ref: small(t)})
		if filepath.Ext(name) == ".gz" {
			data = gzipped(t, data)
		}
		writeFile(t, filepath.Join(x.dir, name), data)
	}
	missing := []string{"x:1", "docker.io/library/y:1"}
	for _, name := range []string{"x:1", "y:1"} {
		x.imports.AddImport(t.Context(), imageKey("docker.io/library/"+name), "gone.tar")
	}
	for _, restarted := range []bool{false, true} {
		stop := x.start(t)
		read := map[string]time.Time{}
		for round := range 5 {
			for _, ref := range missing {
				if x.wait(t, ref) {
					t.Fatalf("%s exists", ref)
				}
			}
			for name := range archives {
				at := readTime(t, filepath.Join(x.dir, name))
				if round > 0 && !at.Equal(read[name]) {
					t.Errorf("round %d, restarted %v: %s was read again", round, restarted, name)
				}
				read[name] = at
			}
		}
		stop()
	}
}

// TestInboxSearch checks a search for one image of an archive with several images. It imports this image only, and reads no other archive.
func TestInboxSearch(t *testing.T) {
	x := newInbox(t)
	writeFile(t, filepath.Join(x.dir, "ab.tar"), dockerArchive(t, map[string]v1.Image{"a:1": small(t), "b:1": imageOf(t, "1")}))
	writeFile(t, filepath.Join(x.dir, "c.tar"), dockerArchive(t, map[string]v1.Image{"c:1": imageOf(t, "2")}))
	for _, restarted := range []bool{false, true} {
		stop := x.start(t)
		if !x.wait(t, "a:1") || !x.wait(t, "c:1") {
			t.Fatal("the archives were not imported")
		}
		x.removeImages(t, "a:1", "b:1", "c:1")
		if !x.wait(t, "a:1") {
			t.Errorf("restarted %v: a was not imported again", restarted)
		}
		for _, ref := range []string{"b:1", "c:1"} {
			if _, err := x.svc.Resolve(t.Context(), ref); !errors.Is(err, errdefs.ErrNotFound) {
				t.Errorf("restarted %v: no pod needs %s, which a user has removed: %v", restarted, ref, err)
			}
		}
		if !x.wait(t, "b:1") || !x.wait(t, "c:1") {
			t.Errorf("restarted %v: an image was not imported again", restarted)
		}
		stop()
	}
}

// TestInboxSearchTogether checks pods that need the removed images of several archives at the same time. Each gets its image.
func TestInboxSearchTogether(t *testing.T) {
	x := newInbox(t)
	refs := []string{"a:1", "b:1", "c:1", "d:1"}
	for i, ref := range refs {
		writeFile(t, filepath.Join(x.dir, string(ref[0])+".tar"), dockerArchive(t, map[string]v1.Image{ref: imageOf(t, string(rune('1'+i)))}))
	}
	x.start(t)
	for range 5 {
		for _, ref := range refs {
			if !x.wait(t, ref) {
				t.Fatalf("%s was not imported", ref)
			}
		}
		x.removeImages(t, refs...)
		var all sync.WaitGroup
		found := make([]bool, len(refs))
		for i, ref := range refs {
			all.Go(func() { found[i] = x.wait(t, ref) })
		}
		all.Wait()
		if slices.Contains(found, false) {
			t.Errorf("found %v of %v", found, refs)
		}
	}
}

// TestInboxArchiveReturns checks an image that no archive has any more. When its archive is copied to the inbox again, the image is found.
func TestInboxArchiveReturns(t *testing.T) {
	x := newInbox(t)
	path, data := filepath.Join(x.dir, "a.tar"), dockerArchive(t, map[string]v1.Image{"a:1": small(t)})
	writeFile(t, path, data)
	x.start(t)
	if !x.wait(t, "a:1") {
		t.Fatal("the archive was not imported")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	x.removeImages(t, "a:1")
	if x.wait(t, "a:1") {
		t.Fatal("the image has no archive")
	}
	writeFile(t, path, data)
	ended := time.After(time.Minute)
	for !x.wait(t, "a:1") {
		x.mu.Lock()
		turn := x.stepEnded
		x.mu.Unlock()
		select {
		case <-turn:
		case <-ended:
			t.Fatal("the image was not imported again")
		}
	}
}

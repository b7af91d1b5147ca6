package image

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestInboxFullDisk checks an archive that cannot be imported because the disk is full. Its image was imported once and then removed. The
// archive is imported again as soon as the disk has free space.
func TestInboxFullDisk(t *testing.T) {
	x := newInbox(t)
	writeFile(t, filepath.Join(x.dir, "one.tar"), dockerArchive(t, map[string]v1.Image{"one:1": small(t)}))
	x.start(t)
	if !x.wait(t, "one:1") {
		t.Fatal("the image was not imported")
	}
	recv(t, x.changes)
	if _, err := x.svc.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "one:1"}}); err != nil {
		t.Fatal(err)
	}
	root := x.svc.c.Root
	foreign := filepath.Join(root, "foreign")
	f, err := os.Create(foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, free(t, root).bytes-reservedSpace/2); err != nil {
		t.Fatal(err)
	}
	if x.wait(t, "one:1") {
		t.Fatal("the image was imported although the disk is full")
	}
	if r := recv(t, x.reports); !errors.Is(r.err, syscall.ENOSPC) {
		t.Fatalf("report %+v", r)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// A change in the directory starts a scan before scanInterval has passed.
	writeFile(t, filepath.Join(x.dir, "other.tar"), []byte("not an archive"))
	for range 2 { // one report that one.tar was imported, and one that other.tar has failed
		r := recv(t, x.reports)
		if (r.file == "one.tar") != (r.err == nil) {
			t.Fatalf("report %+v", r)
		}
	}
	recv(t, x.changes)
	if !x.wait(t, "one:1") {
		t.Error("the image was not imported again")
	}
}

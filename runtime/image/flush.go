package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

// A layerFlush flushes unpacked layers to disk. The kernel reports a write error only once, and then takes the lost data for written. So an
// error of a flush is final for all layers that are not flushed: they are removed, and every pull or import that has begun before fails.
// Before Linux 5.8, syncfs does not report write errors.
type layerFlush struct {
	sync    func(fd int) error // unix.Syncfs
	running sync.Mutex         // held during a flush

	mu        sync.Mutex // guards the fields below; held while a snapshot is committed or removed
	root      *os.File   // open while layers are unpacked or not flushed, because a file reports only the errors after it was opened
	users     int        // number of layers that are being unpacked, and of flushes
	unflushed []string   // chain IDs of the committed layers, the lowest first
	failures  int        // number of failed flushes
	lost      []string   // chain IDs of the layers that are not flushed after a failure and must be removed
}

var errLayersLost = errors.New("the disk has not stored unpacked layers: they are unpacked again at the next attempt")

// begin must be called before the files of a layer are written below dir. If begin returns nil, the caller must call end. begin returns
// errLayersLost if a flush has failed since the caller read failures.
func (f *layerFlush) begin(dir string, failures int) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures != failures {
		return errLayersLost
	}
	if f.root == nil {
		if f.root, err = os.Open(dir); err != nil {
			return err
		}
	}
	f.users++
	return nil
}

func (f *layerFlush) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	if f.users == 0 && len(f.unflushed) == 0 {
		f.root.Close() // nothing was written to it
		f.root = nil
	}
}

// commit calls a function that commits the snapshot of a layer. It returns errLayersLost if a flush has failed since failures was read.
func (f *layerFlush) commit(id string, failures int, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures != failures {
		return errLayersLost
	}
	if err := do(); err != nil {
		return err
	}
	f.unflushed = append(f.unflushed, id)
	return nil
}

// flush writes the committed layers of all images to disk. It returns errLayersLost if a flush has failed since failures
// was read.
func (f *layerFlush) flush(failures int) error {
	f.running.Lock()
	defer f.running.Unlock()
	f.mu.Lock()
	root, pending := f.root, len(f.unflushed)
	if f.failures != failures {
		f.mu.Unlock()
		return errLayersLost
	}
	if pending == 0 {
		f.mu.Unlock()
		return nil
	}
	f.users++
	f.mu.Unlock()
	defer f.end()
	err := f.sync(int(root.Fd()))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.unflushed = f.unflushed[pending:]
		return nil
	}
	f.failures++
	f.lost, f.unflushed = append(f.lost, f.unflushed...), nil
	return err
}

// removeLost removes the layers that a failed flush has left. It returns the number of failed flushes, for the other methods. It returns an
// error if a layer of the chain cannot be removed, because a pull that fails later still unpacks a layer above it.
func (f *layerFlush) removeLost(ctx context.Context, sn snapshots.Snapshotter, chain []digest.Digest) (failures int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for i := len(f.lost) - 1; i >= 0; i-- { // the upper layers of an image first
		id := f.lost[i]
		removed := sn.Remove(ctx, id)
		if removed == nil || errdefs.IsNotFound(removed) {
			continue
		}
		left = append(left, id)
		if slices.Contains(chain, digest.Digest(id)) {
			err = fmt.Errorf("remove a layer that the disk has not stored: %w", removed)
		}
	}
	slices.Reverse(left)
	f.lost = left
	return f.failures, err
}

package image

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"
)

const (
	// turnTime is the time share of a layer. After this time it releases its turn if another layer waits.
	turnTime = 2 * time.Second

	// Each layer and each compressed archive belongs to one of three memory classes: "little", "some" or "much". Any
	// number of them may be in the class "little" at a time. These are the limits of the classes "little" and "some", in
	// bytes.
	littleWindow, littleNames = 1 << 20, 2 << 20
	someWindow, someNames     = 8 << 20, 4 << 20
	// maxWindow is the maximum window of a zstd stream, in bytes. Images are usually created with 8
	// MiB. Only "zstd --ultra --long" needs more.
	maxWindow = 64 << 20
	// maxLayerNames is the maximum memory for the names of a layer's files, in bytes.
	maxLayerNames = 48 << 20
	// maxUnpack is the maximum memory for the window and the names together, in bytes.
	maxUnpack = 72 << 20

	// someAtOnce and muchAtOnce are the maximum numbers of layers and archives at a time in the classes "some" and
	// "much".
	someAtOnce, muchAtOnce = 3, 1
)

// sharedResources are the resources that all images share: turns to unpack a layer, and memory. A layer releases its turn after the time
// share if another layer waits. It keeps its memory until it is unpacked.
type sharedResources struct {
	turns    *semaphore.Weighted
	waiting  atomic.Int32
	turnTime time.Duration
	memory   [2]*semaphore.Weighted // for the classes "some" and "much"

	decoding  sync.Mutex          // held while a document is decoded
	documents *semaphore.Weighted // held by the image that may exceed smallDocuments
}

func newSharedResources(turns int) sharedResources {
	return sharedResources{
		turns:    semaphore.NewWeighted(int64(turns)),
		turnTime: turnTime,
		memory:   [2]*semaphore.Weighted{semaphore.NewWeighted(someAtOnce), semaphore.NewWeighted(muchAtOnce)},

		documents: semaphore.NewWeighted(1),
	}
}

// An allocation is the part of sharedResources that a layer or an archive uses. It must be used by
// one goroutine only.
type allocation struct {
	shared        *sharedResources
	turn          bool
	since         time.Time
	class         int // memory class: 0 for "little", 1 for "some", 2 for "much"
	window, names int64
}

// waitForTurn waits for a turn.
func (p *allocation) waitForTurn(ctx context.Context) error {
	p.shared.waiting.Add(1)
	defer p.shared.waiting.Add(-1)
	if err := p.shared.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	p.turn, p.since = true, time.Now()
	return nil
}

// releaseTurn releases the turn.
func (p *allocation) releaseTurn() {
	if p.turn {
		p.turn = false
		p.shared.turns.Release(1)
	}
}

// takeTurns releases the turn and waits for the next turn if another layer waits and this turn has lasted for the time share.
func (p *allocation) takeTurns(ctx context.Context) error {
	if !p.turn || p.shared.waiting.Load() == 0 || time.Since(p.since) < p.shared.turnTime {
		return nil
	}
	p.releaseTurn()
	return p.waitForTurn(ctx)
}

// slowRead is the duration after which a read of a medium counts as slow.
const slowRead = 100 * time.Millisecond

// A patientReader reads a layer from a medium, which may be slow or hang. It releases the turn during a slow read, so that the layers of
// other images are unpacked meanwhile.
type patientReader struct {
	io.Reader
	at   *allocation
	wait func() error // waits for a turn
}

func (r patientReader) Read(b []byte) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = r.Reader.Read(b)
	}()
	slow := time.NewTimer(slowRead)
	defer slow.Stop()
	select {
	case <-done:
		return n, err
	case <-slow.C:
	}
	turn := r.at.turn
	r.at.releaseTurn()
	<-done
	if turn {
		if err := r.wait(); err != nil {
			return n, err
		}
	}
	return n, err
}

// releaseAll releases the turn and the memory.
func (p *allocation) releaseAll() {
	p.releaseTurn()
	for ; p.class > 0; p.class-- {
		p.shared.memory[p.class-1].Release(1)
	}
}

// needWindow waits until a zstd window of this size may be allocated.
func (p *allocation) needWindow(ctx context.Context, bytes int64) error {
	if bytes > maxWindow {
		return fmt.Errorf("the zstd stream needs a window of %d MiB, more than the %d MiB that are supported: "+
			"compress with a smaller one, such as by zstd without --ultra and with --long=%d at most: %w",
			bytes>>20, int64(maxWindow)>>20, longestWindow, errdefs.ErrInvalidArgument)
	}
	if bytes <= p.window {
		return nil
	}
	p.window = bytes
	return p.waitForClass(ctx)
}

// longestWindow is the binary logarithm of maxWindow.
const longestWindow = 26

// needNames waits until the names of the layer's files may use this number of additional bytes.
func (p *allocation) needNames(ctx context.Context, bytes int64) error {
	p.names += bytes
	return p.waitForClass(ctx)
}

// waitForClass waits until the layer may be in the memory class that it needs. It releases its turn while it waits. It waits only for
// higher classes than its current one, so there is no deadlock.
func (p *allocation) waitForClass(ctx context.Context) error {
	class := 0
	switch {
	case p.names > maxLayerNames || p.names+p.window > maxUnpack:
		return fmt.Errorf("the layer has too many files: their names and a window of %d MiB need more than %d MiB of memory; "+
			"split it into several layers: %w",
			p.window>>20, min(int64(maxUnpack)-p.window, maxLayerNames)>>20, errdefs.ErrInvalidArgument)
	case p.window > someWindow || p.names > someNames:
		class = 2
	case p.window > littleWindow || p.names > littleNames:
		class = 1
	}
	for p.class < class {
		if err := p.enterClass(ctx, p.shared.memory[p.class]); err != nil {
			return err
		}
	}
	return nil
}

// enterClass waits until the next class has room. While it waits, it releases the turn.
func (p *allocation) enterClass(ctx context.Context, class *semaphore.Weighted) error {
	if class.TryAcquire(1) {
		p.class++
		return nil
	}
	turn := p.turn
	p.releaseTurn()
	if err := class.Acquire(ctx, 1); err != nil {
		return err
	}
	p.class++
	if turn {
		return p.waitForTurn(ctx)
	}
	return nil
}

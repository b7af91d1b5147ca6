package image

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"
)

const (
	// turnTime is how long one layer is unpacked before others that wait get a turn.
	turnTime = 2 * time.Second

	// A layer or a compressed archive has one of three memory classes: little, for any number at a
	// time; some; and much. Limits in bytes.
	littleWindow, littleNames = 1 << 20, 2 << 20
	someWindow, someNames     = 8 << 20, 4 << 20
	// maxWindow is the maximum window of a zstd stream, in bytes. Images are created with 8 MiB;
	// only "zstd --ultra --long" needs more.
	maxWindow = 64 << 20
	// maxLayerNames bounds the memory for the names of a layer's files.
	maxLayerNames = 48 << 20
	// maxUnpack bounds the memory for the window and the names together.
	maxUnpack = 72 << 20

	// someAtOnce and muchAtOnce are the maximum numbers of layers in each class at a time.
	someAtOnce, muchAtOnce = 3, 1
)

// places are the resources that all images share: turns to unpack a layer, and memory. A layer
// gives up its turn after share if another one waits; it keeps its memory until it is unpacked.
type places struct {
	turns   *semaphore.Weighted
	waiting atomic.Int32
	share   time.Duration
	memory  [2]*semaphore.Weighted // for the classes some and much

	decoding  sync.Mutex          // held while a document is decoded
	documents *semaphore.Weighted // one for the image that may exceed fewDocuments
}

func newPlaces(turns int) places {
	return places{
		turns:  semaphore.NewWeighted(int64(turns)),
		share:  turnTime,
		memory: [2]*semaphore.Weighted{semaphore.NewWeighted(someAtOnce), semaphore.NewWeighted(muchAtOnce)},

		documents: semaphore.NewWeighted(1),
	}
}

// place is one layer's or archive's part of places. It is used by one goroutine.
type place struct {
	of            *places
	turn          bool
	since         time.Time
	class         int // memory class: 0 little, 1 some, 2 much
	window, names int64
}

// begin waits for a turn.
func (p *place) begin(ctx context.Context) error {
	p.of.waiting.Add(1)
	defer p.of.waiting.Add(-1)
	if err := p.of.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	p.turn, p.since = true, time.Now()
	return nil
}

// pause gives up the turn.
func (p *place) pause() {
	if p.turn {
		p.turn = false
		p.of.turns.Release(1)
	}
}

// takeTurns gives up the turn and waits for the next one, if the share is used up and others are
// waiting.
func (p *place) takeTurns(ctx context.Context) error {
	if !p.turn || p.of.waiting.Load() == 0 || time.Since(p.since) < p.of.share {
		return nil
	}
	p.pause()
	return p.begin(ctx)
}

// end releases the turn and the memory.
func (p *place) end() {
	p.pause()
	for ; p.class > 0; p.class-- {
		p.of.memory[p.class-1].Release(1)
	}
}

// needWindow waits until a zstd window of that many bytes may be allocated.
func (p *place) needWindow(ctx context.Context, bytes int64) error {
	if bytes > maxWindow {
		return fmt.Errorf("the zstd stream needs a window of %d MiB, more than the %d MiB that are supported: "+
			"compress with a smaller one, such as by zstd without --ultra and with --long=%d at most: %w",
			bytes>>20, int64(maxWindow)>>20, longestWindow, errdefs.ErrInvalidArgument)
	}
	if bytes <= p.window {
		return nil
	}
	p.window = bytes
	return p.classify(ctx)
}

// longestWindow is the binary logarithm of maxWindow.
const longestWindow = 26

// needNames waits until the names may take that many more bytes.
func (p *place) needNames(ctx context.Context, bytes int64) error {
	p.names += bytes
	return p.classify(ctx)
}

// classify waits for the memory class that is needed. It only ever waits for a higher class than it
// holds, which excludes deadlocks, and gives up its turn meanwhile.
func (p *place) classify(ctx context.Context) error {
	class := 0
	switch {
	case p.names > maxLayerNames || p.names+p.window > maxUnpack:
		return fmt.Errorf("the layer has too many files: their names and a window of %d MiB need more than %d MiB of memory; "+
			"make several layers of it: %w",
			p.window>>20, min(int64(maxUnpack)-p.window, maxLayerNames)>>20, errdefs.ErrInvalidArgument)
	case p.window > someWindow || p.names > someNames:
		class = 2
	case p.window > littleWindow || p.names > littleNames:
		class = 1
	}
	for p.class < class {
		if err := p.enter(ctx, p.of.memory[p.class]); err != nil {
			return err
		}
	}
	return nil
}

// enter acquires the next class.
func (p *place) enter(ctx context.Context, class *semaphore.Weighted) error {
	if class.TryAcquire(1) {
		p.class++
		return nil
	}
	turn := p.turn
	p.pause()
	if err := class.Acquire(ctx, 1); err != nil {
		return err
	}
	p.class++
	if turn {
		return p.begin(ctx)
	}
	return nil
}

package frames

import "sync"

// maxResets is the maximum number of streams that Resets records. A session of exec has five streams.
const maxResets = 64

// Resets records which streams of a session the client has reset. The SPDY library reports a reset as the end of the data.
type Resets struct {
	mu      sync.Mutex
	streams map[uint32]struct{}
}

func (r *Resets) add(id uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams == nil {
		r.streams = map[uint32]struct{}{}
	}
	if len(r.streams) <= maxResets {
		r.streams[id] = struct{}{}
	}
}

// Has reports whether the client has reset a stream of the SPDY library. A reset is recorded before the library ends the reads of the
// stream. If the client has reset more than maxResets streams, Has returns true for all streams. It returns false for other readers.
func (r *Resets) Has(stream any) bool {
	s, ok := stream.(interface{ Identifier() uint32 })
	if r == nil || !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, reset := r.streams[s.Identifier()]
	return reset || len(r.streams) > maxResets
}

package server

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
)

const (
	// inputPause is how long the first attempt to write a client's input may take before the shim checks whether the client is still
	// connected. Each further attempt may take twice as long, up to maxInputPause.
	inputPause    = 100 * time.Millisecond
	maxInputPause = 5 * time.Second
	// inputGrace is how long a container may take to read input whose client has closed the connection. The rest is discarded.
	inputGrace = 10 * time.Second
)

// An input is the stdin of a container. Attached clients write to it one at a time.
//
//	client --frames--> write --> pipe or terminal --> container
//	   '--closed, and the container does not read--> write returns
type input struct {
	file  *os.File      // nil if the container has no stdin
	turn  chan struct{} // capacity 1; has a value while a client writes
	grace time.Duration
}

func newInput() input { return input{turn: make(chan struct{}, 1), grace: inputGrace} }

// write writes a client's input. It returns false if the client has closed the connection and the input was not written within the grace.
// If the container has closed its stdin, it discards the input and returns true.
func (i *input) write(client net.Conn, p []byte) bool {
	var gone time.Time // when the client was found to be disconnected
	pause, mine := inputPause, false
	for {
		if !gone.IsZero() {
			pause = max(time.Until(gone.Add(i.grace)), 0)
		}
		if !mine {
			timeout := time.NewTimer(pause)
			select {
			case i.turn <- struct{}{}:
				mine = true
				defer func() { <-i.turn }()
			case <-timeout.C:
			}
			timeout.Stop()
		}
		if mine {
			i.file.SetWriteDeadline(time.Now().Add(pause))
			n, err := i.file.Write(p)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return true
			}
			p = p[n:]
		}
		switch {
		case !gone.IsZero():
			return false
		case pulse.HasHungUp(client):
			gone = time.Now()
		default:
			pause = min(2*pause, maxInputPause)
		}
	}
}

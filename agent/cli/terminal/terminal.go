package terminal

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/islet-edge/islet/agent/cli/command"
)

// A TTY is the terminal on which the user runs the command. Its methods set the mode and report the size.
type TTY struct{ f *os.File }

// Open returns a terminal for an open file. It returns nil if the file is not a terminal.
func Open(f *os.File) *TTY {
	if !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &TTY{f}
}

// SetRawMode sets raw mode. The returned function ends raw mode, and may be called twice.
func (t *TTY) SetRawMode() (restore func(), err error) {
	state, err := term.MakeRaw(int(t.f.Fd()))
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { term.Restore(int(t.f.Fd()), state) }), nil
}

// Size is the message that reports a new size of the terminal.
type Size struct{ Width, Height uint16 }

// WatchSizes sends the size of the terminal and each change of it, until cancel is called.
func (t *TTY) WatchSizes() (sizes <-chan Size, cancel func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	changed <- syscall.SIGWINCH // send the current size first
	out, done := make(chan Size), make(chan struct{})
	go func() {
		defer close(out)
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			w, h, err := term.GetSize(int(t.f.Fd()))
			if err != nil {
				continue
			}
			select {
			case out <- Size{uint16(w), uint16(h)}:
			case <-done:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(changed)
		close(done)
	}
}

// usualWidth and usualHeight are used if the size of a terminal is unknown.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Screen returns a function that returns the terminal's size in characters, or nil if w is not a terminal.
func Screen(t *command.Tool, w io.Writer) func() (width, height int) {
	f, ok := w.(*os.File)
	if !ok || !IsTerminal(f) {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return usualWidth, usualHeight
		}
		return width, height
	}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

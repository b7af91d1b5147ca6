package eviction

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A memoryHigh reports that the memory use of a cgroup has reached a threshold, with cgroup v2. It does so by setting
// the cgroup's memory.high. If the use exceeds this value, the kernel throttles the processes and counts an event in
// memory.events.local. At the event, memory.high is removed, so that the processes are throttled only briefly. If a
// killed agent has left memory.high set, the next agent removes it at its start.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
type memoryHigh struct {
	dir string // directory of the cgroup

	mu         sync.Mutex
	eventsFile *os.File // readable when memory.events.local has changed; nil if no event is requested
	at         uint64   // the value of memory.high in bytes; 0 if it is not set
}

// arm requests one call of notify when the cgroup uses the given number of bytes more than now. It requests no call
// if the number is 0, or if the cgroup's limit would be reached first. It must be called again after each event. The
// goroutine that waits for the event is added to the sync.WaitGroup in the parameter files.
func (w *memoryHigh) arm(more uint64, notify func(), files *sync.WaitGroup) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	use, err := w.read("memory.current")
	most, merr := w.read("memory.max")
	if err := errors.Join(err, merr); err != nil || more == 0 || more >= most-min(use, most) {
		return errors.Join(err, w.disarm())
	}
	at := use + more
	if w.eventsFile != nil && max(at, w.at)-min(at, w.at) < more/8 { // close enough
		return nil
	}
	if err := w.disarm(); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	news := os.NewFile(uintptr(fd), "memory events")
	if _, err = unix.InotifyAddWatch(fd, filepath.Join(w.dir, "memory.events.local"), unix.IN_MODIFY); err == nil {
		err = w.write(strconv.FormatUint(at, 10))
	}
	if err != nil {
		news.Close()
		return err
	}
	w.eventsFile, w.at = news, at
	files.Go(func() {
		var event [unix.SizeofInotifyEvent + unix.NAME_MAX + 1]byte
		if _, err := news.Read(event[:]); err != nil {
			return // disarmed
		}
		w.mu.Lock()
		if w.eventsFile == news {
			w.disarm() //nolint:errcheck // if this fails, the next evaluation removes the value
		}
		w.mu.Unlock()
		notify()
	})
	return nil
}

// reset removes memory.high, even if another agent has set it.
func (w *memoryHigh) reset() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = max(w.at, 1)
	return w.disarm()
}

// disarm removes memory.high if it is set. The caller holds mu.
func (w *memoryHigh) disarm() error {
	if w.eventsFile != nil {
		w.eventsFile.Close()
		w.eventsFile = nil
	}
	if w.at == 0 {
		return nil
	}
	if err := w.write("max"); err != nil {
		return err
	}
	w.at = 0
	return nil
}

// write sets memory.high. A missing cgroup is not an error.
func (w *memoryHigh) write(text string) error {
	err := os.WriteFile(filepath.Join(w.dir, "memory.high"), []byte(text), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *memoryHigh) read(name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return math.MaxUint64, nil
	}
	return strconv.ParseUint(word, 10, 64)
}

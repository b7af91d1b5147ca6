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

// A wire tells, with cgroup v2, once the processes of a cgroup use so much memory. It is the
// cgroup's memory.high, over which the kernel slows them down, and counts that in
// memory.events.local. Whoever hears of it takes the wire away, so nobody is slowed down for
// longer than that takes. One that a killed agent left is taken away by the next.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
type wire struct {
	dir string // of the cgroup

	mu   sync.Mutex
	news *os.File // has some when memory.events.local has; nil: nobody waits for any
	at   uint64   // bytes of use; 0: the wire is not laid
}

// lay has told be called once the cgroup uses so many bytes more than now, if its limit lets it;
// 0: never. It is called again after that. Who waits for the news is one of files.
func (w *wire) lay(more uint64, told func(), files *sync.WaitGroup) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	use, err := w.read("memory.current")
	most, merr := w.read("memory.max")
	if err := errors.Join(err, merr); err != nil || more == 0 || more >= most-min(use, most) {
		return errors.Join(err, w.take())
	}
	at := use + more
	if w.news != nil && max(at, w.at)-min(at, w.at) < more/8 { // close enough
		return nil
	}
	if err := w.take(); err != nil {
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
	w.news, w.at = news, at
	files.Go(func() {
		var event [unix.SizeofInotifyEvent + unix.NAME_MAX + 1]byte
		if _, err := news.Read(event[:]); err != nil {
			return // the wire was taken away
		}
		w.mu.Lock()
		if w.news == news {
			w.take() //nolint:errcheck // what stays laid the next look takes away
		}
		w.mu.Unlock()
		told()
	})
	return nil
}

// clear takes the wire away, also one that another agent laid.
func (w *wire) clear() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = max(w.at, 1)
	return w.take()
}

// take takes the wire away if it is laid. The caller holds mu.
func (w *wire) take() error {
	if w.news != nil {
		w.news.Close()
		w.news = nil
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

// write sets memory.high. A cgroup that is not there has none.
func (w *wire) write(text string) error {
	err := os.WriteFile(filepath.Join(w.dir, "memory.high"), []byte(text), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *wire) read(name string) (uint64, error) {
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

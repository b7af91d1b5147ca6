package eviction

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Watch learns from the kernel that memory may have become short. It costs nothing while
// that does not happen: its files wait in the one poller that the runtime of Go has.
//
//	/proc/pressure/memory: some process waited for memory, for so long   -.
//	cgroup v1: the use of the root, or of all pods, came to a threshold  -+--> Wake
//	cgroup v2: the use of all pods came to one, see wire                 -'
//
// With cgroup v2 the kernel does not tell of the use of what is no pod.
// https://docs.kernel.org/accounting/psi.html
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
type Watch struct {
	dirs [2]string // of the memory controller of v1: the root and all pods; empty: none
	wake chan struct{}
	use  bool  // of all use that it was asked for, it is told
	wire *wire // nil: cgroup v1
	log  *slog.Logger

	files sync.WaitGroup
	stall *os.File // nil: the kernel tells of no stalls
	poll  *os.File // has news when stall has
	marks [2]mark
}

// A mark is a threshold of a cgroup.
type mark struct {
	file *os.File
	at   uint64 // bytes of use
}

// triggers are how long some process has to wait for memory, and within which time, both in
// microseconds. Only who has CAP_SYS_RESOURCE may ask for another window than 2 s.
var triggers = []string{"some 10000 500000", "some 40000 2000000"}

// OpenWatch begins to watch. Pressure is a file of pressure stall information; mount is where the
// controller of v1, or the unified hierarchy, is mounted, and pods the path of the cgroup of all
// pods there.
func OpenWatch(pressure, mount, pods string, unified bool, log *slog.Logger) *Watch {
	w := &Watch{wake: make(chan struct{}, 1), log: log}
	if unified {
		w.wire = &wire{dir: filepath.Join(mount, pods)}
		if err := w.wire.clear(); err != nil {
			log.Warn("pods may be slowed down before they use what they may", "cgroup", w.wire.dir, "error", err)
		}
	} else {
		w.dirs = [2]string{mount, filepath.Join(mount, pods)}
	}
	var err error
	for _, t := range triggers {
		if w.stall, err = trigger(pressure, t); err == nil {
			break
		}
	}
	if err == nil {
		if w.poll, err = urgent(w.stall); err != nil {
			w.stall.Close()
			w.stall = nil
		}
	}
	if err != nil {
		log.Info("the kernel does not tell when processes wait for memory, so eviction may come later", "error", err)
	} else {
		w.files.Go(func() { w.stalls(w.poll) })
	}
	return w
}

// trigger asks to be told of stalls.
func trigger(file, what string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append([]byte(what), 0)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// urgent makes a file that can be read when another has urgent news: that is how triggers
// tell, and the poller of Go asks files for other news only.
func urgent(f *os.File) (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	c, err := f.SyscallConn()
	if err == nil {
		var added error
		err = c.Control(func(of uintptr) {
			added = errors.Join(unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, int(of), &unix.EpollEvent{Events: unix.EPOLLPRI | unix.EPOLLET}), unix.SetNonblock(fd, true))
		})
		err = errors.Join(err, added)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return os.NewFile(uintptr(fd), "stalls for memory"), nil
}

// stalls signals each time that a trigger fires, until its file is closed: the function is
// called at first, and then whenever the poller of Go has news.
func (w *Watch) stalls(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	first := true
	_ = c.Read(func(fd uintptr) bool { // ends when the file is closed
		var events [1]unix.EpollEvent
		if n, _ := unix.EpollWait(int(fd), events[:], 0); n > 0 || !first {
			w.signal()
		}
		first = false
		return false
	})
}

func (w *Watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Wake is sent to when memory may have become short.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Tells are what the kernel tells of memory.
type Tells int

// Of stalls it tells late: not before pages that are in use have to make way.
const (
	OfNothing Tells = iota
	OfStalls
	OfUse
)

// Tells is what it does tell of.
func (w *Watch) Tells() Tells {
	switch {
	case w.use:
		return OfUse
	case w.stall != nil:
		return OfStalls
	}
	return OfNothing
}

// Arm asks to be told once the machine, or all pods, use so many bytes more than now; 0:
// never. It is called by one goroutine, again after each look.
func (w *Watch) Arm(machine, pods uint64) {
	if w.wire != nil {
		if machine > 0 && (pods == 0 || machine < pods) { // pods are who uses up the machine's
			pods = machine
		}
		if err := w.wire.lay(pods, w.signal, &w.files); err != nil {
			w.log.Debug("the kernel does not tell of the use of a cgroup", "cgroup", w.wire.dir, "error", err)
		}
		return
	}
	w.use = true
	for i, more := range [2]uint64{machine, pods} {
		if err := w.arm(i, more); err != nil {
			w.use = false
			w.log.Debug("the kernel does not tell of the use of a cgroup", "cgroup", w.dirs[i], "error", err)
		}
	}
}

func (w *Watch) arm(i int, more uint64) error {
	m, dir := &w.marks[i], w.dirs[i]
	if more == 0 {
		w.disarm(i)
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		w.disarm(i) // the cgroup is gone
		return err
	}
	use, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	at := use + more
	if m.file != nil && max(at, m.at)-min(at, m.at) < more/8 { // close enough
		return nil
	}
	w.disarm(i)
	f, err := atUse(dir, at)
	if err != nil {
		return err
	}
	*m = mark{f, at}
	w.files.Go(func() {
		var n [8]byte
		for {
			if _, err := f.Read(n[:]); err != nil || binary.NativeEndian.Uint64(n[:]) == 0 {
				return
			}
			w.signal()
		}
	})
	return nil
}

// atUse makes a file that can be read each time that the use of a cgroup crosses a
// threshold, up or down.
func atUse(dir string, at uint64) (*os.File, error) {
	use, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return nil, err
	}
	defer use.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory threshold")
	line := fmt.Sprintf("%d %d %d", fd, use.Fd(), at)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (w *Watch) disarm(i int) {
	if w.marks[i].file != nil {
		w.marks[i].file.Close()
	}
	w.marks[i] = mark{}
}

// Close ends all of it.
func (w *Watch) Close() {
	if w.stall != nil {
		w.stall.Close()
		w.poll.Close()
	}
	for i := range w.marks {
		w.disarm(i)
	}
	if w.wire != nil {
		if err := w.wire.clear(); err != nil {
			w.log.Warn("pods are slowed down before they use what they may, until the agent starts again", "cgroup", w.wire.dir, "error", err)
		}
	}
	w.files.Wait()
}

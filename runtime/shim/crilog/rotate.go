package crilog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/untrusted"
)

// stamp is the suffix of a rotated log, as the kubelet writes it. It sorts by age.
const stamp = "20060102-150405"

// rotate renames the file and opens a new one. On an error the log goes on in
// the old file. All is done in one open directory: a pod may put a link in its place.
func (l *Log) rotate() error {
	sub, base := filepath.Split(l.rest)
	dir, err := untrusted.OpenDir(l.root, sub)
	if err != nil {
		return fmt.Errorf("rotate log %s: %w", l.path, err)
	}
	defer dir.Close()
	old, err := rotated(dir, base)
	if err != nil {
		return err
	}
	at := l.o.Now().UTC()
	if len(old) > 0 {
		// Names must sort by age also when the clock stands still or goes back.
		if last := stampOf(base, old[len(old)-1]); at.Before(last.Add(time.Second)) {
			at = last.Add(time.Second)
		}
	}
	name := base + "." + at.Format(stamp)
	if err := unix.Renameat(int(dir.Fd()), base, int(dir.Fd()), name); err != nil {
		return fmt.Errorf("rotate log %s: %w", l.path, err)
	}
	if err := l.openIn("/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), base); err != nil {
		return fmt.Errorf("rotate log %s: %w", l.path, err) // l.f still is the renamed file
	}
	for _, o := range old {
		if l.o.Compress != nil && !strings.HasSuffix(o, ".gz") {
			l.o.Compress(l.root, sub+o)
		}
	}
	return l.prune(dir, append(old, name))
}

// prune removes the oldest rotated files beyond MaxFiles.
func (l *Log) prune(dir *os.File, old []string) error {
	if l.o.MaxFiles <= 0 {
		return nil
	}
	for len(old) > max(l.o.MaxFiles-1, 1) {
		if err := unix.Unlinkat(int(dir.Fd()), old[0], 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove rotated log %s of %s: %w", old[0], l.path, err)
		}
		old = old[1:]
	}
	return nil
}

// rotated lists the rotated files of a log, oldest first.
func rotated(dir *os.File, base string) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		at, ok := strings.CutPrefix(name, base+".")
		_, err := time.Parse(stamp, strings.TrimSuffix(at, ".gz"))
		return !ok || err != nil
	})
	slices.Sort(names)
	return names, nil
}

// stampOf is when name was rotated away from base.
func stampOf(base, name string) time.Time {
	at, _ := time.Parse(stamp, strings.TrimSuffix(strings.TrimPrefix(name, base+"."), ".gz"))
	return at
}

package crilog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stamp is the suffix of a rotated log, as the kubelet writes it. It sorts by age.
const stamp = "20060102-150405"

// rotate renames the file and opens a new one. On an error the log goes on in
// the old file.
func (l *Log) rotate() error {
	old, err := Rotated(l.path)
	if err != nil {
		return err
	}
	at := l.o.Now().UTC()
	if len(old) > 0 {
		// Names must sort by age also when the clock stands still or goes back.
		if last := stampOf(l.path, old[len(old)-1]); at.Before(last.Add(time.Second)) {
			at = last.Add(time.Second)
		}
	}
	name := l.path + "." + at.Format(stamp)
	if err := os.Rename(l.path, name); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if err := l.open(); err != nil {
		return fmt.Errorf("rotate log: %w", err) // l.f still is the renamed file
	}
	for _, o := range old {
		if l.o.Compress != nil && !strings.HasSuffix(o, ".gz") {
			l.o.Compress(o)
		}
	}
	return l.prune(append(old, name))
}

// prune removes the oldest rotated files beyond MaxFiles.
func (l *Log) prune(old []string) error {
	if l.o.MaxFiles <= 0 {
		return nil
	}
	for len(old) > max(l.o.MaxFiles-1, 1) {
		if err := os.Remove(old[0]); err != nil {
			return fmt.Errorf("remove rotated log: %w", err)
		}
		old = old[1:]
	}
	return nil
}

// Rotated lists the rotated files of a log, oldest first.
func Rotated(path string) ([]string, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		at, ok := strings.CutPrefix(e.Name(), base+".")
		if !ok {
			continue
		}
		if _, err := time.Parse(stamp, strings.TrimSuffix(at, ".gz")); err == nil {
			out = append(out, dir+e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// stampOf is when name was rotated away from path.
func stampOf(path, name string) time.Time {
	at, _ := time.Parse(stamp, strings.TrimSuffix(strings.TrimPrefix(name, path+"."), ".gz"))
	return at
}

package vm

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// A Record contains the disk of a machine at one moment, and all writes and flushes since then. From it, State makes the disk that a power
// cut at any of these writes would have left. So one run of the machine is enough for a test of all its writes.
type Record struct {
	base  string           // a copy of the image at the start of the record
	lost  map[int64][]byte // the state of the disk's cache at the start of the record
	steps []step
}

// A step is a write to the disk. Without data it is a flush.
type step struct {
	at   int64
	data []byte
}

// Record starts a record of the machine's disk. The returned function ends it.
func (v *VM) Record() (end func() *Record) {
	v.t.Helper()
	r := &Record{base: filepath.Join(v.t.TempDir(), "base.img")}
	v.disk.mu.Lock() // the machine waits
	defer v.disk.mu.Unlock()
	v.command("cp", "--sparse=always", filepath.Join(v.dir, "disk.img"), r.base)
	r.lost = maps.Clone(v.disk.image.unflushed)
	v.disk.record = r
	return func() *Record {
		v.disk.mu.Lock()
		defer v.disk.mu.Unlock()
		v.disk.record = nil
		return r
	}
}

// Recorded returns the number of writes that the present record has.
func (v *VM) Recorded() int {
	v.disk.mu.Lock()
	defer v.disk.mu.Unlock()
	return v.disk.record.Writes()
}

func (r *Record) write(data []byte, at int64) {
	r.steps = append(r.steps, step{at, slices.Clone(data)})
}

func (r *Record) flush() { r.steps = append(r.steps, step{}) }

// Writes returns the number of writes in the record.
func (r *Record) Writes() (n int) {
	for _, s := range r.steps {
		if s.data != nil {
			n++
		}
	}
	return n
}

// State makes a file with the content of the disk after a power cut that follows the first n writes. A random half of the unflushed sectors
// is lost: draw is the seed that selects them. State returns the number of lost sectors. A Record is safe for concurrent calls of State.
func (r *Record) State(file string, n int, draw uint64) (sectors int, err error) {
	if out, err := exec.Command("cp", "--sparse=always", r.base, file).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("copy the disk: %w: %s", err, out)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s := cachedFile{file: f, unflushed: maps.Clone(r.lost)}
	for _, step := range r.steps {
		switch {
		case step.data == nil:
			s.flush()
		case n == 0:
			return s.cutPower(isLost(draw))
		default:
			n--
			if err := s.write(step.data, step.at); err != nil {
				return 0, err
			}
		}
	}
	return s.cutPower(isLost(draw))
}

// isLost returns a function that is true for a random half of all sectors. The same draw gives the same sectors.
func isLost(draw uint64) func(at int64) bool {
	return func(at int64) bool { return rand.NewPCG(draw, uint64(at)).Uint64()>>63 == 0 }
}

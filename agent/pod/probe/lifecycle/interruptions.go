package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/durable"
)

// Interruptions stores which containers the node has stopped although their pods were not over; see plan.Interruption. It is safe for
// concurrent use. Its directory survives a reboot and has one empty file for each such container, with the name KIND.ID. A node that
// interrupts no container has no directory. An older version of islet ignores the files.
type Interruptions struct {
	dir   string
	store func(path string) error // a parameter for tests

	mu   sync.Mutex // not held while a file is written, because a disk may hang and every worker calls Interruption
	byID map[string]interruption
}

type interruption struct {
	kind   plan.Interruption
	stored plan.Interruption // the kind that is stored, or that is being stored
}

// storeTimeout is the maximum time for which the stop of a container waits until its Interruption is stored. A disk that is full or that
// hangs must not prevent the stop.
const storeTimeout = 2 * time.Second

var interruptionNames = [...]string{plan.CutOff: "cut-off", plan.Replaced: "replaced"}

// ReadInterruptions returns the interruptions that an earlier agent has stored in the state directory. If the directory cannot be read, it
// returns an error and Interruptions without records.
func ReadInterruptions(state string) (*Interruptions, error) {
	dir := filepath.Join(state, "interrupted")
	s := &Interruptions{dir: dir, byID: map[string]interruption{}, store: storeEmptyFile}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read which containers were interrupted: %w", err)
	}
	for _, e := range entries {
		name, id, _ := strings.Cut(e.Name(), ".")
		for kind, text := range interruptionNames {
			if kind := plan.Interruption(kind); text == name && text != "" && kind > s.byID[id].kind {
				s.byID[id] = interruption{kind, kind}
			}
		}
		if name == "" { // a temporary file of package durable
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return s, nil
}

func storeEmptyFile(path string) error { return durable.Write(path, nil, 0o600) }

// Interruption returns the interruption of a container, or zero if the container was not interrupted.
func (s *Interruptions) Interruption(id string) plan.Interruption {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id].kind
}

// MarkInterrupted records that the node is about to interrupt a container. If stores is true, MarkInterrupted also writes the record to the
// disk, and returns nil when the record is written. After storeTimeout or the end of ctx it returns an error, and the record may be lost
// when this process ends. A repeated call does not wait for an unfinished write, so the stop of a container is delayed at most once. A
// record replaces an earlier record of the same container only if its kind is higher.
func (s *Interruptions) MarkInterrupted(ctx context.Context, id string, kind plan.Interruption, stores bool) error {
	name, err := fileName(id)
	s.mu.Lock()
	now := s.byID[id]
	now.kind = max(now.kind, kind)
	begins := stores && err == nil && now.stored < now.kind
	if begins {
		now.stored = now.kind
	}
	s.byID[id] = now
	s.mu.Unlock()
	if !begins {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.write(id, interruptionNames[now.kind]+"."+name, now.kind) }()
	late := time.NewTimer(storeTimeout)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("the disk has not stored the record within %v", storeTimeout)
	}
}

// write stores a record. After an error, the next call of MarkInterrupted tries again. It removes the file if the container was removed
// in the meantime.
func (s *Interruptions) write(id, name string, kind plan.Interruption) error {
	path := filepath.Join(s.dir, name)
	err := s.store(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(s.dir, 0o700); err == nil {
			err = errors.Join(durable.SyncDir(filepath.Dir(s.dir)), s.store(path))
		}
	}
	s.mu.Lock()
	now, exists := s.byID[id]
	if exists && err != nil && now.stored == kind {
		now.stored = 0
		s.byID[id] = now
	}
	s.mu.Unlock()
	if !exists {
		_ = os.Remove(path)
	}
	return err
}

// forget removes the record of a container, if there is one.
func (s *Interruptions) forget(id string) error {
	s.mu.Lock()
	was, ok := s.byID[id]
	delete(s.byID, id)
	s.mu.Unlock()
	name, err := fileName(id)
	if !ok || err != nil || was.stored == 0 {
		return err
	}
	for _, kind := range interruptionNames[plan.CutOff:] {
		if e := os.Remove(filepath.Join(s.dir, kind+"."+name)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// gone returns the IDs of the containers that have a record and for which exists returns false.
func (s *Interruptions) gone(exists func(id string) bool) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.byID {
		if !exists(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

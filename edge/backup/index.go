package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

// maxIndex is the maximum size of the record of the newest index of versions.
const maxIndex = 4 << 10

// readIndex returns the time at which the newest index of versions was signed that a node has seen. The time is zero if there is none.
func readIndex(path string) (time.Time, error) {
	var seen struct {
		Signed time.Time `json:"signed"`
	}
	text, err := regular.Read(path, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &seen)
	}
	return seen.Signed, err
}

// raiseIndex replaces the staged record with the record of the node on this board if the index in the node's record is newer. Otherwise the
// restored node could accept an older index as a new one. raiseIndex adds no record to an archive without one, whose node followed no
// index. The error unread names a record that is ignored because it cannot be read.
func (q *Request) raiseIndex(s *Staged) (unread, err error) {
	staged, here := s.path(stateDir+indexRecord), filepath.Join(q.Dirs.State, indexRecord)
	if staged == "" {
		return nil, nil
	}
	of := func(whose string, err error) error {
		if err != nil {
			err = fmt.Errorf("the record of %s: %w", whose, err)
		}
		return err
	}
	now, nowErr := readIndex(here)
	then, thenErr := readIndex(staged)
	unread = errors.Join(of("the board", nowErr), of("the backup", thenErr))
	if nowErr != nil || !now.After(then) {
		return unread, nil
	}
	text, err := json.Marshal(map[string]time.Time{"signed": now})
	if err == nil {
		err = durable.Write(staged, text, 0o600)
	}
	return unread, err
}

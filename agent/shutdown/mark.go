package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A mark is what is noted in the run directory of a shutdown that goes on.
type mark struct {
	Logind bool        `json:"logind"` // it is the machine's; else a person's or a service manager's
	Turns  []time.Time `json:"turns"`  // when it was the turn of each period's pods
	Done   bool        `json:"done"`   // all had theirs
}

// recall reads the mark that an agent left; nil: there is none. Nobody but root writes to
// the run directory.
func recall(file string) (*mark, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &mark{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		return nil, fmt.Errorf("read how far the shutdown is: %w", err)
	}
	return m, nil
}

// write notes it for the next agent of this boot.
func (m *mark) write(file string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("note how far the shutdown is: %w", err)
	}
	return nil
}

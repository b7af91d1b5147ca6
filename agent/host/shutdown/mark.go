package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A mark records how far a shutdown has come. It lies in the run directory, for the next agent
// of this boot.
type mark struct {
	Logind bool        `json:"logind"` // logind announced it; else islet shutdown was called
	Turns  []time.Time `json:"turns"`  // when the pods of period i began to end; as many as have begun
	Done   bool        `json:"done"`   // the pods of the last period have ended, or their time is over
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

// write stores the mark.
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

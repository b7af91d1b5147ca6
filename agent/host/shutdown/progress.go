package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A progressRecord is the stored progress of a shutdown. It is in the run directory, for the next agent of this boot.
type progressRecord struct {
	Logind bool        `json:"logind"` // set if logind announced the shutdown; otherwise islet shutdown was called
	Turns  []time.Time `json:"turns"`  // when the turn of period i started, for the turns that have started
	Done   bool        `json:"done"`   // the pods of the last period have ended, or their time has passed
}

// readProgress reads the progress that the previous agent has stored. It returns nil if there is none. The file is
// trusted, because only root can write to the run directory.
func readProgress(file string) (*progressRecord, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &progressRecord{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		return nil, fmt.Errorf("read the progress of the shutdown: %w", err)
	}
	return m, nil
}

// write stores the progress.
func (m *progressRecord) write(file string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("store the progress of the shutdown: %w", err)
	}
	return nil
}

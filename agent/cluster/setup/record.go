package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// A record describes the islet.yaml that was applied.
type record struct {
	File    string   `json:"file,omitempty"`   // path of islet.yaml
	Digest  string   `json:"digest,omitempty"` // of the file without its secrets
	Secrets []secret `json:"secrets,omitempty"`
	// Beside maps the name of each file that islet.yaml names, and that is next to it, to the digest of that file. The digest of a file
	// that could not be read is empty.
	Beside  map[string]string `json:"beside,omitempty"`
	Removed bool              `json:"removed,omitempty"` // the secrets of the file are removed
	Joined  bool              `json:"joined,omitempty"`  // the node has joined the cluster since
	Time    time.Time         `json:"time,omitzero"`     // when the file was applied

	Name string `json:"name,omitempty"` // of the node; empty for the host name
	Rule string `json:"rule,omitempty"` // name in the file
	// Server and CA say which cluster the board belongs to. CA is ca or caHash of the file.
	Server string `json:"server,omitempty"`
	CA     string `json:"ca,omitempty"`
	LED    string `json:"led,omitempty"`
	// Before is the trigger that the LED had before Watch let it beat. It is empty if the LED does not beat.
	Before string `json:"before,omitempty"`
	// OwnKubeconfig is set if this package has written the kubeconfig. Otherwise the agent writes it.
	OwnKubeconfig bool `json:"ownKubeconfig,omitempty"`

	// Made are the files with a base that this package has written, by path.
	Made map[string]made `json:"made,omitempty"`
	// Pending are the files that must still be put in place. They are staged.
	Pending []target `json:"pending,omitempty"`
	// Discovery is set until the cluster's CA with the hash is known.
	Discovery *discovery `json:"discovery,omitempty"`

	// Refused says why another islet.yaml is not in use.
	Refused *setuprecord.Refusal `json:"refused,omitempty"`
}

// A made describes a file that this package has written.
type made struct {
	Sum  string `json:"sum"`
	Base []byte `json:"base,omitempty"` // the file that it has replaced
}

// A target is a file to write or to remove.
type target struct {
	Path   string `json:"path"`
	Data   []byte `json:"-"` // the staged file contains the data
	Remove bool   `json:"remove,omitempty"`
}

// stagedSuffix is the end of the names of staged files.
const stagedSuffix = ".setup"

// stage writes the targets of a directory next to their places and syncs them. After an error, none is left. The function step is called
// before each step.
func stage(dir string, targets []target, step func()) (err error) {
	unstage(dir) // files of a run that was cut off
	defer func() {
		if err != nil {
			unstage(dir)
		}
	}()
	for _, t := range targets {
		step()
		if info, err := os.Lstat(t.Path); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a directory", t.Path)
		}
		if t.Remove {
			continue
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), durable.Write(t.Path+stagedSuffix, t.Data, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// unstage removes all staged files of a directory.
func unstage(dir string) {
	list, _ := filepath.Glob(filepath.Join(dir, "*"+stagedSuffix)) // the pattern is valid
	for _, path := range list {
		_ = os.Remove(path) // a file that stays is replaced by the next one
	}
}

// commit puts the staged targets in place. It may be repeated.
func commit(targets []target, step func()) error {
	for _, t := range targets {
		step()
		var err error
		if t.Remove {
			err = os.Remove(t.Path)
		} else {
			err = os.Rename(t.Path+stagedSuffix, t.Path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was done by a run that was cut off
			return err
		}
		if err := durable.SyncDir(filepath.Dir(t.Path)); err != nil {
			return err
		}
	}
	return nil
}

// load returns the record of a state directory. A missing or damaged record is empty.
func load(state string) (r *record, err error) {
	r = &record{}
	data, err := regular.Read(filepath.Join(state, setuprecord.File), setuprecord.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, r) != nil {
		return &record{}, nil
	}
	return r, nil
}

// store writes the record, complete or not at all.
func (r *record) store(state string) error {
	data, err := json.Marshal(r)
	if err == nil && len(data) > setuprecord.MaxSize {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(state, 0o711), durable.Write(filepath.Join(state, setuprecord.File), data, 0o600))
	}
	if err != nil {
		return fmt.Errorf("store the record of the setup: %w", err)
	}
	return nil
}

// commit puts the pending files in place, and stores that this was done.
func (r *record) commit(state string, step func()) error {
	if len(r.Pending) == 0 {
		return nil
	}
	if err := commit(r.Pending, step); err != nil {
		return err
	}
	restoreLED(r.Refused) // the refusal was about these files
	r.Pending, r.Refused = nil, nil
	step()
	return r.store(state)
}

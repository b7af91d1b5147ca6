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
	File    string    `json:"file,omitempty"`   // path of islet.yaml
	Digest  string    `json:"digest,omitempty"` // of the file without its secrets
	Secrets []secret  `json:"secrets,omitempty"`
	Removed bool      `json:"removed,omitempty"` // the secrets of the file are removed
	Time    time.Time `json:"time,omitzero"`     // when the file was applied

	Name string `json:"name,omitempty"` // of the node; empty for the host name
	Rule string `json:"rule,omitempty"` // name in the file
	// Server and CA say which cluster the board belongs to. CA is ca or caHash of the file.
	Server string `json:"server,omitempty"`
	CA     string `json:"ca,omitempty"`
	LED    string `json:"led,omitempty"`
	// OwnKubeconfig is set if the kubeconfig is of the file, and not of the agent.
	OwnKubeconfig bool `json:"ownKubeconfig,omitempty"`

	// Made are the files with a base that this package has written, by path.
	Made map[string]made `json:"made,omitempty"`
	// Pending are the files that must still be written. A run that finds them writes all of them.
	Pending []target `json:"pending,omitempty"`
	// Discovery is set until the cluster's CA with the hash is known.
	Discovery *discovery `json:"discovery,omitempty"`

	// Refused says why another islet.yaml is not in use.
	Refused *setuprecord.Refusal `json:"refused,omitempty"`
}

// A made is a file that was written here.
type made struct {
	Sum  string `json:"sum"`
	Base []byte `json:"base,omitempty"` // the file before
}

// A target is a file to write.
type target struct {
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"` // nil removes the file
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

// writePending writes the pending files and stores that they are written. The function step is called before each step.
func (r *record) writePending(state string, step func()) error {
	if len(r.Pending) == 0 {
		return nil
	}
	for _, t := range r.Pending {
		step()
		if err := t.write(); err != nil {
			return err
		}
	}
	r.Pending = nil
	step()
	return r.store(state)
}

func (t target) write() error {
	if t.Data == nil {
		err := os.Remove(t.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, durable.SyncDir(filepath.Dir(t.Path)))
	}
	return errors.Join(os.MkdirAll(filepath.Dir(t.Path), 0o755), durable.Write(t.Path, t.Data, 0o600))
}

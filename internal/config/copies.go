package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/internal/regular"
)

const (
	// copiesFile is the name of the file of copies in the state directory. Only root can read it.
	copiesFile = "files.json"
	maxCopies  = 16 << 20 // bytes
)

// ownFiles reads the node's own configuration files for one Load. If the disk does not give a
// file (see readonly.Fault), ownFiles returns what the file held at the last start, from the
// copies in the state directory: a node that ran yesterday runs today, whichever file the disk lost.
type ownFiles struct {
	copies string       // path of the copies
	before []copiedFile // those of the last start
	now    []copiedFile // what this Load has read, in order
	faults []string     // for a person: which files could not be read, and what counts instead
}

type copiedFile struct {
	Name string `json:"name"` // absolute path
	Data []byte `json:"data"`
}

// newOwnFiles reads the copies. Copies that cannot be read are none: only a file that fails needs them.
func newOwnFiles(flags *options) *ownFiles {
	dirs, err := deriveDirs(flags)
	if err != nil { // which derive returns
		return &ownFiles{}
	}
	o := &ownFiles{copies: filepath.Join(dirs.State, copiesFile)}
	if data, err := regular.Read(o.copies, maxCopies); err == nil && json.Unmarshal(data, &o.before) != nil {
		o.before = nil
	}
	return o
}

// read returns the content of a file, or its copy.
func (o *ownFiles) read(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if readonly.Fault(err) {
		for _, c := range o.before {
			if c.Name == name {
				o.faults = append(o.faults, fmt.Sprintf("%v: its content of the last start counts", err))
				data, err = c.Data, nil
			}
		}
	}
	if err == nil {
		o.now = append(o.now, copiedFile{name, data})
	}
	return data, err
}

// without reports whether the node can do without a drop-in that failed with err: the disk did
// not give it, and the node has run before, never with this file.
func (o *ownFiles) without(err error) bool {
	if !readonly.Fault(err) || len(o.before) == 0 {
		return false
	}
	o.faults = append(o.faults, fmt.Sprintf("%v: it has no effect, as at the last start", err))
	return true
}

// below returns the names of the files that the last start read below a directory, in order.
func (o *ownFiles) below(dir string, err error) (names []string, ok bool) {
	if !readonly.Fault(err) || len(o.before) == 0 {
		return nil, false
	}
	o.faults = append(o.faults, fmt.Sprintf("%v: the files that were there at the last start count", err))
	for _, c := range o.before {
		if strings.HasPrefix(c.Name, dir+"/") {
			names = append(names, c.Name)
		}
	}
	return names, true
}

// FileFaults names, for a person, the node's own configuration files that could not be read, and
// what counts instead.
func (c *Config) FileFaults() []string {
	if c.files == nil {
		return nil
	}
	return c.files.faults
}

// KeepFiles stores copies of the node's own configuration files in the state directory, which is
// the caller's alone. Load takes a copy instead of a file that the disk does not give. Copies that
// are the same as before are not written.
func (c *Config) KeepFiles() error {
	o := c.files
	if o == nil || reflect.DeepEqual(o.now, o.before) {
		return nil
	}
	data, err := json.Marshal(o.now)
	if err == nil && len(data) > maxCopies {
		err = errors.New("they are too large")
	}
	if err == nil {
		err = durable.Write(o.copies, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store copies of the configuration files: %w", err)
	}
	o.before = o.now
	return nil
}

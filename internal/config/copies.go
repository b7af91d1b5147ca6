package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/internal/regular"
)

const (
	// copiesFile is the name of the file of copies in the state directory. Its mode is 0600.
	copiesFile = "files.json"
	maxCopies  = 16 << 20 // bytes
)

// ownFiles reads the node's own configuration files for one call of Load. If the disk fails for a file (see
// readonly.IsDiskFault), ownFiles uses the copy of this file from the last start. So a damaged file does not prevent
// the start. The copies are in the state directory.
type ownFiles struct {
	copies      string            // path of the copies
	atLastStart []copiedFile      // the files of the last start
	current     []copiedFile      // the files that this Load has read, in order
	given       map[string][]byte // files that are not read from the disk; nil for a file that does not exist
	faults      []string          // messages about unreadable files; each names the replacement that is used
	earlier     []string          // names of the EdgeConfigurations in use with the version before EdgeAPIVersion
}

type copiedFile struct {
	Name string `json:"name"` // absolute path
	Data []byte `json:"data"`
}

// newOwnFiles reads the copies. It ignores errors, because the copies are needed only if a file cannot be read.
func newOwnFiles(flags *options) *ownFiles {
	dirs, err := deriveDirs(flags)
	if err != nil { // derive returns the same error
		return &ownFiles{}
	}
	o := &ownFiles{copies: filepath.Join(dirs.State, copiesFile)}
	if data, err := regular.Read(o.copies, maxCopies); err == nil && json.Unmarshal(data, &o.atLastStart) != nil {
		o.atLastStart = nil
	}
	return o
}

// read returns the content of a file, or its copy if the disk fails.
func (o *ownFiles) read(name string) ([]byte, error) {
	if data, ok := o.given[name]; ok && data == nil {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	} else if ok {
		return data, nil
	}
	data, err := os.ReadFile(name)
	if readonly.IsDiskFault(err) {
		for _, c := range o.atLastStart {
			if c.Name == name {
				o.faults = append(o.faults, fmt.Sprintf("%v: using its content at the last start", err))
				data, err = c.Data, nil
			}
		}
	}
	if err == nil {
		o.current = append(o.current, copiedFile{name, data})
	}
	return data, err
}

// canOmit reports whether the node can start without a drop-in file that could not be read. The node can omit the
// file if the error is a disk fault and the file did not exist at the last start.
func (o *ownFiles) canOmit(err error) bool {
	if !readonly.IsDiskFault(err) || len(o.atLastStart) == 0 {
		return false
	}
	o.faults = append(o.faults, fmt.Sprintf("%v: ignored, because it was not there at the last start", err))
	return true
}

// filesAtLastStart returns the names of the files that the last start read from a directory, in order. It returns false if the error of
// reading the directory is not a disk fault, or if this is the first start.
func (o *ownFiles) filesAtLastStart(dir string, err error) (names []string, ok bool) {
	if !readonly.IsDiskFault(err) || len(o.atLastStart) == 0 {
		return nil, false
	}
	o.faults = append(o.faults, fmt.Sprintf("%v: using its files at the last start", err))
	for _, c := range o.atLastStart {
		if strings.HasPrefix(c.Name, dir+"/") {
			names = append(names, c.Name)
		}
	}
	return names, true
}

// FileFaults returns a message for each of the node's own configuration files that could not be
// read. The message names the replacement that is used.
func (c *Config) FileFaults() []string {
	if c.files == nil {
		return nil
	}
	return c.files.faults
}

// EditedFiles returns the node's own configuration files that have another content than when they were read, or that were removed.
// It ignores files that cannot be read, and files that are new in a directory.
func (c *Config) EditedFiles() (names []string) {
	if c.files == nil {
		return nil
	}
	for _, f := range c.files.current {
		data, err := regular.Read(f.Name, maxCopies)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(data, f.Data) {
			names = append(names, f.Name)
		}
	}
	return names
}

// KeepFiles stores copies of the node's own configuration files in the state directory. Load uses a
// copy if the disk fails for the file. Unchanged copies are not written. Calls must not be
// concurrent.
func (c *Config) KeepFiles() error {
	o := c.files
	if o == nil || reflect.DeepEqual(o.current, o.atLastStart) {
		return nil
	}
	data, err := json.Marshal(o.current)
	if err == nil && len(data) > maxCopies {
		err = errors.New("they are too large")
	}
	if err == nil {
		err = durable.Write(o.copies, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store copies of the configuration files: %w", err)
	}
	o.atLastStart = o.current
	return nil
}

package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/islet-edge/islet/internal/durable"
)

// File is the name of the record in the state directory.
const File = "configuration.json"

// maxFile is more than four configurations, escaped as JSON, need.
const maxFile = 32 << 20

// Load reads the record in a directory; without one, the zero value. One that cannot be read is
// an error next to the zero value: the node's own files count then. If it is Broken, SetAside
// makes way for the next one.
func Load(dir string) (Record, error) {
	path := filepath.Join(dir, File)
	r, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	return r, nil
}

// ErrNewer says that a record is of an islet so much newer that this one cannot go on with it.
var ErrNewer = errors.New("it is of a newer islet")

// Broken reports whether an error of Load is of the record itself. Else the system did not read
// it, such as for want of file descriptors, or a newer islet wrote it: it may be good, and can be
// read another time, or by that one.
func Broken(err error) bool {
	return !errors.As(err, new(syscall.Errno)) && !errors.Is(err, ErrNewer)
}

// SetAside renames a record that is Broken to File.broken, so that the next one can be written.
func SetAside(dir string) error {
	path := filepath.Join(dir, File)
	return os.Rename(path, path+".broken")
}

func read(path string) (r Record, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return r, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxFile {
		return r, fmt.Errorf("it is no file of at most %d bytes", maxFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return r, err
	}
	return Decode(data)
}

// Decode reads a record and makes sure that its parts fit together.
func Decode(data []byte) (Record, error) {
	var head struct{ Format, ReadBy int }
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, err
	}
	switch {
	case head.Format < 1:
		return Record{}, fmt.Errorf("its format is %d", head.Format)
	case head.Format > Format && (head.ReadBy < 1 || head.ReadBy > Format):
		return Record{}, fmt.Errorf("%w: its format is %d, this islet knows %d", ErrNewer, head.Format, Format)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(data, &r.unknown); err != nil {
		return Record{}, err
	}
	maps.DeleteFunc(r.unknown, func(name string, _ json.RawMessage) bool { return slices.Contains(known, name) })
	for _, c := range []*Configuration{r.Good, r.Before, r.Assigned} {
		if c != nil && c.ID != c.sum() {
			return Record{}, fmt.Errorf("the configuration %q is not what was stored", c.ID)
		}
	}
	if r.Trial != nil && r.Assigned == nil {
		return Record{}, errors.New("nothing is on trial")
	}
	r.migrate()
	return r, nil
}

// known are the names of what this islet knows of a record.
var known = func() (names []string) {
	for t := reflect.TypeFor[Record](); len(names) < t.NumField(); {
		name, _, _ := strings.Cut(t.Field(len(names)).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// encode is what is stored of a record: what a newer islet knew is in it as it was.
func (r Record) encode() ([]byte, error) {
	if r.Format <= Format {
		r.Format, r.ReadBy = Format, readBy
	}
	data, err := json.Marshal(r)
	if err != nil || len(r.unknown) == 0 {
		return data, err
	}
	all := maps.Clone(r.unknown)
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// migrate brings a record up to date that an earlier islet wrote, which had one failure, of
// whatever came last.
func (r *Record) migrate() {
	if f := r.Failed; f != nil && strings.HasPrefix(f.ID, programID) {
		r.Failed, r.FailedProgram, r.Refused = nil, f, []string{f.ID}
	}
}

// Save stores the record durably, for the agent's user only: the old or the new one is
// there whenever the power fails.
func Save(dir string, r Record) (err error) {
	data, err := r.encode()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("store the configuration: %w", err)
		}
	}()
	return durable.Write(filepath.Join(dir, File), data, 0o600)
}

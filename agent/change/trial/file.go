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
	"github.com/islet-edge/islet/internal/release"
)

// File is the name of the record in the state directory.
const File = "configuration.json"

// BrokenFile is the name of a damaged record that was set aside.
const BrokenFile = File + ".broken"

// maxFile is the maximum size of the record. A record with four configurations in escaped JSON is smaller.
const maxFile = 32 << 20

// Load reads the record from a directory. If there is none, it returns the zero value. If the record cannot be read,
// it returns the zero value and an error, and the node uses its own files. If IsDamaged is true for the error, SetAside
// can rename the record, so that a new one can be written. The record of bundles in the same directory decides about the configurations
// of bundles: HasDropped reports whether the Record differs from the file.
func Load(dir string) (Record, error) {
	path := filepath.Join(dir, File)
	r, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	r.obey(readBundles(dir))
	return r, nil
}

// ErrNewer means that a newer islet wrote the record in a format that this version cannot read.
var ErrNewer = errors.New("it was written by a newer islet")

// IsDamaged reports whether an error of Load means that the record is damaged. Otherwise the record may be valid: the
// system could not read it, for example for lack of file descriptors, or a newer islet wrote it.
func IsDamaged(err error) bool {
	return !errors.As(err, new(syscall.Errno)) && !errors.Is(err, ErrNewer)
}

// SetAside renames a damaged record to BrokenFile, so that a new one can be written.
func SetAside(dir string) error {
	return os.Rename(filepath.Join(dir, File), filepath.Join(dir, BrokenFile))
}

func readRecord(path string) (r Record, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return r, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxFile {
		return r, fmt.Errorf("it is not a regular file of at most %d bytes", maxFile)
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

// Decode parses a record and checks that it is consistent.
func Decode(data []byte) (Record, error) {
	var head struct{ Format, ReadBy int }
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, err
	}
	switch {
	case head.Format < 1:
		return Record{}, fmt.Errorf("its format is %d", head.Format)
	case head.Format > Format && (head.ReadBy < 1 || head.ReadBy > Format):
		return Record{}, fmt.Errorf("%w: its format is %d, this islet supports %d", ErrNewer, head.Format, Format)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(data, &r.unknownFields); err != nil {
		return Record{}, err
	}
	maps.DeleteFunc(r.unknownFields, func(name string, _ json.RawMessage) bool { return slices.Contains(fieldNames, name) })
	for _, c := range []*Configuration{r.Good, r.Before, r.Earlier, r.Assigned} {
		if c != nil && c.ID != c.contentHash() {
			return Record{}, fmt.Errorf("the content of configuration %q does not match its ID", c.ID)
		}
	}
	if r.Trial != nil && r.Assigned == nil {
		return Record{}, errors.New("nothing is on trial")
	}
	r.migrate()
	return r, nil
}

// fieldNames are the JSON names of the fields of a Record.
var fieldNames = func() (names []string) {
	for t := reflect.TypeFor[Record](); len(names) < t.NumField(); {
		name, _, _ := strings.Cut(t.Field(len(names)).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// encode returns the file's content for a record. It preserves fields that only a newer islet knows.
func (r Record) encode() ([]byte, error) {
	if r.Format <= Format {
		r.Format, r.ReadBy = Format, readBy
	}
	data, err := json.Marshal(r)
	if err != nil || len(r.unknownFields) == 0 {
		return data, err
	}
	all := maps.Clone(r.unknownFields)
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// migrate converts a record of an earlier islet, which had one field for the last failure of a configuration or program.
func (r *Record) migrate() {
	if f := r.Failed; f != nil && strings.HasPrefix(f.ID, release.ProgramIDPrefix) {
		r.Failed, r.FailedProgram, r.Refused = nil, f, []string{f.ID}
	}
}

// Save stores the record durably. Only the agent's user can read it. After a power cut the file contains either the
// old or the new record.
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

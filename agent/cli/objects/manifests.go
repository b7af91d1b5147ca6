package objects

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/regular"
)

// manifestFlag is the flag -f.
type manifestFlag struct{ files []string }

func (m *manifestFlag) declareFiles(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&m.files, "filename", "f", nil, "a manifest, a directory of manifests, or - for standard input")
}

// MaxManifest is the maximum number of bytes that are read of a manifest. It is larger than the
// agent's limit, so that the agent reports a manifest that is too large.
const MaxManifest = 16 << 20

// readFiles passes each manifest of the flag to the function do.
func (m *manifestFlag) readFiles(stdin io.Reader, do func(origin string, data []byte) error) error {
	var errs []error
	for _, name := range m.files {
		if name == "-" {
			data, err := io.ReadAll(io.LimitReader(stdin, MaxManifest))
			if err == nil {
				err = do("standard input", data)
			}
			errs = append(errs, err)
			continue
		}
		files, err := listManifests(name)
		if err != nil {
			return err
		}
		open := os.Open
		if !slices.Contains(files, name) { // name is a directory; a FIFO in it would block
			open = regular.Open
		}
		for _, f := range files {
			data, err := ReadManifest(open, f)
			if err == nil {
				err = do(f, data)
			}
			errs = append(errs, err)
			if command.IsUnreachable(err) { // the other files would have the same error
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// ReadManifest reads a file. It reads at most MaxManifest bytes, because the file may be a device whose
// data never ends. A FIFO is read too, because a shell passes one for <(...).
func ReadManifest(open func(string) (*os.File, error), name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxManifest))
}

// listManifests returns the paths of the files of a directory that contain manifests, sorted by name. If name is a file,
// it returns only name.
func listManifests(name string) ([]string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, command.ExitWith(command.ExitNotFound, fmt.Errorf("no file %s", name))
	}
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, command.ExitWith(command.ExitNotFound, fmt.Errorf("no manifest (.yaml, .yml, .json) in %s", name))
	}
	return out, nil
}

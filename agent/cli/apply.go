package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/regular"
)

// manifestFlag is the flag -f.
type manifestFlag struct{ files []string }

func (m *manifestFlag) declareFiles(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&m.files, "filename", "f", nil, "a manifest, a directory of manifests, or - for standard input")
}

// maxManifest is the maximum number of bytes that are read of a manifest. It is larger than the
// agent's limit, so that the agent reports a manifest that is too large.
const maxManifest = 16 << 20

// readFiles passes each manifest of the flag to the function do.
func (m *manifestFlag) readFiles(stdin io.Reader, do func(origin string, data []byte) error) error {
	var errs []error
	for _, name := range m.files {
		if name == "-" {
			data, err := io.ReadAll(io.LimitReader(stdin, maxManifest))
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
			data, err := readManifest(open, f)
			if err == nil {
				err = do(f, data)
			}
			errs = append(errs, err)
			if isLost(err) { // the other files would have the same error
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// readManifest reads a file. It reads at most maxManifest bytes, because the file may be a device whose
// data never ends. A FIFO is read too, because a shell passes one for <(...).
func readManifest(open func(string) (*os.File, error), name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxManifest))
}

// listManifests returns the paths of the files of a directory that contain manifests, sorted by name. If name is a file,
// it returns only name.
func listManifests(name string) ([]string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, exitError{ExitNotFound, fmt.Errorf("no file %s", name)}
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
		return nil, exitError{ExitNotFound, fmt.Errorf("no manifest (.yaml, .yml, .json) in %s", name)}
	}
	return out, nil
}

func setupApply(t *tool, flags *pflag.FlagSet) runner {
	var m manifestFlag
	m.declareFiles(flags)
	dry := flags.Bool("dry-run", false, "only check the manifests, with the rules of islet check and what the node knows")
	var w applyWait
	w.declareWait(flags)
	return func(ctx context.Context, args []string) error {
		m.files = append(m.files, args...) // for the command islet apply web.yaml
		if len(m.files) == 0 {
			return usage("apply needs a file: islet apply -f FILE")
		}
		if w.wait && *dry {
			return usage("--wait cannot be combined with --dry-run")
		}
		if *dry {
			return t.dryRun(ctx, &m)
		}
		err := m.readFiles(t.Stdin, func(origin string, data []byte) error {
			if err := t.applyManifest(ctx, origin, data, false, &w); err != nil {
				return err
			}
			t.warnAbout(finding.File{Name: origin, Data: data})
			return nil
		})
		return errors.Join(err, w.await(ctx, t))
	}
}

func (t *tool) applyManifest(ctx context.Context, origin string, data []byte, dry bool, w *applyWait) error {
	var done []api.Applied
	q, note := url.Values{"origin": {origin}}, ""
	if dry {
		q.Set("dryRun", "1")
		note = " (dry run)"
	}
	if err := t.call(ctx, http.MethodPost, api.PathPods, q, bytes.NewReader(data), &done); err != nil {
		return err
	}
	w.add(done)
	var errs []error
	for _, a := range done {
		for _, w := range a.Warnings {
			fmt.Fprintf(t.Stderr, "Warning: %s/%s: %s\n", makePrintable(shortKind(a.Kind)), makePrintable(a.Name), makePrintable(w))
		}
		if a.Rejection != "" {
			errs = append(errs, fmt.Errorf("pod/%s: the node would reject this pod: %s", a.Name, a.Rejection))
			continue
		}
		fmt.Fprintf(t.out, "%s/%s %s%s\n", makePrintable(shortKind(a.Kind)), makePrintable(a.Name), a.Action, note)
	}
	return errors.Join(errs...)
}

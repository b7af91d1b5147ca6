package translate

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Files reads files that containers of a pod have written for containers that start later.
type Files interface {
	// EnvFile reads a file from one of the pod's emptyDir volumes. A file of more than limit bytes is an error. If
	// the file does not exist, errors.Is(err, fs.ErrNotExist) is true.
	EnvFile(pod *v1.Pod, volume, path string, limit int64) ([]byte, error)
}

// maxEnvFile is the maximum size of a file of environment variables (KEP-3721).
const maxEnvFile = 64 << 10

// NoFiles implements Files for a pod whose volumes are unknown.
type NoFiles struct{}

// EnvFile returns fs.ErrNotExist.
func (NoFiles) EnvFile(_ *v1.Pod, volume, path string, _ int64) ([]byte, error) {
	return nil, fmt.Errorf("file %q of volume %q: %w", path, volume, fs.ErrNotExist)
}

// fileValue returns the value of a variable from a file that a container wrote.
// https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/
func fileValue(pod *v1.Pod, r *v1.FileKeySelector, files Files) (string, bool, error) {
	data, err := files.EnvFile(pod, r.VolumeName, r.Path, maxEnvFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && podspec.IsTrue(r.Optional):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	value, err := envFileValue(string(data), r.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", r.Path, r.VolumeName, err)
	}
	if value != "" || podspec.IsTrue(r.Optional) { // an empty value is treated as missing, as in a kubelet
		return value, value != "", nil
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q", r.Key, r.Path, r.VolumeName)
}

// envFileValue returns the first value of a key. The lines of the file have the format KEY='value'. A value may
// span several lines, and contains no escapes. Empty lines and comments are skipped. A comment begins with # and
// may also follow a value. If a space follows the =, the value is empty, as in a shell. The lines after the value
// of the key are not parsed.
func envFileValue(text, key string) (string, error) {
	for n := 1; text != ""; {
		line, rest, _ := strings.Cut(text, "\n")
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" || line[0] == '#' {
			text, n = rest, n+1
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fmt.Errorf("line %d has no =", n)
		case name == "":
			return "", fmt.Errorf("line %d has no name", n)
		case strings.TrimRight(name, " \t") != name:
			return "", fmt.Errorf("line %d has a space before its =", n)
		case strings.HasPrefix(value, " "), strings.HasPrefix(value, "\t"):
			if name == key {
				return "", nil
			}
			text, n = rest, n+1
			continue
		case !strings.HasPrefix(value, "'"):
			return "", fmt.Errorf("line %d has a value that is not in single quotes", n)
		}
		_, text, _ = strings.Cut(text, "'")
		value, text, ok = strings.Cut(text, "'")
		if !ok {
			return "", fmt.Errorf("line %d opens a quote that is never closed", n)
		}
		line, text, _ = strings.Cut(text, "\n")
		if after := strings.TrimSpace(line); after != "" && after[0] != '#' {
			return "", fmt.Errorf("line %d has text behind the value", n+strings.Count(value, "\n"))
		}
		if name == key {
			return value, nil
		}
		n += strings.Count(value, "\n") + 1
	}
	return "", nil
}

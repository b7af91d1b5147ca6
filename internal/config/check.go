package config

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check checks a file with a KubeletConfiguration, an EdgeConfiguration or both, without flags and without the host. It returns the
// configuration (nil if it has mistakes), the mistakes, and a notice for each field that has no effect. Relative paths are relative to
// the file's directory.
func Check(name string, data []byte) (c *Config, mistakes, notices []FileError) {
	kube, edge, err := Split(name, data)
	if err != nil {
		return nil, mistakesIn(name, err), nil
	}
	file, err := filepath.Abs(name)
	if err != nil {
		return nil, mistakesIn(name, err), nil
	}
	given := map[string][]byte{}
	args := []string{anyName}
	for _, part := range []struct {
		flag, suffix string
		data         []byte
	}{{"--config", "", kube}, {"--edge-config", edgeSuffix, edge}} {
		if len(part.data) > 0 {
			given[file+part.suffix] = part.data
			args = append(args, part.flag+"="+file+part.suffix)
		}
	}
	c, list, err := load(args, nil, "", given)
	for _, n := range list {
		if path, ok := strings.CutPrefix(n.Subject, file+": "); ok {
			notices = append(notices, FileError{File: name, Line: max(lineOf(kube, path), 0), Field: path,
				Detail: "has no effect: " + n.Text})
		}
	}
	return c, mistakesIn(file, err), notices
}

// edgeSuffix distinguishes the EdgeConfiguration of a file from its KubeletConfiguration.
const edgeSuffix = "\x00"

// mistakesIn converts the joined errors of Load.
func mistakesIn(file string, err error) (out []FileError) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			out = append(out, mistakesIn(file, err)...)
		}
		return out
	}
	var decoding *FileError
	if errors.As(err, &decoding) {
		return []FileError{*decoding}
	}
	m := FileError{File: file, Detail: err.Error()}
	var invalid *field.Error
	if errors.As(err, &invalid) {
		m.Field, m.Detail = strings.TrimPrefix(invalid.Field, EdgeKind+"."), invalid.ErrorBody()
		position, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), file), ": ")
		m.Line, _ = strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(position, edgeSuffix), ":")) // 0 if the error has no position
	}
	return []FileError{m}
}

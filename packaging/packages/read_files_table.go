package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// An Entry is one installed file. It comes from a line of packaging/files, whose placeholders were replaced. If the source in the line is a
// pattern, there is one Entry for each matching file.
type Entry struct {
	Part   string
	Type   string // file, man, doc, dir, link, config or init
	Mode   fs.FileMode
	Source string // path in the archive, or target of a link
	Path   string // installation path
	// Former has the SHA-256 of each content that earlier versions had. Only a config has some.
	Former []string
}

// placeholderValues returns the values of the placeholders for a kind of package. Only the directory for zsh differs between the kinds.
func placeholderValues(kind string) map[string]string {
	zsh := "/usr/share/zsh/vendor-completions"
	if kind == "rpm" {
		zsh = "/usr/share/zsh/site-functions"
	}
	return map[string]string{
		"{bin}": "/usr/bin", "{lib}": "/usr/lib", "{share}": "/usr/share", "{zsh}": zsh,
		"{units}": "/usr/lib/systemd/system", "{presets}": "/usr/lib/systemd/system-preset", "{sysctl}": "/usr/lib/sysctl.d",
		"{drop-in}": "20-islet",                // the package kubeadm has 10-kubeadm.conf
		"{init}":    "/usr/share/islet/openrc", // on a system with OpenRC, a script moves it to /etc/init.d
	}
}

// readTable reads the table of files (packaging/files) from the directory of an unpacked archive. It returns the entries for a kind of
// package.
func readTable(dir, kind string) ([]Entry, error) {
	text, err := os.ReadFile(filepath.Join(dir, "files"))
	if err != nil {
		return nil, err
	}
	where := placeholderValues(kind)
	var out []Entry
	for n, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(f) < 5 || len(f) > 5 && f[1] != "config" {
			return nil, fmt.Errorf("files: line %d has %d fields, not 5", n+1, len(f))
		}
		mode, err := strconv.ParseUint(strings.Replace(f[2], "-", "0", 1), 8, 32)
		if err != nil {
			return nil, fmt.Errorf("files: line %d: %w", n+1, err)
		}
		e := Entry{Part: f[0], Type: f[1], Mode: fs.FileMode(mode), Source: f[3], Path: f[4], Former: f[5:]}
		for name, is := range where {
			e.Source, e.Path = strings.ReplaceAll(e.Source, name, is), strings.ReplaceAll(e.Path, name, is)
		}
		if strings.Contains(e.Path, "{") {
			return nil, fmt.Errorf("files: line %d: %s is not a known place", n+1, e.Path)
		}
		if !strings.HasSuffix(e.Path, "/") {
			out = append(out, e)
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, e.Source))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("files: line %d: no file matches %s (%w)", n+1, e.Source, err)
		}
		for _, file := range found {
			if info, err := os.Stat(file); err != nil {
				return nil, err
			} else if info.IsDir() {
				continue // doc/* also matches doc/decisions
			}
			one := e
			one.Source, one.Path = path.Join(path.Dir(e.Source), filepath.Base(file)), e.Path+filepath.Base(file)
			out = append(out, one)
		}
	}
	return out, nil
}

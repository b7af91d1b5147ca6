package main

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
)

//go:embed scripts lintian
var scriptFiles embed.FS

// moments say which of a package manager's calls a script is for; at all others it does
// nothing. Each kind has its own way of saying it:
// https://www.debian.org/doc/debian-policy/ch-maintainerscripts.html
// https://docs.fedoraproject.org/en-US/packaging-guidelines/Scriptlets/
var moments = map[string]map[string]string{
	"deb": {
		"before":        `[ "$1" = install ] || exit 0`,
		"after":         `case "$1" in configure) if [ -n "${2:-}" ] && [ ! -e /run/NAME.new ]; then moment=upgrade; else moment=install; fi; rm -f /run/NAME.new ;; *) exit 0 ;; esac`,
		"before-remove": `[ "$1" = remove ] || exit 0`,
		"after-remove":  `case "$1" in remove | purge) moment=$1 ;; *) exit 0 ;; esac`,
	},
	"rpm": {
		"after":         `if [ "$1" -gt 1 ]; then moment=upgrade; else moment=install; fi`,
		"before-remove": `[ "$1" = 0 ] || exit 0`,
		"after-remove":  `[ "$1" = 0 ] || exit 0; moment=remove`,
	},
}

// placed is where a deb has the settings that its script puts in place: dpkg asks about a
// conffile of which another one is there already, and fails where nobody answers.
const placed = "/usr/share/islet"

// settings are the package's, each with the SHA-256 of what is shipped, as the scripts read
// them. An rpm has none: rpm keeps what is there and asks nothing.
func (b build) settings(name, kind string, table []Entry) (string, error) {
	text := "settings='"
	for _, e := range table {
		if kind != "deb" || e.Part != name || e.Type != "config" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.from, e.Source))
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\n%s %x", e.Path, sha256.Sum256(data))
	}
	return text + "'\n", nil
}

// scripts gives a package its maintainer scripts, the same for each kind but for the
// moments and the settings.
func (b build) scripts(name, kind, dir string, table []Entry, info *nfpm.Info) error {
	settings, err := b.settings(name, kind, table)
	if err != nil {
		return err
	}
	common, err := scriptFiles.ReadFile("scripts/common.sh")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // nfpm reads them when it writes the package
		return err
	}
	for when, field := range map[string]*string{"before": &info.Scripts.PreInstall, "after": &info.Scripts.PostInstall, "before-remove": &info.Scripts.PreRemove, "after-remove": &info.Scripts.PostRemove} {
		body, err := scriptFiles.ReadFile(path.Join("scripts", name+"."+when))
		if err != nil || moments[kind][when] == "" {
			continue // this package, or this kind, has nothing to do then
		}
		*field = filepath.Join(dir, when)
		text := "#!/bin/sh\nset -e\n\n" + strings.ReplaceAll(moments[kind][when], "NAME", name) + "\n\n"
		if when != "before" { // when nothing of the package is there yet
			text += settings + string(common) + "\n"
		}
		text += string(body)
		if err := os.WriteFile(*field, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

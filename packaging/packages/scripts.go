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

// moments contains, for each kind of package, the shell conditions by which a maintainer script recognizes an installation, an upgrade or
// a removal. The two kinds have different arguments:
// https://www.debian.org/doc/debian-policy/ch-maintainerscripts.html
// https://docs.fedoraproject.org/en-US/packaging-guidelines/Scriptlets/
var moments = map[string]map[string]string{
	"deb": {
		"before": `[ "$1" = install ] || exit 0`,
		"after": `case "$1" in configure) if [ -n "${2:-}" ] && [ ! -e /run/NAME.new ]; then moment=upgrade; else moment=install; fi; ` +
			`rm -f /run/NAME.new ;; *) exit 0 ;; esac`,
		"before-remove": `[ "$1" = remove ] || exit 0`,
		"after-remove":  `case "$1" in remove | purge) moment=$1 ;; *) exit 0 ;; esac`,
	},
	"rpm": {
		"after":         `if [ "$1" -gt 1 ]; then moment=upgrade; else moment=install; fi`,
		"before-remove": `[ "$1" = 0 ] || exit 0`,
		"after-remove":  `[ "$1" = 0 ] || exit 0; moment=remove`,
	},
}

// placed is the directory in a deb that contains the settings. A script copies them to /etc. The settings are not conffiles, because dpkg
// prompts for a conffile that already exists with another content, and fails if nobody answers.
const placed = "/usr/share/islet"

// settings returns a shell variable with the package's settings and the SHA-256 of the shipped content. It returns "" for an rpm, because
// rpm keeps existing settings without a prompt.
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

// scripts adds the maintainer scripts to a package. Between deb and rpm, only these conditions and the settings differ.
func (b build) scripts(name, kind, dir string, table []Entry, info *nfpm.Info) error {
	settings, err := b.settings(name, kind, table)
	if err != nil {
		return err
	}
	common, err := scriptFiles.ReadFile("scripts/common.sh")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // nfpm reads the scripts when it writes the package
		return err
	}
	for when, field := range map[string]*string{"before": &info.Scripts.PreInstall, "after": &info.Scripts.PostInstall,
		"before-remove": &info.Scripts.PreRemove, "after-remove": &info.Scripts.PostRemove} {
		body, err := scriptFiles.ReadFile(path.Join("scripts", name+"."+when))
		if err != nil || moments[kind][when] == "" {
			continue // the package or kind has no script for this moment
		}
		*field = filepath.Join(dir, when)
		text := "#!/bin/sh\nset -e\n\n" + strings.ReplaceAll(moments[kind][when], "NAME", name) + "\n\n"
		if when != "before" { // no file of the package exists before the installation
			text += settings + string(common) + "\n"
		}
		text += string(body)
		if err := os.WriteFile(*field, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

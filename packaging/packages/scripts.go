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

// scriptBeginnings contains the beginning of each maintainer script. This shell code recognizes an installation, an upgrade or a removal.
// It differs between the two kinds of packages, because dpkg and rpm call the scripts with different arguments:
// https://www.debian.org/doc/debian-policy/ch-maintainerscripts.html https://docs.fedoraproject.org/en-US/packaging-guidelines/Scriptlets/
var scriptBeginnings = map[string]map[string]string{
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

// A deb contains the settings in this directory, and a script copies them to /etc. They are not conffiles: if a
// conffile exists with another content, dpkg asks the user which one to keep, and fails without an answer.
const settingsDir = "/usr/share/islet"

// settingsVariable returns a line of shell code that sets a variable to the paths of the package's settings, each with the SHA-256 of the
// shipped content and of the contents in earlier versions. For an rpm the variable is empty, because rpm keeps edited settings without a
// question, and replaces the others.
func (b buildArgs) settingsVariable(name, kind string, table []Entry) (string, error) {
	text := "settings='"
	for _, e := range table {
		if kind != "deb" || e.Part != name || e.Type != "config" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.from, e.Source))
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\n%s %x", e.Path, sha256.Sum256(data)) + strings.Join(append([]string{""}, e.Former...), " ")
	}
	return text + "'\n", nil
}

// addScripts adds the maintainer scripts to a package. The scripts for deb and rpm differ only in their beginning and in the settings.
func (b buildArgs) addScripts(name, kind, dir string, table []Entry, info *nfpm.Info) error {
	settings, err := b.settingsVariable(name, kind, table)
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
		if err != nil || scriptBeginnings[kind][when] == "" {
			continue // this package, or this kind of package, has no such script
		}
		*field = filepath.Join(dir, when)
		text := "#!/bin/sh\nset -e\n\n" + strings.ReplaceAll(scriptBeginnings[kind][when], "NAME", name) + "\n\n"
		if when != "before" { // before the installation, no file of the package exists
			text += settings + string(common) + "\n"
		}
		text += string(body)
		if err := os.WriteFile(*field, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

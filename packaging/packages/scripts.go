package main

import (
	"embed"
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

// scripts gives a package its maintainer scripts, the same for each kind but for the
// moments.
func (b build) scripts(name, kind, dir string, info *nfpm.Info) error {
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
			text += string(common) + "\n"
		}
		text += string(body)
		if err := os.WriteFile(*field, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

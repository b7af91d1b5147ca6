package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// maxRead is the maximum number of bytes that may be allocated while a hostile directory is checked once.
const maxRead = 16 << 20

// TestConfBombs checks that a hostile configuration is rejected before it uses much memory. The cases are small files that are large when
// decoded, directories with too many files, and endless files.
func TestConfBombs(t *testing.T) {
	const list = `{"cniVersion":"1.1.0","name":"net","plugins":[`
	const plugin = `{"type":"bridge"}`
	inline := list + plugin + `]}`
	fill := func(dir, ending string, n int, text string) (err error) {
		for i := range n {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)+ending), []byte(text), 0o644))
		}
		return err
	}
	for name, b := range map[string]struct {
		text string // content of the conflist
		more func(dir, plugins string) error
		says string
	}{
		"plugins":                  {text: list + strings.Repeat(plugin+",", 50_000) + plugin + `]}`, says: "too much memory"},
		"empty":                    {text: list + strings.Repeat("{},", 300_000) + `{}]}`, says: "too much memory"},
		"numbers":                  {text: `{"name":"net","x":[` + strings.Repeat("0,", 500_000) + `0]}`, says: "too much memory"},
		"fields":                   {text: `{"name":"net","x":{` + strings.Repeat(`"":0,`, 200_000) + `"":0}}`, says: "too much memory"},
		"nested":                   {text: strings.Repeat(`{"a":`, 200) + "0" + strings.Repeat("}", 200), says: "too deep"},
		"long":                     {text: list + strings.Repeat(" ", maxConf) + `]}`, says: "more than"},
		"a pipe":                   {more: func(dir, _ string) error { return unix.Mkfifo(filepath.Join(dir, "10-net.conflist"), 0o600) }, says: "not a regular file"},
		"many entries":             {text: inline, more: func(dir, _ string) error { return fill(dir, ".txt", maxFiles+1, "") }, says: "entries"},
		"a folder of many plugins": {text: inline, more: func(_, plugins string) error { return fill(plugins, ".conf", maxPlugins+1, plugin) }, says: "plugins, more than"},
		"a folder of many entries": {text: inline, more: func(_, plugins string) error { return fill(plugins, ".txt", maxFiles+1, "") }, says: "entries"},
		"a folder of much text": {text: inline, more: func(_, plugins string) error {
			return fill(plugins, ".conf", maxPlugins, `{"type":"`+strings.Repeat("x", 60<<10)+`"}`)
		}, says: "more than"},
		"a folder of a large plugin": {text: inline, more: func(_, plugins string) error {
			return fill(plugins, ".conf", 1, `{"type":"bridge","x":[`+strings.Repeat("{},", 300_000)+`{}]}`)
		}, says: "too much memory"},
		"a folder with a file without an end": {text: inline, more: func(_, plugins string) error { return os.Symlink("/dev/zero", filepath.Join(plugins, "1.conf")) }, says: "not a regular file"},
		"a folder with a pipe":                {text: inline, more: func(_, plugins string) error { return unix.Mkfifo(filepath.Join(plugins, "1.conf"), 0o600) }, says: "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			plugins := filepath.Join(dir, "net")
			check(t, os.Mkdir(plugins, 0o755))
			if b.text != "" {
				check(t, os.WriteFile(filepath.Join(dir, "10-net.conflist"), []byte(b.text), 0o644))
			}
			if b.more != nil {
				check(t, b.more(dir, plugins))
			}
			c := &configDir{dir: dir}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.currentList()
			runtime.ReadMemStats(&after)
			if got != nil || err == nil || !strings.Contains(err.Error(), b.says) {
				t.Errorf("got %v, %.300v; want an error that says %q", got != nil, err, b.says)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > maxRead {
				t.Errorf("it took %d MiB", took>>20)
			}
		})
	}
}

// TestPluginFolder checks that the plugins in the folder of a configuration list are appended to the inlined plugins. They are sorted by
// file name. The configuration list can turn off its folder.
func TestPluginFolder(t *testing.T) {
	for text, want := range map[string]string{
		`{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"a"}]}`:                               "a b c",
		`{"cniVersion":"1.1.0","name":"net"}`:                                                        "b c",
		`{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`: "a",
	} {
		dir := t.TempDir()
		check(t, os.Mkdir(filepath.Join(dir, "net"), 0o755))
		for name, text := range map[string]string{"10-net.conflist": text, "net/2.conf": `{"type":"c"}`, "net/1.conf": `{"type":"b"}`, "net/0.json": `{"type":"x"}`} {
			check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		list, err := (&configDir{dir: dir}).currentList()
		check(t, err)
		var got []string
		for _, p := range list.Plugins {
			got = append(got, p.Network.Type)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has the plugins %q, want %q", text, got, want)
		}
	}
}

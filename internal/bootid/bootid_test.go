package bootid

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// TestIn checks that a restart of a container counts as a boot, although its host continues to run. The name of the container's first
// process has no effect. On a machine, the ID is the kernel's boot ID, as in earlier versions.
func TestIn(t *testing.T) {
	stat := func(name, start string) string {
		return "1 (" + name + ") S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 " + start + " 170000 3000\n"
	}
	for name, c := range map[string]struct{ boot, space, first, want string }{
		"a machine":                      {"b1\n", initialPIDNamespace, stat("systemd", "2"), "b1"},
		"a container":                    {"b1\n", "pid:[4026532001]", stat("init", "77"), "b1.77"},
		"the container, restarted":       {"b1\n", "pid:[4026532001]", stat("init", "99"), "b1.99"},
		"a hostile name":                 {"b1\n", "pid:[4026532001]", stat("x) 5 5 5 (y", "99"), "b1.99"},
		"a container with a torn file":   {"b1\n", "pid:[4026532001]", "1 (init) S 0", "b1"},
		"no namespaces":                  {"b1\n", "", stat("init", "2"), "b1"},
		"a kernel that does not say":     {"", initialPIDNamespace, stat("init", "2"), ""},
		"a kernel that says only a line": {"\n", "pid:[1]", stat("init", "2"), ""},
	} {
		host := fstest.MapFS{initStatFile: {Data: []byte(c.first)}}
		if c.boot != "" {
			host[bootFile] = &fstest.MapFile{Data: []byte(c.boot)}
		}
		if c.space != "" {
			host[namespaceFile] = &fstest.MapFile{Data: []byte(c.space), Mode: fs.ModeSymlink}
		}
		if got := ReadRoot(host); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if Read() == "" || Read() != Read() {
		t.Errorf("this machine: %q, then %q", Read(), Read())
	}
}

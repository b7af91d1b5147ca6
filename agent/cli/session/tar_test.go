package session

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive returns a tar archive with the given entries.
func archive(t *testing.T, entries ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		data := []byte("evil")
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(data))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			w.Write(data)
		}
	}
	w.Close()
	return &b
}

// TestUnpackHostile checks that unpack never writes outside its target directory, even if the container sends a malicious archive.
func TestUnpackHostile(t *testing.T) {
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
	for name, entries := range map[string][]tar.Header{
		"up":               {reg("../evil")},
		"up and in":        {reg("d/../../evil")},
		"absolute":         {reg("/evil")},
		"another name":     {reg("evil")},
		"a longer name":    {reg("data-evil")},
		"link out":         {dir("d"), link("d/x", "../../evil"), reg("d/x")},
		"absolute link":    {dir("d"), link("d/x", "/etc"), reg("d/x/evil")},
		"link to a link":   {dir("d"), dir("d/e"), link("d/e/x", ".."), link("d/y", "e/x/../../evil")},
		"up by a link":     {dir("d"), link("d/l", "."), link("d/l/l/l/y", "../../evil")},
		"through a link":   {dir("d"), link("d/x", "."), link("d/x/y", "../../evil")},
		"over a link":      {dir("d"), link("d/here", "there"), reg("d/here")},
		"device":           {{Name: "d", Typeflag: tar.TypeChar}},
		"fifo":             {{Name: "d/f", Typeflag: tar.TypeFifo}},
		"hard link":        {{Name: "d", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"nothing":          {},
		"a file, then dir": {reg("d"), reg("d/evil")},
	} {
		top := t.TempDir()
		inner := filepath.Join(top, "inner")
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unpack(archive(t, entries...), "d", filepath.Join(inner, "target")); err == nil {
			t.Errorf("%s: accepted", name)
		}
		for _, place := range []string{top, inner} {
			list, err := os.ReadDir(place)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if e.Name() != "inner" && e.Name() != "target" {
					t.Errorf("%s wrote %s", name, filepath.Join(place, e.Name()))
				}
			}
		}
	}
}

func TestPackUnpack(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	for name, text := range map[string]string{"a": "one", "sub/b": strings.Repeat("two", 1<<16), "sub/deep/c": ""} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../a", filepath.Join(from, "sub/link")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pack(&b, from, "data"); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "to")
	for range 2 { // the second run overwrites the files of the first one
		if err := unpack(bytes.NewReader(b.Bytes()), "data", to); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(to, "sub/b")); err != nil || len(data) != 3<<16 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if data, err := os.ReadFile(filepath.Join(to, "sub/link")); err != nil || string(data) != "one" {
		t.Errorf("the link leads to %q, %v", data, err)
	}
	if info, err := os.Stat(filepath.Join(to, "a")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestUnpackLeavesOut checks that unpack skips a symbolic link that points outside the target, and copies the other files. The error names
// the link.
func TestUnpackLeavesOut(t *testing.T) {
	to := filepath.Join(t.TempDir(), "to")
	err := unpack(archive(t, tar.Header{Name: "d", Typeflag: tar.TypeDir}, tar.Header{Name: "d/out", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "d/file", Typeflag: tar.TypeReg}), "d", to)
	if err == nil || !strings.Contains(err.Error(), "to/out is a symbolic link to \"/etc/passwd\"") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(to, "file")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(to, "out")); err == nil {
		t.Error("the link was created")
	}
}

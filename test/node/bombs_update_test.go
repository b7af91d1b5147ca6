package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestUpdateBombs checks that the agent survives update servers whose headers, releases and archives are large in memory. The agent must
// reject each version, also if a trusted key has signed it. Without ISLET_TEST_LONG, only one version of each kind is tried. The agent's
// memory limit is 96 MiB above its own usage.
func TestUpdateBombs(t *testing.T) {
	t.Parallel()
	rel := machine.NewReleaser(t)
	b := bombedMachine(t)
	b.OwnProgram()
	files := t.TempDir()
	versions := []string{"nested", "headers", "endless", "entries"}
	archives := map[string][]byte{
		"entries": packed(t, func(w io.Writer) error { _, err := w.Write(bytes.Repeat(emptyEntry(t), 300_000)); return err }),
	}
	if os.Getenv("ISLET_TEST_LONG") != "" {
		archives["names"], archives["zeros"] = longNames(t), zeros(t)
		versions = append(versions, "spaces", "name", "list", "redirects", "names", "zeros")
	}
	for name, archive := range archives {
		file := filepath.Join(files, name)
		if err := os.WriteFile(file, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		rel.Sign(file, "9.9.9", runtime.GOARCH)
	}
	signed := http.FileServer(http.Dir(files))
	texts := map[string]string{
		"spaces": strings.Repeat(" ", 64<<20), "name": `{"` + strings.Repeat("x", 64<<20), "nested": strings.Repeat(`{"a":[`, 4<<20), "list": `{"signatures":[` + strings.Repeat("{},", 8<<20),
	}
	serveInside(t, b.Machine, "127.0.0.1:8089", func(ln net.Listener) error {
		return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), ".release")
			switch text, ok := texts[name]; {
			case ok:
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, text)
				_ = z.Close()
			case name == "headers":
				for i := range 100_000 {
					w.Header().Set(fmt.Sprint("x", i), strings.Repeat("x", 100))
				}
			case name == "redirects":
				http.Redirect(w, r, r.URL.Path+"?"+strings.Repeat("x", 32<<10), http.StatusFound)
			case name == "endless":
				endless(w, make([]byte, 64<<10))
			default:
				signed.ServeHTTP(w, r)
			}
		}))
	})
	b.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nupdate: {keys: [%s]}\n",
		b.Disk, rel.Public))
	b.start("")
	for _, name := range versions {
		if out, code := b.Try("update", "http://127.0.0.1:8089/"+name); code != 1 {
			t.Errorf("the version %s is not rejected: code %d, %s", name, code, out)
		}
		b.checkAlive("the version " + name)
	}
	b.well()
}

// emptyEntry encodes an empty file of a tar archive.
func emptyEntry(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "x", Mode: 0o644, Typeflag: '0'}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

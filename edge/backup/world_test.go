package backup

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// A world is a directory that stands for the root of a board.
type world struct {
	*testing.T
	root string
	dirs config.Dirs
	cfg  *config.Config
}

// newWorld returns a node with a database, a key, certificates and configuration files. Its agent does not run.
func newWorld(t *testing.T) *world {
	t.Helper()
	root := t.TempDir()
	w := &world{T: t, root: root, dirs: config.Dirs{State: root + "/state", Cert: root + "/kubelet/pki", Root: root + "/kubelet", Run: root + "/run"}}
	w.cfg = &config.Config{Dirs: w.dirs, Kubeconfig: root + "/conf/kubelet.conf"}
	w.cfg.Node.Name = "edge"
	w.write("state/bundle.json", `{"format":1,"highest":{"kiosk":7}}`)
	w.write("state/configuration.json", `{}`)
	w.write("state/bundles/sha256-ab/contents.json", `{}`)
	w.write("state/bundles/sha256-ab/files/pod.yaml", "kind: Pod")
	w.write("kubelet/pki/kubelet-client-2026-11-21-03-50-00.pem", "pair")
	w.write("conf/kubelet.conf", "users: [{name: u, user: {client-key: key.pem, tokenFile: /nowhere}}]")
	w.write("conf/key.pem", "key")
	if err := os.Symlink(w.dirs.Cert+"/kubelet-client-2026-11-21-03-50-00.pem", w.dirs.Cert+"/kubelet-client-current.pem"); err != nil {
		t.Fatal(err)
	}
	s := w.store()
	record := `{"node":"edge","marks":{"serials":["0123456789"]},"term":3}`
	if err := errors.Join(s.SetMeta(t.Context(), twin.MetaKey, record), s.SetMeta(t.Context(), seenKey, `{"highest":{"kiosk":6,"shop":2}}`),
		s.AddImport(t.Context(), "sha256:ab", "a.tar")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeRecipient(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) store() *store.Store {
	w.Helper()
	s, err := store.Open(w.Context(), filepath.Join(w.dirs.State, databaseName), slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) write(path, content string) {
	w.Helper()
	path = filepath.Join(w.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o640)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) source() Source {
	return Source{
		Config: w.cfg, Version: "1.2.3", Now: func() time.Time { return noon }, Scratch: w.dirs.State,
		Copy: store.CopyFileFrom(filepath.Join(w.dirs.State, databaseName)),
		Recipient: func() string {
			key, err := keyfile.Place{Dir: w.dirs.State}.Read()
			if err != nil {
				w.Fatal(err)
			}
			id, err := key.Identity()
			if err != nil {
				w.Fatal(err)
			}
			return id.Recipient()
		},
	}
}

func (w *world) archive(s Source) []byte {
	w.Helper()
	a, err := s.Collect(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var out bytes.Buffer
	if err := errors.Join(a.Write(w.Context(), &out), a.Close()); err != nil {
		w.Fatal(err)
	}
	return out.Bytes()
}

// empty replaces the board with one without files.
func (w *world) empty() {
	w.Helper()
	if err := errors.Join(os.RemoveAll(w.root), os.MkdirAll(w.dirs.State, 0o700)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) request() Request {
	return Request{Dirs: w.dirs, Start: w.startAs(w.dirs, "edge"), Include: []string{w.root}, Now: func() time.Time { return noon }, TPM: w.root + "/no-tpm"}
}

// startAs returns an agent that runs as a node, whatever files the board has.
func (w *world) startAs(dirs config.Dirs, node string) func(fs.FS) ([]Identity, error) {
	return func(fs.FS) ([]Identity, error) { return []Identity{{dirs, node}}, nil }
}

// files returns the content of all files and links by path.
func (w *world) files() map[string]string {
	w.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, w.root+"/")
		if e.Type() == fs.ModeSymlink {
			out[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) meta(key string) string {
	w.Helper()
	text, _, err := store.ReadMeta(w.Context(), filepath.Join(w.dirs.State, databaseName), key)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

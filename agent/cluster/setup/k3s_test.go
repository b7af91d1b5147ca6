package setup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
)

// joinK3s does what the command islet join does, until the given function returns an error. The function may be nil.
func (b *board) joinK3s(name string, check func() error) (edge string) {
	b.t.Helper()
	root, path := k3s.Root(b.State), filepath.Join(b.Dir, edgeFile)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	text, _, err := config.SetFields(path, old, true, map[string]any{"k3s.directory": string(k3s.Current(root))})
	must(b.t, err)
	l, err := k3s.Lock(root)
	must(b.t, err)
	defer l.Close()
	if check == nil {
		check = func() error { return nil }
	}
	err = k3s.Store(root, &k3s.Cluster{
		Record: k3s.Record{Server: "https://192.0.2.5:6443", APIServer: "https://192.0.2.5:6444", Node: name},
		Client: &k3s.Pair{}, Serving: &k3s.Pair{},
	}, []k3s.File{{Path: path, Mode: 0o644, Old: old, New: text}}, check)
	must(b.t, err)
	return string(text)
}

// TestK3s checks that a board which has joined by islet join keeps that cluster, its name and its directory.
func TestK3s(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(head + "name: kiosk-1\nbundle: {every: 1h}\n")
	b.inUse()
	edge := b.joinK3s("kiosk-1", nil)
	before := contents(t, b.Dir)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	const other = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbridgeName: own0\n"
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(other), 0o644))
	const joined = ": this board has joined "
	wrong := map[string]string{
		"cluster" + joined + "https://192.0.2.5:6444 by islet join": joining(ca),
		":4: cluster" + joined:                                                 strings.Replace(joining(ca), "kiosk-{serial}", "kiosk-1", 1),
		":3: cluster" + joined:                                                 certified("https://192.0.2.5:6444", ca, cert, key),
		":3: name" + joined + "as \"kiosk-1\"":                                 head + "name: kiosk-2\n",
		"name" + joined + "as \"kiosk-1\", and keeps":                          head,
		":4: edgeConfiguration" + joined + "https://192.0.2.5:6444 by islet j": head + "name: kiosk-1\nedgeConfiguration: more.yaml\n",
	}
	for _, want := range slices.Sorted(maps.Keys(wrong)) {
		b.write(wrong[want])
		if got := b.refused(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := contents(t, b.Dir); got != before {
			t.Errorf("%s: files have changed: %s", want, got)
		}
	}
	b.write(head + "name: kiosk-1\nbundle: {every: 2h}\n")
	b.inUse()
	if got := b.made(edgeFile); !strings.Contains(got, "2h") || k3sDirectory([]byte(got)) != k3s.Current(k3s.Root(b.State)) {
		t.Error(got)
	}
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(edge+"bridgeName: own0\n"), 0o644))
	b.write(head + "name: kiosk-1\nedgeConfiguration: more.yaml\n")
	b.inUse()
	if got := b.made(edgeFile); !strings.Contains(got, "own0") {
		t.Error(got)
	}
	b.write(head + "name: kiosk-1\n") // the file of before has the directory
	b.inUse()
	must(t, os.RemoveAll(k3s.Root(b.State)))
	b.write(joining(ca))
	b.inUse()
}

// TestK3sUnfinished checks that the files of an islet join which a power cut has ended are completed first, and that nothing is done if
// they cannot be.
func TestK3sUnfinished(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(head + "name: kiosk-1\n")
	b.inUse()
	var list []byte
	unfinished := filepath.Join(string(k3s.Current(k3s.Root(b.State))), "unfinished.json")
	edge := b.joinK3s("kiosk-1", func() (err error) {
		list, err = os.ReadFile(unfinished)
		return err
	})
	must(t, os.WriteFile(unfinished, list, 0o600), os.WriteFile(filepath.Join(b.Dir, edgeFile), []byte("edited"), 0o644))
	b.write(joining(ca))
	if got := b.refused(); !strings.Contains(got, "islet join was interrupted") || b.made(edgeFile) != "edited" ||
		b.made(bootstrapFile) != "" {
		t.Error(got, contents(t, b.Dir))
	}
	must(t, os.Remove(filepath.Join(b.Dir, edgeFile)))
	if got := b.refused(); !strings.Contains(got, "cluster: this board has joined https://192.0.2.5:6444") || b.made(edgeFile) != edge {
		t.Error(got, contents(t, b.Dir))
	}
}

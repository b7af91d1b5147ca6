package bundle

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/sealed"
)

// TestRefusedBundle checks which bundles a node rejects. The error contains the reason, and the node has written nothing, and not
// recorded the time of the signature.
func TestRefusedBundle(t *testing.T) {
	w := newWorld(t)
	good := w.bundle(5, nil)
	unsigned := func() string {
		data, err := os.ReadFile(good)
		w.must(err)
		at := strings.Index(string(data), `"site":"x"`)
		data[at+8] = 'y'
		file := filepath.Join(t.TempDir(), "changed.tar")
		w.must(os.WriteFile(file, data, 0o600))
		return file
	}
	key := w.key
	w.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
	other := w.bundle(5, nil)
	w.key = key
	for name, c := range map[string]struct {
		file string
		node func(*Node)
		want string
	}{
		"another key":      {other, nil, "sign"},
		"a changed byte":   {unsigned(), nil, "other bytes"},
		"no keys":          {good, func(n *Node) { n.c.Policy.Keys = nil }, "bundle.keys: the node accepts no bundle"},
		"two signers":      {good, func(n *Node) { n.c.Policy.Threshold = 2 }, "2"},
		"another node":     {good, func(n *Node) { n.c.Name = "c" }, "for: the bundle is for other nodes than c: "},
		"other labels":     {good, func(n *Node) { n.c.Labels = func() map[string]string { return nil } }, "for: "},
		"expired":          {good, func(n *Node) { n.c.Now = func() time.Time { return w.clock.AddDate(1, 0, 0) } }, "expires: "},
		"an older number":  {good, func(*Node) { w.meta[seenKey] = `{"highest":{"kiosk":6}}` }, "--older"},
		"an agent's trial": {good, func(n *Node) { n.c.CheckTrial = func() error { return errors.New("on trial") } }, "on trial"},
		"a name":           {good, func(*Node) { w.others = []desired.Pod{w.pod("web")} }, "web.yaml of bundle kiosk, and is already defined by /etc/web.yaml"},
		"no file":          {good + "x", nil, "no such file"},
		"a configuration":  {w.bundle(5, withKubelet("")), nil, "this node cannot try the configuration"},
		"a remote runtime": {good, func(n *Node) { n.c.Images = nil }, "containerRuntimeEndpoint"},
	} {
		w.meta, w.others = map[string]string{}, nil
		n := w.boot(nil)
		if c.node != nil {
			c.node(n)
		}
		n.c.RecordSigned = func(context.Context, time.Time) { t.Errorf("%s: the time of its signature was recorded", name) }
		before := fmt.Sprint(w.meta)
		_, err := apply(n, c.file, false)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, found, _ := load(w.dir); found || len(w.folders())+len(w.imported)+len(w.pinned) > 0 || fmt.Sprint(w.meta) != before {
			t.Errorf("%s: something was written: record %v, folders %v, images %v, database %v", name, found, w.folders(), w.imported, w.meta)
		}
	}
	failed := someDigest("f").String()
	w.meta, w.others = map[string]string{seenKey: `{"highest":{"kiosk":6},"failed":["` + failed + `"]}`}, nil
	if _, err := apply(w.boot(nil), good, true); err != nil {
		t.Error("on purpose:", err)
	}
	if !strings.HasPrefix(w.meta[seenKey], `{"highest":{"kiosk":6}`) || !strings.Contains(w.meta[seenKey], failed) {
		t.Error("the highest number is lower:", w.meta)
	}
}

func (w *world) pod(name string) desired.Pod {
	return desired.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, Source: desired.File, Origin: "/etc/web.yaml"}
}

// TestRestoredDatabase checks that the highest number stays the same when the database is restored from a backup, and when the record is
// lost.
func TestRestoredDatabase(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	if _, err := apply(n, w.bundle(5, nil), false); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	older := w.bundle(4, nil)
	stored := w.meta
	w.meta = map[string]string{}
	if _, err := apply(w.boot(nil), older, false); !errors.Is(err, ErrOlder) {
		t.Error("without the database:", err)
	}
	w.meta = stored
	w.must(os.Remove(filepath.Join(w.dir, File)))
	if _, err := apply(w.boot(nil), older, false); !errors.Is(err, ErrOlder) {
		t.Error("without the record:", err)
	}
}

// TestSealedSecret checks that the pods of a bundle get the Secrets that are sealed for the node, and that a bundle with a Secret for
// another node is rejected before anything is written.
func TestSealedSecret(t *testing.T) {
	w, mine := newWorld(t), bundletest.Identity(t)
	other, err := sealed.NewIdentity(bytes.Repeat([]byte{2}, sealed.IdentitySize))
	w.must(err)
	file := w.bundle(1, func(dir string) {
		w.must(os.WriteFile(filepath.Join(dir, "manifests/wifi.sealed.yaml"), bundletest.SealedSecret(w), 0o600))
	})
	for what, open := range map[string]func(*sealed.Document) (*sealed.Secret, error){"no key": nil, "another key": other.Open} {
		n := w.boot(nil)
		n.c.OpenSecret = open
		if _, err := apply(n, file, false); err == nil || !strings.Contains(err.Error(), "Secret default/wifi") {
			t.Errorf("%s: %v", what, err)
		}
		if len(w.folders())+len(w.imported) > 0 {
			t.Errorf("%s: something was written", what)
		}
	}
	n := w.boot(nil)
	n.c.OpenSecret = mine.Open
	if _, err := apply(n, file, false); err != nil {
		t.Fatal(err)
	}
	(&loop{Node: n}).round(t.Context())
	found := slices.ContainsFunc(w.objects, func(o local.DefinedObject) bool {
		s, is := o.Object.(*v1.Secret)
		return is && s.Name == "wifi" && string(s.Data["password"]) == "horse"
	})
	if !found {
		t.Errorf("the Secret was not delivered: %v", w.objects)
	}
	err = filepath.WalkDir(w.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("horse")) || bytes.Contains(data, []byte("aG9yc2U")) {
			t.Errorf("%s contains the Secret", path)
		}
		return err
	})
	w.must(err)
}

// TestBombs applies signed bundles whose manifests need much memory when they are decoded. The node rejects each of them with less than 64
// MiB, and writes nothing.
func TestBombs(t *testing.T) {
	w := newWorld(t)
	const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n"
	aliases := pod + "spec:\n  a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		aliases += fmt.Sprintf("  %[1]c: &%[1]c [*%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c]\n", c, c-1)
	}
	full := map[string]string{}
	for i := range 5 {
		full[fmt.Sprintf("f%d.yaml", i)] = pod + "spec: {containers: [" + strings.Repeat("{},", format.MaxFile/3-50) + "]}\n"
	}
	releases := map[string]string{"a.yaml": pod}
	for i := range 990 {
		releases[fmt.Sprintf("f%d.tar.gz", i)] = "x"
		releases[fmt.Sprintf("f%d.tar.gz.release", i)] = strings.Repeat("x", 16<<10)
	}
	for name, files := range map[string]map[string]string{
		"releases":     releases,
		"aliases":      {"a.yaml": aliases},
		"deep":         {"a.yaml": pod + "spec: " + strings.Repeat("[", 1<<20)},
		"many objects": {"a.yaml": pod + "spec: [" + strings.Repeat("{},", 300_000) + "]\n"},
		"full files":   full,
	} {
		var parts []format.Part
		for name, text := range files {
			kind := format.MediaManifest
			switch filepath.Ext(name) {
			case ".gz":
				kind = format.MediaProgram
			case ".release":
				kind = format.MediaRelease
			}
			parts = append(parts, format.NewFile(name, kind, []byte(text)))
		}
		a, err := format.Assemble(&format.Contents{Name: "kiosk", Number: 1}, parts, nil)
		w.must(err)
		file := w.sign(a)
		n := w.boot(nil)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err = apply(n, file, false)
		runtime.ReadMemStats(&after)
		if err == nil || len(w.folders())+len(w.imported) > 0 {
			t.Errorf("%s: %v, folders %v", name, err, w.folders())
		}
		if grown := int64(after.HeapSys+after.StackSys) - int64(before.HeapSys+before.StackSys); grown > 64<<20 {
			t.Errorf("%s: the process has grown by %d MiB", name, grown>>20)
		}
	}
}

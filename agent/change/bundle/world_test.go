package bundle

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/signed"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/image"
)

// A world is a node's storage, which survives a power cut, and a builder of bundles for this node.
type world struct {
	testing.TB
	dir    string
	key    ed25519.PrivateKey
	labels map[string]string
	clock  time.Time
	synced bool // the clock is synchronized

	mu         sync.Mutex
	meta       map[string]string
	imported   map[string]bool // images by digest
	pinned     []string
	sourcePods []desired.SourcePod
	objects    []local.DefinedObject
	bad        map[string]bool // names of pods that do not become Ready
	others     []desired.Pod   // pods of other sources
	during     func()          // is called at each import of an image; may be nil
	reads      bool            // an import reads and verifies the layers
	damaged    bool            // the pods of a bundle may be unknown
	noSpace    error           // of each import; may be nil
}

func newWorld(t testing.TB) *world {
	return &world{
		TB: t, dir: t.TempDir(), key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), labels: map[string]string{"site": "x"},
		clock: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), meta: map[string]string{}, imported: map[string]bool{}, bad: map[string]bool{},
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// boot returns the node after a start of the agent. The function crash may be nil.
func (w *world) boot(crash func(string)) *Node { return w.open(crash, Remote{}) }

// open does the same for a node that reaches servers.
func (w *world) open(crash func(string), remote Remote) *Node {
	w.sourcePods = nil // the pods start again
	n := Open(Config{
		Dir: w.dir, Policy: format.Policy{Keys: []signed.Key{signed.PublicKey(w.key)}, Threshold: 1}, HealthyFor: 2 * time.Second,
		Deadline: 10 * time.Second, Name: "a", Labels: func() map[string]string { return w.labels }, Now: func() time.Time { return w.clock },
		IsSynced: func() bool { return w.synced },
		Images:   w, Store: w, CheckTrial: func() error { return nil }, CheckKeys: func() error { return nil },
		Signer: func() (ed25519.PrivateKey, error) { return w.key, nil }, Log: slog.New(slog.DiscardHandler), crash: crash,
		Remote: remote,
	})
	n.Connect(Pods{Sink: w, List: w.list, Desired: foreign{w}, Objects: noObjects{}}, nil, nil)
	return n
}

// run starts the agent, and returns its node and a function that ends the agent.
func (w *world) run() (*Node, func()) {
	n := w.boot(nil)
	return n, start(n)
}

// start starts the loops of a node, and returns a function that ends them.
func start(n *Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	n.Start(ctx, func(f func() error) { group.Go(func() { _ = f() }) })
	return func() { cancel(); group.Wait() }
}

// bundle builds a signed bundle. The function change may change the source directory.
func (w *world) bundle(number int64, change func(dir string)) string {
	w.Helper()
	dir := w.TempDir()
	bundletest.Source(w, dir)
	if change != nil {
		change(dir)
	}
	b := &build.Build{Dir: dir, Number: number, Inventory: inventory.Read, TempDir: dir, PlainSecrets: true}
	a, err := b.Run(context.Background())
	w.must(err)
	defer b.Close()
	return w.sign(a)
}

// sign signs a bundle and writes it to a file.
func (w *world) sign(a *format.Artefact) string {
	w.Helper()
	s := format.NewSignature(a.Contents, a.ID, w.clock.Add(-time.Hour))
	s.Text.Sign(w.key)
	return w.write(a, s)
}

// write writes a bundle with a signature to a file.
func (w *world) write(a *format.Artefact, s *format.Signature) string {
	w.Helper()
	w.must(a.SetSignature(s))
	file := filepath.Join(w.TempDir(), "bundle.tar")
	f, err := os.Create(file)
	w.must(err)
	w.must(errors.Join(a.WriteTar(f), f.Close()))
	return file
}

// read returns the bundle in a file, and the parts from which it can be written again.
func (w *world) read(file string) (*format.Bundle, *format.Artefact) {
	w.Helper()
	l, err := format.OpenLayout(file)
	w.must(err)
	w.Cleanup(func() { l.Close() })
	b, err := format.Open(l, nil)
	w.must(err)
	a, err := b.Artefact(w.Context())
	w.must(err)
	return b, a
}

// replace returns a change of a source directory that replaces text in a file.
func replace(file, old, text string) func(string) {
	return func(dir string) {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(data), old) {
			panic(fmt.Sprint(file, old, err))
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(data), old, text, 1)), 0o600); err != nil {
			panic(err)
		}
	}
}

func apply(n *Node, file string, older bool) (api.Bundle, error) {
	return n.Apply(context.Background(), file, older, func(string, int64, int64) {})
}

// keep ends the trial of a bundle whose pods are Ready.
func keep(n *Node) { (&loop{Node: n}).end(func(r *Record) { r.Keep(n.c.Now()) }, n.now().Trial) }

// names returns the names of the delivered pods, sorted.
func (w *world) names() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.sourcePods {
		names = append(names, c.Pod.Name)
	}
	slices.Sort(names)
	return names
}

// list implements Pods.List: every delivered pod is Ready, unless it is bad.
func (w *world) list() (list []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.sourcePods {
		p := c.Pod.DeepCopy()
		if !w.bad[p.Name] {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
		list = append(list, p)
	}
	return list
}

func (w *world) Set(_ context.Context, _ string, sourcePods []desired.SourcePod, _ []desired.Problem) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sourcePods = sourcePods
	return nil
}

func (w *world) SetObjects(_ context.Context, _ string, objects []local.DefinedObject, _ []desired.Problem) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects = objects
	return nil
}

func (w *world) ReportFailure(_ string, problems []desired.Problem) {
	if !w.damaged {
		w.Errorf("%v", problems)
	}
}

type foreign struct{ w *world }

func (f foreign) List() []desired.Pod { return f.w.others }

type noObjects struct{}

func (noObjects) List() []local.Info { return nil }

func (w *world) Meta(_ context.Context, key string) (string, bool, error) {
	v, found := w.meta[key]
	return v, found, nil
}

func (w *world) SetMeta(_ context.Context, key, value string) error {
	w.meta[key] = value
	return nil
}

func (w *world) ChooseBundleImage(img format.Image) (image.BundleImage, error) {
	for _, m := range img.Manifests {
		if m.Platform == "linux/amd64" {
			out := image.BundleImage{Name: strings.Split(img.Name, ":")[0] + "@" + m.Digest.String()}
			out.Manifest.MediaType, out.Manifest.Digest, out.Manifest.Size = m.MediaType, m.Digest, m.Size
			return out, nil
		}
	}
	return image.BundleImage{}, errors.New("no image for this host")
}

func (w *world) HasBundleImage(_ context.Context, img image.BundleImage) bool {
	return w.imported[img.Name]
}

func (w *world) MissingBytes(_ context.Context, l format.Layout, img image.BundleImage) (bytes int64, err error) {
	p, err := format.ReadImage(l, img.Manifest)
	if err = errors.Join(err, w.noSpace); err != nil {
		return 0, err
	}
	for _, d := range p.Layers {
		bytes += d.Size
	}
	return bytes, nil
}

func (w *world) ImportBundleImage(_ context.Context, l format.Layout, img image.BundleImage, _ func(cri.ImportProgress)) error {
	if w.reads {
		p, err := format.ReadImage(l, img.Manifest)
		if err != nil {
			return err
		}
		for _, d := range p.Layers {
			if err := format.CopyBlob(io.Discard, l, d, format.MaxBlob); err != nil {
				return err
			}
		}
	}
	w.imported[img.Name] = true
	if w.during != nil {
		w.during()
	}
	return nil
}

func (w *world) PinImages(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pinned = slices.Compact(slices.Sorted(slices.Values(names)))
}

// folders returns the names below the directory of bundles.
func (w *world) folders() (names []string) {
	list, _ := os.ReadDir(filepath.Join(w.dir, foldersDir))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// check checks the state of a node after a start: exactly the bundles in the record have folders and pinned images.
func (w *world) check(n *Node, what string) {
	w.Helper()
	r := n.now()
	var want, images []string
	for _, b := range r.Keeps() {
		want = append(want, folderName(b.Digest))
		docs, err := n.read(b)
		if err != nil {
			w.Errorf("%s: the folder of %s: %v", what, b, err)
			continue
		}
		if _, err := n.decode(docs); err != nil {
			w.Errorf("%s: %s cannot be decoded: %v", what, b, err)
		}
		names, err := n.imageNames(docs.contents)
		w.must(err)
		images = slices.AppendSeq(images, maps.Values(names))
	}
	slices.Sort(want)
	if got := w.folders(); !slices.Equal(got, want) {
		w.Errorf("%s: folders %q, want %q", what, got, want)
	}
	if images = slices.Compact(slices.Sorted(slices.Values(images))); !slices.Equal(w.pinned, images) {
		w.Errorf("%s: pinned %q, want %q", what, w.pinned, images)
	}
	for _, name := range images {
		if !w.imported[name] {
			w.Errorf("%s: image %s of a bundle in the record was never imported", what, name)
		}
	}
}

func someDigest(c string) digest.Digest { return digest.Digest("sha256:" + strings.Repeat(c, 64)) }

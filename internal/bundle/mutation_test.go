package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/signed"
)

// A world is a signed bundle in memory, whose documents can be changed and signed again. It is a bundle.Layout.
type world struct {
	index []byte
	blobs map[digest.Digest][]byte
	key   ed25519.PrivateKey
}

func (w *world) Close() error { return nil }

func (w *world) Open(name string) (io.ReadCloser, int64, error) {
	data, ok := w.blobs[digest.Digest("sha256:"+strings.TrimPrefix(name, "blobs/sha256/"))]
	switch name {
	case ocispec.ImageLayoutFile:
		data, ok = []byte(`{"imageLayoutVersion":"1.0.0"}`), true
	case ocispec.ImageIndexFile:
		data, ok = w.index, true
	}
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

func (w *world) clone() *world { return &world{w.index, maps.Clone(w.blobs), w.key} }

func (w *world) policy() *bundle.Policy {
	return &bundle.Policy{Keys: []signed.Key{signed.PublicKey(w.key)}, Threshold: 1}
}

// signedTar returns a signed bundle as a tar.
func signedTar(t testing.TB, key ed25519.PrivateKey) []byte {
	t.Helper()
	dir := t.TempDir()
	bundletest.Source(t, dir)
	bundletest.Write(t, dir, bundletest.File{Name: "kubelet.yaml", Data: []byte("kind: KubeletConfiguration\n")})
	b := &build.Build{Dir: dir, Inventory: inventory.Read}
	a, err := b.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := bundle.NewSignature(a.Contents, a.ID, time.Unix(1_800_000_000, 0))
	s.Text.Sign(key)
	var out bytes.Buffer
	if err := errors.Join(a.SetSignature(s), a.WriteTar(&out)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if _, err := signed.NewKeyFile(file); err != nil {
		t.Fatal(err)
	}
	key, err := signed.ReadKeyFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func openTar(t testing.TB, data []byte) (bundle.Layout, error) {
	t.Helper()
	return openTarIn(t, t.TempDir(), data)
}

// openTarIn writes a tar to a directory, in place of the one before, and opens it.
func openTarIn(t testing.TB, dir string, data []byte) (bundle.Layout, error) {
	t.Helper()
	file := filepath.Join(dir, "bundle.tar")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return bundle.OpenLayout(file)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{blobs: map[digest.Digest][]byte{}, key: newKey(t)}
	data := signedTar(t, w.key)
	l, err := openTar(t, data)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	read := func(name string) []byte {
		r, _, err := l.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w.index = read("index.json")
	for _, m := range regexp.MustCompile(`blobs/sha256/([0-9a-f]{64})`).FindAllStringSubmatch(string(data), -1) {
		w.blobs[digest.Digest("sha256:"+m[1])] = read(m[0])
	}
	return w
}

// pair is how a document names a blob.
func pair(d digest.Digest, size int) []byte {
	return fmt.Appendf(nil, `"digest":"%s","size":%d`, d, size)
}

// set replaces a blob and its digest and size in all documents that name it.
func (w *world) set(old digest.Digest, data []byte) digest.Digest {
	before, now := pair(old, len(w.blobs[old])), digest.FromBytes(data)
	if now == old {
		return old
	}
	delete(w.blobs, old)
	w.blobs[now] = data
	after := pair(now, len(data))
	for {
		parent := digest.Digest("")
		for d, text := range w.blobs {
			if d != now && len(text) < bundle.MaxDocument && bytes.Contains(text, before) && (parent == "" || d < parent) {
				parent = d
			}
		}
		if parent == "" {
			break
		}
		w.set(parent, bytes.ReplaceAll(w.blobs[parent], before, after))
	}
	w.index = bytes.ReplaceAll(w.index, before, after)
	return now
}

// find returns the digest of the one document that contains all parts.
func (w *world) find(parts ...string) digest.Digest {
	for _, d := range slices.Sorted(maps.Keys(w.blobs)) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !bytes.Contains(w.blobs[d], []byte(p)) }) {
			return d
		}
	}
	return ""
}

var totalSize = regexp.MustCompile(`"size":[0-9]+}$`)

// resign fixes the total size of the contents, and signs the contents manifest.
func (w *world) resign() {
	text := w.find("islet bundle 1\n")
	if c := w.find(`"name":"kiosk"`); c != "" {
		for range 3 {
			total := 0
			for d, b := range w.blobs {
				above := bytes.Contains(b, []byte(`"artifactType"`)) || bytes.Contains(b, []byte(bundle.AnnotationVersion))
				if !above && d != text && string(b) != "{}" {
					total += len(b)
				}
			}
			c = w.set(c, totalSize.ReplaceAll(w.blobs[c], fmt.Appendf(nil, `"size":%d}`, total)))
		}
	}
	var root ocispec.Index
	if d := w.find(bundle.AnnotationVersion, `"manifests"`); d == "" || json.Unmarshal(w.blobs[d], &root) != nil {
		return
	}
	for _, m := range root.Manifests {
		if m.Annotations[bundle.AnnotationPart] == bundle.ArtifactContents {
			s := bundle.NewSignature(&bundle.Contents{Name: "kiosk", Number: 42}, m.Digest, time.Unix(1_800_000_000, 0))
			s.Text.Sign(w.key)
			w.set(text, s.Text.Bytes())
			return
		}
	}
}

var (
	scalar = regexp.MustCompile(`"[^"]*"|-?[0-9]+`)
	member = regexp.MustCompile(`"[a-zA-Z0-9]+":("[^"]*"|-?[0-9]+)`)
)

// hostile values of JSON.
func hostileValues() []string {
	return []string{
		`"../../../etc/passwd"`, `"/etc/passwd"`, `"a\u0000b"`, `"\u001b[2J"`, `""`, `"."`, `".."`, `"sha256:"`, `"sha256:../../../../../etc/passwd"`,
		`"sha512:` + strings.Repeat("0", 128) + `"`, `"sha256:` + strings.Repeat("0", 64) + `"`, `"md5:d41d8cd98f00b204e9800998ecf8427e"`,
		`-1`, `0`, `1`, `9223372036854775807`, `9223372036854775808`, `1e300`, `1048577`, `4294967296`, `null`, `true`, `[]`, `{}`, `[{}]`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		strings.Repeat(`{"a":`, 5_000) + "1" + strings.Repeat("}", 5_000), "[" + strings.Repeat("{},", 100_000) + "{}]",
		`"` + strings.Repeat("a", 500_000) + `"`, `"application/vnd.oci.image.index.v1+json"`, `"application/vnd.oci.image.manifest.v1+json"`,
		`"` + bundle.MediaProgram + `"`, `"` + bundle.MediaSealed + `"`, `"linux/amd64"`, `"KIOSK"`, `"web.yaml"`, `"edge.yaml"`,
	}
}

// mutateText changes a document in one place.
func mutateText(r *rand.Rand, text []byte) []byte {
	pick := func(re *regexp.Regexp) []int {
		all := re.FindAllIndex(text, -1)
		if len(all) == 0 {
			return []int{0, 0}
		}
		return all[r.IntN(len(all))]
	}
	splice := func(at []int, with []byte) []byte { return slices.Concat(text[:at[0]], with, text[at[1]:]) }
	values := hostileValues()
	value := []byte(values[r.IntN(len(values))])
	switch r.IntN(8) {
	case 0, 1, 2: // another value
		return splice(pick(scalar), value)
	case 3: // the value of another field
		from := pick(scalar)
		return splice(pick(scalar), text[from[0]:from[1]])
	case 4: // a field twice
		at := pick(member)
		m := slices.Clone(text[at[0]:at[1]])
		name, _, _ := bytes.Cut(m, []byte(":"))
		return splice(at, slices.Concat(name, []byte(":"), value, []byte(","), m))
	case 5: // an element twice, or without its end
		at := bytes.IndexByte(text, '{')
		for range r.IntN(6) {
			if next := bytes.IndexByte(text[at+1:], '{'); next >= 0 {
				at += 1 + next
			}
		}
		end := bytes.IndexByte(text[max(at, 0):], '}')
		if at < 0 || end < 0 {
			return nil
		}
		element := append(slices.Clone(text[at:at+end+1]), ',')
		return splice([]int{at, at}, bytes.Repeat(element, 1+r.IntN(2)*r.IntN(4000)))
	case 6: // other bytes
		out := slices.Clone(text)
		for range 1 + r.IntN(4) {
			if len(out) > 0 {
				out[r.IntN(len(out))] ^= byte(1 << r.IntN(8))
			}
		}
		return out
	default: // white space, or an end
		if r.IntN(2) == 0 {
			return append(slices.Clone(text), ' ')
		}
		return text[:r.IntN(len(text)+1)]
	}
}

// read uses everything that a reader offers. It returns what the bundle would make a node do: the bytes of the files and of the images.
func read(l bundle.Layout, policy *bundle.Policy) (map[string]digest.Digest, error) {
	ctx := context.Background()
	b, err := bundle.Open(l, policy)
	if err != nil {
		return nil, err
	}
	effect := map[string]digest.Digest{"": b.ID}
	if err := b.Verify(ctx, func(int64, int64) {}); err != nil {
		return nil, err
	}
	var files []finding.File
	for _, f := range b.Files {
		data, err := b.ReadFile(f)
		if err != nil {
			return nil, err
		}
		effect[f.Name] = digest.FromBytes(data)
		switch f.MediaType {
		case bundle.MediaManifest:
			files = append(files, finding.File{Name: f.Name, Data: data})
		case bundle.MediaSealed:
			if _, err := sealed.Parse(data); err != nil {
				return nil, err
			}
		}
	}
	inv, err := inventory.Read(files)
	if err != nil {
		return nil, err
	}
	node := &bundle.Node{Name: "a", Platform: "linux/amd64"}
	if _, err := b.Need(ctx, node); err != nil {
		return nil, err
	}
	b.Missing(inv)
	b.Unfit(inv, node, time.Unix(1_800_000_000, 0))
	a, err := b.Artefact(ctx)
	if err != nil {
		return nil, err
	}
	return effect, a.WriteTar(io.Discard)
}

// maxMemory is the memory that a reader may allocate in all for a bundle of this size. So it is also a limit of the memory at any time.
const maxMemory = 64 << 20

// checkHarmless reads a bundle. It fails the test if the reader allocates too much memory, or accepts names that are dangerous.
func checkHarmless(t *testing.T, what string, l bundle.Layout, policy *bundle.Policy) (effect map[string]digest.Digest, err error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	effect, err = read(l, policy)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > maxMemory {
		t.Errorf("%s: %d MiB were allocated: %v", what, n>>20, err)
	}
	for name := range effect {
		if strings.ContainsAny(name, "/\\\x00") || name == "." || name == ".." {
			t.Errorf("%s: has the file %q", what, name)
		}
	}
	return effect, err
}

// mutations returns how many bundles TestMutations reads.
func mutations() int {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		return 60
	}
	return 20_000
}

// TestMutations reads bundles with hostile changes. Half of them are signed again after the change, as by a signer with bad intentions or a
// broken tool. A bundle that is not signed again must be rejected, or have exactly the effect of the original one.
func TestMutations(t *testing.T) {
	original := newWorld(t)
	tar := signedTar(t, original.key)
	want, err := read(original, original.policy())
	if err != nil {
		t.Fatal(err)
	}
	accepted, dir := 0, t.TempDir()
	for i := range mutations() {
		r := rand.New(rand.NewPCG(uint64(i), 30))
		what := fmt.Sprintf("mutation %d", i)
		w := original.clone()
		all := slices.Sorted(maps.Keys(w.blobs))
		d := all[r.IntN(len(all))]
		var l bundle.Layout = w
		switch i % 4 {
		case 0, 1:
			w.set(d, mutateText(r, w.blobs[d]))
			w.resign()
		case 2: // the digests are right, the signature is not
			w.set(d, mutateText(r, w.blobs[d]))
		case 3: // the bytes of the tar
			if l, err = openTarIn(t, dir, mutateTar(r, tar)); err != nil {
				continue
			}
		}
		got, err := checkHarmless(t, what, l, w.policy())
		l.Close()
		if err == nil && i%4 >= 2 && !maps.Equal(got, want) {
			t.Errorf("%s: a change without a signature has an effect: %v instead of %v", what, got, want)
		}
		if err == nil {
			accepted++
		}
	}
	t.Logf("%d bundles were accepted", accepted)
}

// mutateTar changes bytes of a tar, mostly of its headers, or cuts or repeats a part.
func mutateTar(r *rand.Rand, tar []byte) []byte {
	out := slices.Clone(tar)
	block := r.IntN(len(out)/512) * 512
	switch r.IntN(4) {
	case 0:
		return out[:r.IntN(len(out))]
	case 1:
		return slices.Insert(out, block, out[block:min(block+512*(1+r.IntN(4)), len(out))]...)
	case 2:
		return slices.Delete(out, block, min(block+512*(1+r.IntN(4)), len(out)))
	default:
		for range 1 + r.IntN(3) {
			out[block+r.IntN(512)] ^= byte(1 << r.IntN(8))
		}
		return out
	}
}

package bundletest

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/signed"
)

// A Mutable is a signed bundle in memory, whose documents can be changed and signed again. It is a bundle.Layout.
type Mutable struct {
	tar   []byte // the original one
	index []byte
	blobs map[digest.Digest][]byte
	key   ed25519.PrivateKey
}

// NewMutable returns the bundle in a tar that was signed with a key.
func NewMutable(t testing.TB, data []byte, key ed25519.PrivateKey) *Mutable {
	t.Helper()
	m := &Mutable{tar: data, blobs: map[digest.Digest][]byte{}, key: key}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return m
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch name, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/"); {
		case isBlob && name != "":
			m.blobs[digest.NewDigestFromEncoded(digest.SHA256, name)] = b
		case h.Name == ocispec.ImageIndexFile:
			m.index = b
		}
	}
}

// Close does nothing.
func (m *Mutable) Close() error { return nil }

// Open opens a file of the layout.
func (m *Mutable) Open(name string) (io.ReadCloser, int64, error) {
	data, ok := m.blobs[digest.Digest("sha256:"+strings.TrimPrefix(name, "blobs/sha256/"))]
	switch name {
	case ocispec.ImageLayoutFile:
		data, ok = []byte(`{"imageLayoutVersion":"1.0.0"}`), true
	case ocispec.ImageIndexFile:
		data, ok = m.index, true
	}
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

// Policy returns the policy that accepts the key of the bundle.
func (m *Mutable) Policy() *bundle.Policy {
	return &bundle.Policy{Keys: []signed.Key{signed.PublicKey(m.key)}, Threshold: 1}
}

// Mutations returns how many mutations a test applies: few, or 20,000 in the long form.
func Mutations(few int) int {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		return few
	}
	return 20_000
}

// Mutate returns mutation i of the bundle: it has one hostile change. Half of the mutations are signed again after the change, as by a
// signer with bad intentions or a broken tool. Another quarter has the right digests and sizes, but not the right signature. The last
// quarter is returned as a tar with other bytes, and the result mutant is then nil.
func (m *Mutable) Mutate(i int) (mutant *Mutable, isSigned bool, tar []byte) {
	r := rand.New(rand.NewPCG(uint64(i), 30))
	out := &Mutable{m.tar, m.index, maps.Clone(m.blobs), m.key}
	all := slices.Sorted(maps.Keys(out.blobs))
	d := all[r.IntN(len(all))]
	if i%4 == 3 {
		return nil, false, mutateTar(r, m.tar)
	}
	out.set(d, mutateText(r, out.blobs[d]))
	if i%4 < 2 {
		out.resign()
	}
	return out, i%4 < 2, nil
}

// pair returns the fields of a descriptor that name a blob: its digest and its size.
func pair(d digest.Digest, size int) []byte {
	return fmt.Appendf(nil, `"digest":"%s","size":%d`, d, size)
}

// set replaces a blob and its digest and size in all documents that name it.
func (m *Mutable) set(old digest.Digest, data []byte) digest.Digest {
	before, now := pair(old, len(m.blobs[old])), digest.FromBytes(data)
	if now == old {
		return old
	}
	delete(m.blobs, old)
	m.blobs[now] = data
	after := pair(now, len(data))
	for {
		parent := digest.Digest("")
		for d, text := range m.blobs {
			if d != now && len(text) < bundle.MaxDocument && bytes.Contains(text, before) && (parent == "" || d < parent) {
				parent = d
			}
		}
		if parent == "" {
			break
		}
		m.set(parent, bytes.ReplaceAll(m.blobs[parent], before, after))
	}
	m.index = bytes.ReplaceAll(m.index, before, after)
	return now
}

// find returns the digest of the one document that contains all parts.
func (m *Mutable) find(parts ...string) digest.Digest {
	for _, d := range slices.Sorted(maps.Keys(m.blobs)) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !bytes.Contains(m.blobs[d], []byte(p)) }) {
			return d
		}
	}
	return ""
}

var totalSize = pattern.New(`"size":[0-9]+}$`)

// contents returns the digests of the contents manifest and of its config, or empty ones if they cannot be decoded.
func (m *Mutable) contents() (manifest, config digest.Digest) {
	var root ocispec.Index
	if json.Unmarshal(m.blobs[m.find(bundle.AnnotationVersion, `"manifests"`)], &root) != nil {
		return "", ""
	}
	for _, d := range root.Manifests {
		var c ocispec.Manifest
		if d.Annotations[bundle.AnnotationPart] == bundle.ArtifactContents && json.Unmarshal(m.blobs[d.Digest], &c) == nil {
			return d.Digest, c.Config.Digest
		}
	}
	return "", ""
}

// resign fixes the total size of the contents, and signs the contents manifest under the name and number that it has.
func (m *Mutable) resign() {
	text := m.find("islet bundle 1\n")
	for range 3 {
		total := 0
		for d, b := range m.blobs {
			above := bytes.Contains(b, []byte(`"artifactType"`)) || bytes.Contains(b, []byte(bundle.AnnotationVersion))
			if !above && d != text && string(b) != "{}" {
				total += len(b)
			}
		}
		_, config := m.contents()
		if m.blobs[config] == nil {
			return
		}
		m.set(config, totalSize().ReplaceAll(m.blobs[config], fmt.Appendf(nil, `"size":%d}`, total)))
	}
	manifest, config := m.contents()
	c := &bundle.Contents{}
	if json.Unmarshal(m.blobs[config], c) != nil || c.Validate() != nil {
		c = &bundle.Contents{Name: "kiosk", Number: 42}
	}
	s := bundle.NewSignature(c, manifest, time.Unix(1_800_000_000, 0))
	s.Text.Sign(m.key)
	m.set(text, s.Text.Bytes())
}

var (
	scalar = pattern.New(`"[^"]*"|-?[0-9]+`)
	member = pattern.New(`"[a-zA-Z0-9]+":("[^"]*"|-?[0-9]+)`)
)

// hostileValues returns hostile values of JSON.
func hostileValues() []string {
	return []string{
		`"../../../etc/passwd"`, `"/etc/passwd"`, `"a\u0000b"`, `"\u001b[2J"`, `""`, `"."`, `".."`, `"sha256:"`,
		`"sha256:../../../../../etc/passwd"`,
		`"sha512:` + strings.Repeat("0", 128) + `"`, `"sha256:` + strings.Repeat("0", 64) + `"`, `"md5:d41d8cd98f00b204e9800998ecf8427e"`,
		`-1`, `0`, `1`, `9223372036854775807`, `9223372036854775808`, `1e300`, `1048577`, `4294967296`, `null`, `true`, `[]`, `{}`, `[{}]`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		strings.Repeat(`{"a":`, 5_000) + "1" + strings.Repeat("}", 5_000), "[" + strings.Repeat("{},", 100_000) + "{}]",
		`"` + strings.Repeat("a", 500_000) + `"`, `"application/vnd.oci.image.index.v1+json"`,
		`"application/vnd.oci.image.manifest.v1+json"`,
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
		return splice(pick(scalar()), value)
	case 3: // the value of another field
		from := pick(scalar())
		return splice(pick(scalar()), text[from[0]:from[1]])
	case 4: // a field twice
		at := pick(member())
		old := slices.Clone(text[at[0]:at[1]])
		name, _, _ := bytes.Cut(old, []byte(":"))
		return splice(at, slices.Concat(name, []byte(":"), value, []byte(","), old))
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

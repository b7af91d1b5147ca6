package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

// signedTar returns a signed bundle with a file of each kind as a tar.
func signedTar(t testing.TB, key ed25519.PrivateKey) []byte {
	t.Helper()
	dir := t.TempDir()
	bundletest.FullSource(t, dir, "amd64")
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
		case bundle.MediaRelease:
			if _, err := release.Parse(data); err != nil {
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

// TestMutations reads bundles with hostile changes. A bundle that is not signed again after the change must be rejected, or have exactly
// the effect of the original one. A node applies such bundles in agent/change/bundle.
func TestMutations(t *testing.T) {
	key := newKey(t)
	original := bundletest.NewMutable(t, signedTar(t, key), key)
	want, err := read(original, original.Policy())
	if err != nil {
		t.Fatal(err)
	}
	accepted, dir := 0, t.TempDir()
	for i := range bundletest.Mutations(60) {
		what := fmt.Sprintf("mutation %d", i)
		mutant, isSigned, tar := original.Mutate(i)
		var l bundle.Layout = mutant
		if tar != nil {
			if l, err = openTarIn(t, dir, tar); err != nil {
				continue
			}
		}
		got, err := checkHarmless(t, what, l, original.Policy())
		l.Close()
		if err == nil && !isSigned && !maps.Equal(got, want) {
			t.Errorf("%s: a change without a signature has an effect: %v instead of %v", what, got, want)
		}
		if err == nil {
			accepted++
		}
	}
	t.Logf("%d bundles were accepted", accepted)
}

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

// TestSign checks that a node accepts archives that this program has signed.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	var keys []release.Key
	var files []string
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(dir, name)
		if err := run([]string{"key", file}, io.Discard, time.Now()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		if err := run([]string{"key", file}, io.Discard, time.Now()); err == nil {
			t.Error("a key was overwritten")
		}
		k, err := signed.ReadKeyFile(file)
		if err != nil {
			t.Fatal(err)
		}
		keys, files = append(keys, release.Key(k[32:])), append(files, file)
	}
	archive := filepath.Join(dir, "islet.tar.gz")
	if err := os.WriteFile(archive, []byte("archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(append([]string{"release", "0.2.0", "arm64", archive}, files...), io.Discard, time.Now()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(archive + ".release")
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.Parse(text)
	if err != nil || r.Version != "0.2.0" || r.Arch != "arm64" || r.VerifySignatures(keys, 2) != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if err := r.Save(strings.NewReader("archive"), filepath.Join(dir, "saved")); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{}, {"release", "0.2.0", "arm64", archive}, {"release", "v1", "arm64", archive, files[0]}, {"release", "0.2.0", "arm64", archive, archive}, {"release", "0.2.0", "arm64", dir + "/none", files[0]}} {
		if err := run(args, io.Discard, time.Now()); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

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

// TestVerify checks that sign verify names the keys that have signed an archive, and accepts no other archive and no other key.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	sign := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(args, &out, time.Now())
		return out.String(), err
	}
	public := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		out, err := sign("key", path(name))
		if err != nil {
			t.Fatal(err)
		}
		public[name] = out
	}
	if out, err := sign("public", path("a"), path("b")); err != nil || out != public["a"]+public["b"] {
		t.Errorf("%q, %v", out, err)
	}
	id := func(name string) string {
		k, err := signed.ParseKey(strings.TrimSpace(public[name]))
		if err != nil {
			t.Fatal(err)
		}
		return k.ID()
	}
	archive := path("islet.tar.gz")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(archive, "archive")
	if _, err := sign("release", "0.2.0", "arm64", archive, path("a"), path("b")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		archive, keys, want, bad string
	}{
		"both keys":       {"archive", public["a"] + "# b\n" + public["b"], "version 0.2.0 for arm64, signed by " + id("a") + ", " + id("b") + "\n", ""},
		"one of them":     {"archive", public["b"] + public["c"], "signed by " + id("b") + "\n", ""},
		"another key":     {"archive", public["c"], "", "no key"},
		"no key":          {"archive", "", "", "no key"},
		"a private key":   {"archive", "islet-ed25519-private x", "", "keys"},
		"another archive": {"archivE", public["a"], "", "not the archive that was signed"},
		"a torn archive":  {"archiv", public["a"], "", "not the archive that was signed"},
	} {
		write(archive, c.archive)
		write(path("keys"), c.keys)
		out, err := sign("verify", archive, path("keys"))
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) || !strings.HasSuffix(out, c.want) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if out, err := sign("public", archive); err == nil {
		t.Errorf("a public key of an archive: %q", out)
	}
}

// TestHelp checks that --help of each command succeeds and prints its usage, and that the usage of rollout has its flags, also in the error
// of a wrong command line.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"index", "--help"}, {"rollout", "--help"}, {"rollout", "-h"}} {
		var out strings.Builder
		err := run(args, &out, time.Now())
		if err != nil || !strings.HasPrefix(out.String(), "usage:") || !strings.Contains(out.String(), rolloutUsage) {
			t.Errorf("%q: %v, %s", args, err, out.String())
		}
	}
	var help strings.Builder
	if err := run([]string{"rollout", "--help"}, &help, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--nodes", "--key", "--pause", "--resume"} {
		if !strings.Contains(rolloutUsage, flag) || !strings.Contains(help.String(), flag) {
			t.Errorf("%s is missing", flag)
		}
	}
	for _, args := range [][]string{{}, {"unknown"}, {"rollout"}, {"rollout", "x", "--wrong"}, {"rollout", "x", "--resume"}} {
		var out strings.Builder
		if err := run(args, &out, time.Now()); err == nil || !strings.Contains(err.Error(), rolloutUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

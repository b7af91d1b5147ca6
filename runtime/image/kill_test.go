package image

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These environment variables are set in the process that TestKill kills. They contain the paths of its storage, the archive and the
// registry configuration.
const (
	envDir     = "ISLET_TEST_DIR"
	envArchive = "ISLET_TEST_ARCHIVE"
	envCerts   = "ISLET_TEST_CERTS"
)

// TestKilled is not a test. TestKill starts it in another process and kills this process. It imports, pulls and removes images in an
// endless loop.
func TestKilled(t *testing.T) {
	dir := os.Getenv(envDir)
	if dir == "" {
		return
	}
	s := serviceOn(t, openDaemon(t, dir), dir, func(c *Config) { c.CertsDir = os.Getenv(envCerts) })
	if err := s.dropUnfinished(withNamespace(t.Context())); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(os.Getenv(envArchive))
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("up\n")
	for {
		for _, imp := range importers {
			if _, err := imp(t, s, data); err != nil {
				t.Fatal(err)
			}
			if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
				t.Fatal(err)
			}
			for _, ref := range []string{"archived:1", "registry.example/demo:1"} {
				if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: ref}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestKill kills a process at random moments. The next process must use or remove all data of the killed process. No incomplete image may
// exist.
func TestKill(t *testing.T) {
	dir := onSmallDisk(t, 1<<30)
	hub := newServer(t, false)
	pulled := imageOf(t, "1000", layerOf(t, file{name: "hello", body: "pulled"}, file{name: "data", body: noise(31, 2<<20)}), layerOf(t, file{name: "top", body: "top"}))
	archived := imageOf(t, "1000", layerOf(t, file{name: "hello", body: "archived"}, file{name: "data", body: noise(32, 2<<20)}))
	hub.push(t, "demo:1", pulled)
	certs := plainDir(t, hub.URL)
	tmp := t.TempDir()
	archive := filepath.Join(tmp, "archive.tar")
	writeFile(t, archive, dockerArchive(t, map[string]v1.Image{"archived:1": archived}))

	for range 12 {
		child := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
		child.Env = append(os.Environ(), "TMPDIR="+tmp, envDir+"="+dir, envArchive+"="+archive, envCerts+"="+certs)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		up := make([]byte, 3)
		if _, err := out.Read(up); err != nil || string(up) != "up\n" {
			t.Errorf("the process did not start: %q, %v", up, err)
		}
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond) // the random time is intended
		child.Process.Kill()
		child.Wait()
		if t.Failed() {
			return
		}
	}

	s := serviceOn(t, newDaemon(t, dir), dir, func(c *Config) { c.CertsDir = certs })
	for ref, body := range map[string]string{"archived:1": "archived", "registry.example/demo:1": "pulled"} {
		if _, err := s.Resolve(t.Context(), ref); err == nil {
			wantFiles(t, s, ref, map[string]string{"hello": body})
		}
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := importers["stream"](t, s, data); err != nil {
		t.Fatal(err)
	}
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, s, "archived:1", map[string]string{"hello": "archived"})
	wantFiles(t, s, "registry.example/demo:1", map[string]string{"hello": "pulled", "top": "top"})
	collect(t, s)
	if got := left(t, s); count(got, "lease ")+count(got, "download ") > 0 || count(got, "snapshot ") != 3 || count(got, "blob ") != 4 {
		t.Errorf("left over: %q", got)
	}
}

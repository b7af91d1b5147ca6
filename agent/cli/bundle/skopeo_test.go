package bundle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// skopeoPrograms returns the folder with the programs of test/skopeo.sh. make test-long has them, and no other test needs them.
func skopeoPrograms(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ISLET_SKOPEO")
	if dir != "" {
		return dir
	}
	if os.Getenv("ISLET_TEST_LONG") != "" {
		t.Fatal("ISLET_SKOPEO is not set: make skopeo, as make test-long does")
	}
	t.Skip("ISLET_SKOPEO is not set: make test-skopeo runs this test")
	return ""
}

// stockRegistry starts Docker's registry, and returns its address. It listens at a socket, so that no other program can take its port.
func stockRegistry(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s/data}}\n"+
		"http: {net: unix, addr: %s, relativeurls: true}\n", dir, socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.Command(program, "serve", config)
	run.Stderr = os.Stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	for {
		c, err := dial(ctx, "", "")
		if err == nil {
			c.Close()
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	target := &url.URL{Scheme: "http", Host: "registry"}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	s := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// rootOf returns the root of a layout.
func rootOf(t *testing.T, dir string) ocispec.Descriptor {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	var index ocispec.Index
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%s: %v, %v", dir, index.Manifests, err)
	}
	d := index.Manifests[0]
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// TestSkopeo copies a signed bundle with skopeo from a layout to Docker's registry, from there to another repository, and back to a layout
// and an archive. Every copy has the digest of the original, and its signatures are right. So has a bundle that islet itself has written to
// the registry.
func TestSkopeo(t *testing.T) {
	dir := skopeoPrograms(t)
	host := stockRegistry(t, filepath.Join(dir, "docker-registry"))
	o := newOffice(t)
	o.write("policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
	copyBundle := func(from, to string) {
		t.Helper()
		out, err := exec.Command(filepath.Join(dir, "skopeo"), "--policy", o.path("policy.json"), "copy", "--all", "--preserve-digests",
			"--src-tls-verify=false", "--dest-tls-verify=false", from, to).CombinedOutput()
		if err != nil {
			t.Fatalf("skopeo copy %s %s: %v: %s", from, to, err, out)
		}
	}
	o.run(0, "keys new @first.key")
	o.run(0, "keys new @second.key")
	o.run(0, "keys add @keys @first.key @second.key")
	o.run(0, "build -q @kiosk -o @layout/")
	o.run(0, "sign -q @layout/ --key @first.key")
	o.run(0, "sign -q @layout/ --key @second.key")
	want := rootOf(t, o.path("layout"))
	verify := func(name string) {
		t.Helper()
		o.run(0, "verify -q "+name+" --keys @keys --threshold 2")
		o.run(0, "diff @layout/ "+name, "the same contents: kiosk number 42")
	}
	docker := "docker://" + host
	copyBundle("oci:"+o.path("layout"), docker+"/team/kiosk:42")
	verify("oci://" + host + "/team/kiosk:42")
	copyBundle(docker+"/team/kiosk:42", docker+"/other/kiosk:stable")
	copyBundle(docker+"/other/kiosk:stable", "oci:"+o.path("back"))
	copyBundle(docker+"/other/kiosk:stable", "oci-archive:"+o.path("back.tar"))
	verify("@back/")
	verify("@back.tar")
	if got := rootOf(t, o.path("back")); got.Digest != want.Digest || got.Size != want.Size || got.MediaType != want.MediaType {
		t.Errorf("the root is %+v after the copies, and was %+v", got, want)
	}
	copyBundle("oci-archive:"+o.path("back.tar"), docker+"/team/kiosk:43")
	verify("oci://" + host + "/team/kiosk:43")

	own := "oci://" + host + "/own/kiosk:42"
	id := identity(o.run(0, "build -q @kiosk -o "+own))
	o.run(0, "sign -q "+own+" --key @first.key --identity "+id)
	o.run(0, "sign -q "+own+" --key @second.key --keys @keys --identity "+id)
	copyBundle(docker+"/own/kiosk:42", "oci:"+o.path("own"))
	verify("@own/")
}

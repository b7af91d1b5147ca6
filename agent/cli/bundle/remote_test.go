package bundle_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	hub "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// TestBundleInRegistry follows a bundle through a registry that requires the login of docker: build, show, two signers, verification, and
// the next number. Without the login the build fails.
func TestBundleInRegistry(t *testing.T) {
	inner := hub.New(hub.Logger(log.New(io.Discard, "", 0)))
	var mu sync.Mutex
	uploads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if r.Method == http.MethodPost {
			uploads++
		}
		mu.Unlock()
		if user, pass, _ := r.BasicAuth(); user != "anna" || pass != "open" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	o := newOffice(t)
	host := strings.TrimPrefix(server.URL, "http://")
	at := "oci://" + host + "/team/kiosk"
	o.run(1, "build -q @kiosk -o "+at+":42", "docker login")
	login := base64.StdEncoding.EncodeToString([]byte("anna:open"))
	o.write("docker/config.json", `{"auths":{"`+host+`":{"auth":"`+login+`"}}}`)
	o.getenv = func(name string) string {
		if name == "DOCKER_CONFIG" {
			return o.path("docker")
		}
		return ""
	}
	o.run(0, "keys new @first.key")
	o.run(0, "keys new @second.key")
	o.run(0, "keys add @keys @first.key @second.key")
	first := identity(o.run(0, "build -q @kiosk -o "+at+":42", "kiosk number 42: "))
	o.run(0, "build -q @kiosk -o @kiosk.tar", first)
	o.run(0, "show "+at+":42", "nobody", "web.yaml", "localhost/db:1")
	o.run(0, "sign -q "+at+":42 --key @first.key --identity "+first, first)
	o.run(1, "verify -q "+at+":42 --keys @keys --threshold 2", "signed by 1 of the keys of --keys")
	o.run(0, "sign -q "+at+":42 --key @second.key --keys @keys --identity "+first)
	o.run(0, "verify -q "+at+":42 --keys @keys --threshold 2", "1 pod, 1 object, 2 images")
	o.run(0, "diff @kiosk.tar "+at+":42", "the same contents: kiosk number 42")
	o.run(0, "sign -q "+at+":42 --key @first.key -o @signed.tar --keys @keys --identity "+first)
	o.run(0, "verify -q @signed.tar --keys @keys --threshold 2")
	before := uploads
	o.run(0, "build -q @kiosk -o "+at+":43 --number 43")
	if uploads-before != 1 { // contents.json; manifests need no upload
		t.Errorf("%d blobs were sent again for another number", uploads-before)
	}
	o.run(0, "diff "+at+":42 "+at+":43", "~ number: 42 -> 43")
	o.run(1, "show "+at+":44", "team/kiosk:44")
	o.run(1, "show oci://kiosk", "complete reference")
	if text := o.run(1, "show oci://"+host+"/team/none:1"); strings.Contains(text, "open") || strings.Contains(text, login) {
		t.Error("the password is printed")
	}
}

// identity returns the identity of the bundle that build has printed.
func identity(out string) string {
	fields := strings.Fields(out)
	return fields[len(fields)-1]
}

// TestSignInHostileRegistry checks that nobody signs a bundle that a registry, or who may write to it, has put into the place of another
// one with the same name and number. It also checks that a signer does not confirm the time in signatures that others have invented.
func TestSignInHostileRegistry(t *testing.T) {
	server := httptest.NewServer(hub.New(hub.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	o := newOffice(t)
	at := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/team/kiosk:42"
	for _, name := range []string{"anna.key", "ben.key", "other.key"} {
		o.run(0, "keys new @"+name)
	}
	o.run(0, "keys add @keys @anna.key @ben.key")
	good := identity(o.run(0, "build -q @kiosk -o "+at))
	o.run(2, "sign -q "+at+" --key @anna.key", "--identity")
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "{a: x}", "{a: evil}", 1))
	evil := identity(o.run(0, "build -q @kiosk -o "+at))
	o.run(1, "sign -q "+at+" --key @anna.key --identity "+good, evil, good)
	o.run(0, "show "+at, "nobody")
	o.write("kiosk/manifests/web.yaml", bundletest.Pod)
	o.run(0, "build -q @kiosk -o "+at, good)
	o.run(0, "sign -q "+at+" --key @other.key --identity "+good)
	o.run(2, "sign -q "+at+" --key @ben.key --identity "+good, "--keys")
	o.run(1, "sign -q "+at+" --key @ben.key --keys @keys --identity "+good, "unknown keys")
	o.run(0, "build -q @kiosk -o @kiosk.tar")
	o.run(1, "sign -q @kiosk.tar --key @ben.key --identity "+evil, good)
	o.run(0, "sign -q @kiosk.tar --key @other.key")
	o.run(1, "sign -q @kiosk.tar --key @ben.key --keys @keys", "unknown keys")
}

// push writes an image to a registry, with the tag of its name.
func push(t *testing.T, url string, img bundletest.Image) {
	t.Helper()
	_, name, _ := strings.Cut(img.Name, "/")
	repository, tag, _ := strings.Cut(name, ":")
	send := func(method, path, mediaType string, data []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+"/v2/"+repository+path, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", mediaType)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode/100 != 2 {
			t.Fatalf("%s %s: %s", method, path, res.Status)
		}
	}
	var manifests, indexes [][]byte
	for _, f := range bundletest.OCI(t, img) {
		sum, isBlob := strings.CutPrefix(f.Name, "blobs/sha256/")
		switch {
		case !isBlob:
		case bytes.Contains(f.Data, []byte(`"manifests":`)):
			indexes = append(indexes, f.Data)
		case bytes.Contains(f.Data, []byte(`"layers":[`)):
			manifests = append(manifests, f.Data)
		default:
			send(http.MethodPost, "/blobs/uploads/?digest=sha256:"+sum, "application/octet-stream", f.Data)
		}
	}
	for _, m := range manifests {
		send(http.MethodPut, "/manifests/"+digest.FromBytes(m).String(), ocispec.MediaTypeImageManifest, m)
	}
	for _, m := range indexes {
		send(http.MethodPut, "/manifests/"+tag, ocispec.MediaTypeImageIndex, m)
	}
}

// TestImagesFromRegistry checks that a build takes images of the lock file from their registry by digest, so that it gives the same bytes
// after the tag has moved, that it takes no image without the lock file, and that it fails if the registry has other bytes.
func TestImagesFromRegistry(t *testing.T) {
	inner := hub.New(hub.Logger(log.New(io.Discard, "", 0)))
	var damaged atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if damaged.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			io.WriteString(w, strings.Repeat("x", 4<<10))
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	name := strings.TrimPrefix(server.URL, "http://") + "/shop/web:1"
	platforms := []string{"linux/amd64", "linux/arm64", "linux/riscv64"}
	push(t, server.URL, bundletest.Image{Name: name, Platforms: platforms, Layers: []string{"base", "first"}})
	o := newOffice(t)
	if err := os.RemoveAll(o.path("kiosk/images/web")); err != nil {
		t.Fatal(err)
	}
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "localhost/web:1", name, 1))
	o.run(1, "build -q @kiosk -o @first.tar", "image "+name+": ", "islet bundle lock")
	o.run(0, "lock -q @kiosk", "+ "+name+" sha256:")
	o.run(0, "lock -q @kiosk", "nothing changes")
	locked := o.read("kiosk/images.lock")
	o.run(0, "build -q @kiosk -o @first.tar", "kiosk number 42: ")
	o.run(0, "verify -q @first.tar", "2 images")
	o.run(0, "show @first.tar", name)
	push(t, server.URL, bundletest.Image{Name: name, Platforms: platforms, Layers: []string{"base", "second"}})
	o.run(0, "lock -q @kiosk", "nothing changes")
	o.run(0, "build -q @kiosk -o @again.tar")
	if o.read("first.tar") != o.read("again.tar") {
		t.Error("a tag that moved changes the bundle")
	}
	damaged.Store(true)
	o.run(1, "build -q @kiosk -o @damaged.tar")
	if _, err := os.Stat(o.path("damaged.tar")); err == nil {
		t.Error("a bundle has the bytes of a damaged registry")
	}
	damaged.Store(false)
	o.run(0, "lock -q @kiosk --update", "~ "+name+" sha256:")
	o.run(0, "build -q @kiosk -o @second.tar")
	o.run(0, "diff @first.tar @second.tar", name)
	for _, text := range []string{"a: b", "", "images: {}", strings.Replace(locked, "sha256:", "sha256:0", 1), strings.Replace(locked, name, "web", 1),
		strings.Replace(locked, "BundleLock", "Bundle", 1), "a: " + strings.Repeat("[", 100_000)} {
		o.write("kiosk/images.lock", text)
		o.run(1, "build -q @kiosk -o @wrong.tar", "images.lock: ")
	}
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "localhost/web:1", "localhost/db:1", 1))
	o.write("kiosk/images.lock", locked)
	o.run(0, "lock -q @kiosk", "- "+name)
}

package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	agekeys "filippo.io/age"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	rules "github.com/islet-edge/islet/edge/check"
	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/release"
)

// office is a machine without an agent on which bundles are made.
type office struct {
	t   *testing.T
	dir string
	now time.Time

	getenv func(string) string // may be nil
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)}
	bundletest.Source(t, o.path("kiosk"))
	return o
}

func (o *office) path(name string) string { return filepath.Join(o.dir, name) }

// run runs a command line, in which @ stands for the directory. It checks the exit code, and that the output contains all parts.
func (o *office) run(code int, line string, parts ...string) string {
	o.t.Helper()
	var out bytes.Buffer
	e := env(nil, strings.NewReader(""), &out, &out)
	e.Check, e.Inventory, e.Secrets = rules.Rules{}.Check, inventory.Read, inventory.Secrets
	e.Version = "0.2.0"
	e.Now = func() time.Time { return o.now }
	if o.getenv != nil {
		e.Getenv = o.getenv
	}
	got := cli.Main(context.Background(), strings.Fields("bundle "+strings.ReplaceAll(line, "@", o.dir+"/")), e)
	if got != code {
		o.t.Errorf("islet bundle %s: exit code %d instead of %d: %s", line, got, code, out.String())
	}
	for _, p := range parts {
		if !strings.Contains(out.String(), p) {
			o.t.Errorf("islet bundle %s: %q is missing in\n%s", line, p, out.String())
		}
	}
	return out.String()
}

func (o *office) write(name, text string) {
	bundletest.Write(o.t, o.dir, bundletest.File{Name: name, Data: []byte(text)})
}

func (o *office) read(name string) string {
	o.t.Helper()
	b, err := os.ReadFile(o.path(name))
	if err != nil {
		o.t.Fatal(err)
	}
	return string(b)
}

// open opens a bundle, whose layout the caller closes.
func (o *office) open(name string) (bundle.Layout, *bundle.Bundle) {
	o.t.Helper()
	l, err := bundle.OpenLayout(o.path(name))
	if err != nil {
		o.t.Fatal(err)
	}
	b, err := bundle.Open(l, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return l, b
}

// TestBundleOffice follows a bundle through the office: keys, build, two signers, verification, and the next number.
func TestBundleOffice(t *testing.T) {
	o := newOffice(t)
	for _, name := range []string{"first.key", "second.key", "other.key"} {
		o.run(0, "keys new @"+name, "islet-ed25519 ")
	}
	o.run(1, "keys new @first.key", "exists", "name another file")
	if out := o.run(0, "keys new -q @quiet.key"); out != "" {
		t.Errorf("keys new -q prints %q", out)
	}
	o.run(0, "keys add @keys @first.key @second.key @first.key", "2 keys")
	if o.run(0, "keys show @keys") != o.run(0, "keys show @first.key @second.key") {
		t.Error("the list has other keys than the files")
	}
	o.run(0, "build @kiosk -o @kiosk.tar", "kiosk number 42: ")
	o.run(0, "build @kiosk -o @again.tar")
	if o.read("kiosk.tar") != o.read("again.tar") {
		t.Error("the same source gives other bytes")
	}
	o.run(1, "verify -q @kiosk.tar --keys @keys", "is not signed")
	o.run(0, "sign @kiosk.tar --key @first.key", "is signed by ")
	o.run(1, "verify -q @kiosk.tar --keys @keys --threshold 2", "signed by 1 of the keys of --keys")
	o.run(0, "sign @kiosk.tar --key @second.key")
	o.run(0, "verify -q @kiosk.tar --keys @keys --threshold 2", "1 pod, 1 object, 2 images")
	o.run(1, "verify -q @kiosk", "it has no file oci-layout: islet bundle build")
	o.run(1, "verify -q @kiosk.tar --keys @other.key", "its other signatures are of unknown keys: ")
	o.run(0, "show @kiosk.tar", "names a, b; labels site=x", "web.yaml", "localhost/db:1", "linux/arm64",
		"first at 2026-11-28T09:00:00Z")
	o.run(0, "show @kiosk.tar -o json", `"number": 42`, `"type": "manifest"`)
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "{a: x}", "{a: z}", 1))
	o.run(0, "build @kiosk -o @next/ --number 43")
	o.run(0, "diff @kiosk.tar @next", "~ number: 42 -> 43", "~ file web.yaml", "are only in next")
	if info, err := os.Stat(o.path("next/blobs/sha256")); err != nil || !info.IsDir() {
		t.Error(err)
	}
	o.run(0, "diff @kiosk.tar @again.tar", "the same contents: kiosk number 42, sha256:") // only one of them is signed
	o.run(0, "sign @next --key @first.key")
	o.run(0, "verify -q @next --keys @keys")
	o.run(4, "show @none", "no file")
	o.run(2, "build @kiosk", "needs a directory and an output")
	for _, number := range []string{"0", "-1"} {
		o.run(2, "build @kiosk -o @zero.tar --number "+number, "--number must be at least 1")
	}
}

// TestBundleFiles checks that a file that does not exist has an exit code of its own, and that a bundle takes the place of a file, also
// behind a link, but never of a device, a FIFO or a socket.
func TestBundleFiles(t *testing.T) {
	o := newOffice(t)
	o.run(0, "build -q @kiosk -o @kiosk.tar")
	o.run(0, "keys new @first.key")
	for _, line := range []string{"build @none -o @x", "lock @none", "show @none", "sign @none --key @first.key", "sign @kiosk.tar --key @none",
		"verify @none", "verify @kiosk.tar --keys @none", "verify @kiosk.tar --for @none", "diff @kiosk.tar @none", "diff @none @kiosk.tar",
		"seal @none --to age1mhxgaknlhf2aar3ev8e0gzzusc8zlkjhxxvmvtge7fd32uhsq99sffqfhj", "seal @first.key --to @none", "keys show @none",
		"keys add @list @none", "apply @none"} {
		o.run(command.ExitNotFound, line, "none")
	}
	o.run(1, "build @kiosk/bundle.yaml -o @x", "is not a directory")
	o.run(1, "lock @kiosk/bundle.yaml", "is not a directory")
	o.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n")
	fifo, socket := o.path("fifo"), o.path("socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("fifo", o.path("to-fifo")), os.Symlink("kiosk.tar", o.path("latest")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "socket", "to-fifo"} {
		before, err := os.Lstat(o.path(name))
		o.run(1, "build -q @kiosk -o @"+name, "is not a regular file")
		o.run(1, "sign -q @kiosk.tar --key @first.key -o @"+name, "is not a regular file")
		o.run(1, "seal -o @"+name+" --to age1mhxgaknlhf2aar3ev8e0gzzusc8zlkjhxxvmvtge7fd32uhsq99sffqfhj @secret.yaml", "is not a regular file")
		if after, err2 := os.Lstat(o.path(name)); err != nil || err2 != nil || before.Mode() != after.Mode() {
			t.Errorf("%s: %v %v, %v %v", name, before, err, after, err2)
		}
	}
	o.run(0, "sign -q @latest --key @first.key")
	if info, err := os.Lstat(o.path("latest")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	o.run(0, "verify -q @kiosk.tar --keys @first.key")
}

// TestBundleKeyLists checks that keys add keeps the lines of a list, and never replaces a private key.
func TestBundleKeyLists(t *testing.T) {
	o := newOffice(t)
	anna, ben := o.run(0, "keys new @anna.key"), o.run(0, "keys new @ben.key")
	private := o.read("anna.key")
	o.run(2, "keys add @anna.key @ben.key", "anna.key contains a private key")
	o.write("both", "# mine\n"+private)
	if text := o.run(1, "keys add @both @ben.key", "private key"); strings.Contains(text, strings.Fields(private)[1][:8]) {
		t.Error("the private key is printed")
	}
	if o.read("anna.key") != private || o.read("both") != "# mine\n"+private {
		t.Error("a private key was replaced")
	}
	list := "# signers of the shop\n\n# anna\n" + strings.TrimSpace(anna)
	o.write("keys", list)
	o.run(0, "keys add @keys @anna.key", "1 key")
	if got := o.read("keys"); got != list {
		t.Errorf("the list without a new key is %q", got)
	}
	o.run(0, "keys add @keys @ben.key", "2 keys")
	if got := o.read("keys"); got != list+"\n"+ben {
		t.Errorf("the list is %q", got)
	}
}

// TestBundleSigningTime checks that a signer signs no time that another program has put into the bundle: the text is new if nobody has
// signed it, and a later time than that of the clock is an error.
func TestBundleSigningTime(t *testing.T) {
	o := newOffice(t)
	o.run(0, "keys new @first.key")
	o.run(0, "keys new @second.key")
	o.run(0, "build @kiosk -o @kiosk.tar")
	l, b := o.open("kiosk.tar")
	defer l.Close()
	a, err := b.Artefact(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{o.now.AddDate(1, 0, 0), o.now.AddDate(-1, 0, 0)} {
		if err := errors.Join(a.SetSignature(bundle.NewSignature(b.Contents, b.ID, at)), a.WriteDir(o.path("foreign"))); err != nil {
			t.Fatal(err)
		}
		o.run(0, "show @foreign", "nobody")
		o.run(0, "sign @foreign --key @first.key", "first at 2026-11-28T09:00:00Z")
	}
	o.now = o.now.Add(-time.Second)
	o.run(1, "sign @foreign --key @second.key", "2026-11-28T09:00:00Z", "2026-11-28T08:59:59Z")
	o.now = time.Unix(1, 0)
	o.run(1, "sign @kiosk.tar --key @second.key", "1970-01-01T00:00:01Z")
	o.now = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	o.run(0, "sign @foreign --key @second.key", "first at 2026-11-28T09:00:00Z")
}

// TestBundleOfDamagedStick checks that verify finds a byte that was changed, a blob that is missing, and one that was replaced by a
// link, and that a build repairs the directory.
func TestBundleOfDamagedStick(t *testing.T) {
	o := newOffice(t)
	o.run(0, "build @kiosk -o @stick/")
	blobs, err := os.ReadDir(o.path("stick/blobs/sha256"))
	if err != nil || len(blobs) == 0 {
		t.Fatal(err)
	}
	for _, b := range blobs {
		name := "stick/blobs/sha256/" + b.Name()
		good := o.read(name)
		o.write(name, good[:len(good)-1]+string(good[len(good)-1]^1))
		o.run(1, "verify -q @stick", "")
		if err := os.Remove(o.path(name)); err != nil {
			t.Fatal(err)
		}
		o.run(1, "verify -q @stick", b.Name()+" is missing")
		if err := os.Symlink("/etc/passwd", o.path(name)); err != nil {
			t.Fatal(err)
		}
		o.run(1, "verify -q @stick", "")
		o.run(0, "build @kiosk -o @stick/") // repairs it
	}
	o.run(0, "verify -q @stick")
}

// TestBundleForNode checks that verify names everything that a node would lack.
func TestBundleForNode(t *testing.T) {
	o := newOffice(t)
	id, err := agekeys.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	o.write("nodes.txt", "# kiosks\n"+id.Recipient().String()+"\n")
	o.write("wifi.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {password: hunter2}\n")
	o.run(4, "seal @wifi.yaml --to @nodes", "no file ", "age1...")
	o.run(0, "seal @wifi.yaml --to @nodes.txt", "1 Secret for 1 node")
	o.write("kiosk/manifests/wifi.sealed.yaml", o.read("wifi.sealed.yaml"))
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "{configMapRef: {name: settings}}]",
		"{configMapRef: {name: settings}}, {secretRef: {name: wifi}}], resources: {limits: {example.com/gpu: 2}}", 1))
	o.run(0, "build @kiosk -o @kiosk.tar")
	if text := o.read("kiosk.tar"); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") {
		t.Error("the Secret is readable in the bundle")
	}
	node := "apiVersion: islet.dev/v1alpha1\nkind: BundleNode\nname: a\nlabels: {site: x}\nplatform: linux/arm64\nversion: 0.2.0\n" +
		"devices: {example.com/gpu: 2}\nrecipient: " + id.Recipient().String() + "\n"
	o.write("node.yaml", node)
	o.run(0, "verify -q @kiosk.tar --for @node.yaml", "1 pod, 2 objects, 2 images; node a would fetch ")
	for old, x := range map[string][2]string{
		"name: a":        {"name: c", "is not for node c: it is for names a, b"},
		"site: x":        {"site: y", "is not for node a: it is for names a, b; labels site=x"},
		"linux/arm64":    {"linux/riscv64", "has no images for linux/riscv64"},
		"gpu: 2":         {"gpu: 1", "request 2 of device example.com/gpu, the node has 1"},
		"recipient: ":    {"# ", "Secret default/wifi is sealed, and the description of the node has no recipient"},
		"recipient: age": {"recipient: xge", "Secret default/wifi is not sealed for node a"},
	} {
		o.write("node.yaml", strings.Replace(node, old, x[0], 1))
		o.run(1, "verify -q @kiosk.tar --for @node.yaml", x[1])
	}
}

// TestBundleLacks checks that verify names each object and image that a bundle lacks. Another program has made this bundle: build refuses
// to.
func TestBundleLacks(t *testing.T) {
	o := newOffice(t)
	files := map[string]string{
		"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: a\n    image: localhost/web:1\n" +
			"    envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: wifi}}]\n" +
			"    env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}}]\n" +
			"  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n",
		"settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: x}\n",
		"wifi.yaml":     "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {a: x}\n",
		"data.yaml": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}\n",
	}
	const image = "image localhost/web:1 is missing"
	for without, want := range map[string][]string{
		"none":          {image},
		"settings.yaml": {image, "ConfigMap default/settings, which pod default/web needs, is missing"},
		"wifi.yaml":     {image, "Secret default/wifi, which pod default/web needs, is missing"},
		"data.yaml":     {image, "PersistentVolumeClaim default/data, which pod default/web needs, is missing"},
		"a key":         {image, `key "a" of ConfigMap default/settings, which pod default/web needs, is missing`},
	} {
		var parts []bundle.Part
		for name, text := range files {
			if without == "a key" {
				text = strings.Replace(text, "data: {a: x}", "data: {b: x}", 1)
			}
			if name != without {
				parts = append(parts, bundle.NewFile(name, bundle.MediaManifest, []byte(text)))
			}
		}
		a, err := bundle.Assemble(&bundle.Contents{Name: "kiosk", Number: 1}, parts, nil)
		var tar bytes.Buffer
		if err == nil {
			err = a.WriteTar(&tar)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.write("kiosk.tar", tar.String())
		out := o.run(1, "verify -q @kiosk.tar", want...)
		if got := strings.Count(out, "is missing"); got != len(want) {
			t.Errorf("without %s: %d things are missing instead of %d:\n%s", without, got, len(want), out)
		}
	}
}

// TestBundleWithConfiguration checks that show, diff and verify name the configurations of a bundle, their mistakes, and the fields that
// the node's version of islet does not know.
func TestBundleWithConfiguration(t *testing.T) {
	o := newOffice(t)
	o.run(0, "build @kiosk -o @old.tar")
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	edge := "apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\n"
	o.write("kiosk/kubelet.yaml", kubelet+"maxPods: 20\nmemorySwap: {swapBehavior: NoSwap}\nfeatureGates: {}\n"+
		"authentication: {webhook: {cacheTTL: 2m}}\n")
	o.write("kiosk/edge.yaml", edge+"shimPods: 3\nconfiguration: {healthyFor: 10s, deadline: 2m}\n")
	o.run(0, "build @kiosk -o @kiosk.tar")
	o.run(0, "show @kiosk.tar", "kubelet.yaml", "edge.yaml")
	o.run(0, "diff @old.tar @kiosk.tar", "+ file kubelet.yaml", "+ file edge.yaml")
	node := "apiVersion: islet.dev/v1alpha1\nkind: BundleNode\nname: a\nlabels: {site: x}\nplatform: linux/arm64\nversion: 0.0.9\n"
	all := []string{"maxPods", "memorySwap.swapBehavior", "featureGates", "edge.shimPods", "edge.configuration.healthyFor",
		"edge.configuration.deadline", "authentication.webhook.cacheTTL"}
	describe := func(missing string) {
		known := slices.DeleteFunc(slices.Clone(all), func(f string) bool { return f == missing })
		o.write("node.yaml", node+"fields: ["+strings.Join(known, ", ")+"]\n")
	}
	describe("")
	o.run(0, "verify -q @kiosk.tar --for @node.yaml")
	for missing, want := range map[string]string{
		"maxPods": "kubelet.yaml: field maxPods: islet 0.0.9 on node a does not know it", "memorySwap.swapBehavior": "field memorySwap: ",
		"featureGates": "field featureGates: ", "edge.shimPods": "edge.yaml: field shimPods: ", "edge.configuration.deadline": "field configuration.deadline: ",
		"authentication.webhook.cacheTTL": "field authentication: ",
	} {
		describe(missing)
		o.run(1, "verify -q @kiosk.tar --for @node.yaml", want)
	}
	o.write("node.yaml", node)
	o.run(0, "verify -q @kiosk.tar --for @node.yaml", "does not say which fields")
	o.write("kiosk/kubelet.yaml", kubelet+"maxPodz: 20\n")
	o.run(0, "build @kiosk -o @kiosk.tar")
	o.run(1, "verify -q @kiosk.tar", "maxPodz")
}

// TestBundleWithVersion checks that verify compares archives of islet with their releases, and that fields of a configuration are not
// errors if the node gets a newer version of islet from the bundle.
func TestBundleWithVersion(t *testing.T) {
	o := newOffice(t)
	o.write("kiosk/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\n")
	o.write("kiosk/islet/islet.tar.gz", "program")
	version := func(version, arch, archive string) {
		t.Helper()
		r, err := release.Describe(version, arch, strings.NewReader(archive))
		if err != nil {
			t.Fatal(err)
		}
		o.write("kiosk/islet/islet.tar.gz.release", string(r.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))))
		o.run(0, "build @kiosk -o @kiosk.tar")
	}
	o.write("node.yaml", "apiVersion: islet.dev/v1alpha1\nkind: BundleNode\nname: a\nlabels: {site: x}\nplatform: linux/arm64\n"+
		"version: 0.0.9\nfields: [cgroupRoot]\n")
	const verify = "verify -q @kiosk.tar --for @node.yaml"
	version("0.1.0", "arm64", "program")
	o.run(0, verify, "the node tries islet 0.1.0 of the bundle first")
	version("0.0.9", "arm64", "program")
	o.run(1, verify, "field maxPods: islet 0.0.9 on node a does not know it")
	version("0.1.0", "arm", "program")
	o.run(1, verify, "does not know it")
	version("0.1.0", "arm64", "programs")
	o.run(1, verify, "file islet.tar.gz: it has 7 bytes, its release says 8")
	o.write("kiosk/islet/islet.tar.gz.release", "no release")
	o.run(0, "build @kiosk -o @kiosk.tar")
	o.run(1, verify, "file islet.tar.gz.release: ")
}

// TestBundleExpired checks that build and verify say that a bundle has expired, and that build names an archive that does not exist.
func TestBundleExpired(t *testing.T) {
	o := newOffice(t)
	const note = "Note: the bundle has expired on 2027-01-31T00:00:00Z"
	for _, command := range []string{"build @kiosk -o @kiosk.tar", "verify -q @kiosk.tar"} {
		if out := o.run(0, command); strings.Contains(out, "expired") {
			t.Error(out)
		}
		now := o.now
		o.now = now.AddDate(1, 0, 0)
		o.run(0, command, note)
		o.now = now
	}
	o.write("kiosk/bundle.yaml", o.read("kiosk/bundle.yaml")+"archives: {app.tar: localhost/app:1}\n")
	o.run(1, "build @kiosk -o @kiosk.tar", `bundle.yaml: archives: "app.tar": there is no such file or directory in images/`)
}

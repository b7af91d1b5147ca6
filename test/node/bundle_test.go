package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// bundles builds and signs bundles on a machine.
type bundles struct {
	*testing.T
	m *machine.Machine
}

// newBundles returns a machine whose node accepts the bundles of one key, and has no image. The agent has not been started.
func newBundles(t *testing.T) *bundles {
	t.Helper()
	b := &bundles{t, machine.New(t, "edge")}
	b.m.Boot()
	b.configure("")
	return b
}

// configure writes the keys and the images of the bundles, and the node's EdgeConfiguration with an additional line.
func (b *bundles) configure(line string) {
	b.Helper()
	archive, err := os.ReadFile(machine.Archive(b))
	if err != nil {
		b.Fatal(err)
	}
	b.m.Write("kiosk/images/podtool.tar", string(archive))
	key := strings.TrimSpace(b.m.Islet("bundle", "keys", "new", b.m.Disk+"/anna.key"))
	b.m.Islet("bundle", "keys", "new", b.m.Disk+"/ben.key")
	b.m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n"+
		"configuration: {healthyFor: 2s, deadline: 15s}\nbundle: {keys: [%q], healthyFor: 2s, deadline: 10s, medium: {label: %s, result: true}}\n%s",
		b.m.Disk, key, b.stickLabel(), line))
}

// build builds a bundle with the given pods, and signs it with a key. The key may be empty.
func (b *bundles) build(number int, key string, pods map[string]string) string {
	b.Helper()
	b.m.Write("kiosk/bundle.yaml", "apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: 1\n")
	if err := os.RemoveAll(filepath.Join(b.m.Disk, "kiosk/manifests")); err != nil {
		b.Fatal(err)
	}
	for name, text := range pods {
		b.m.Write("kiosk/manifests/"+name+".yaml", text)
	}
	file := filepath.Join(b.m.Disk, fmt.Sprintf("kiosk-%d%s.tar", number, key))
	b.m.Islet("bundle", "build", b.m.Disk+"/kiosk", "-o", file, "--number", fmt.Sprint(number))
	if key != "" {
		b.m.Islet("bundle", "sign", file, "--key", b.m.Disk+"/"+key)
	}
	return file
}

// refuse checks that the node refuses a bundle, and why.
func (b *bundles) refuse(why string, args ...string) {
	b.Helper()
	if out, code := b.m.Try(append([]string{"bundle", "apply"}, args...)...); code != 1 || !strings.Contains(out, why) {
		b.Errorf("islet bundle apply %v: code %d, %s, want %q", args, code, out, why)
	}
}

// inUse waits until a bundle is in use and none is on trial.
func (b *bundles) inUse(number int) {
	b.Helper()
	b.m.Await(fmt.Sprint("bundle ", number, " to be in use"), func() bool {
		out, _ := b.m.Try("bundle", "status")
		return strings.Contains(out, fmt.Sprintf("in use     kiosk number %d,", number)) && !strings.Contains(out, "on trial")
	})
}

// TestBundle applies signed bundles to a node without images and without a network. The node keeps a bundle whose pods become Ready, and
// returns from a bundle whose pod does not become Ready. A pod that is the same in both bundles keeps its container through all trials, a
// SIGKILL of the agent during a trial, and a revert. The data in the claim of the bundle stays, also what pods have written during a
// trial that failed. The bundle is still in use after a reboot. The node rejects bundles of other signers, bundles with lower numbers, and
// bundles that define a pod of another source. At the end the node follows a server: it tries a new bundle, keeps it while the link is cut,
// returns from a worse one, and does not try that one again by itself. It reads a bundle from a stick by itself.
func TestBundle(t *testing.T) {
	t.Parallel()
	b := newBundles(t)
	m := b.m
	m.StartAgent()
	one, two := manifest("one", "", "count", "100ms"), reader("two")
	m.Write("wifi.yaml", fmt.Sprintf(wifi, "horse-battery"))
	m.Islet("bundle", "seal", m.Disk+"/wifi.yaml", "--to", strings.TrimSpace(m.Islet("key", "recipient")), "-o", m.Disk+"/wifi.sealed.yaml")
	secret, err := os.ReadFile(m.Disk + "/wifi.sealed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{"one": strings.Replace(one, "Never", "Always", 1), "two": two, "settings": fmt.Sprintf(settings, "hello"),
		"wifi.sealed": string(secret), "data": dataClaim, "store": writer("store")}
	plain := func(number int, key string, more map[string]string) string {
		all := map[string]string{}
		for _, list := range []map[string]string{pods, more} {
			for name, text := range list {
				all[name] = text
			}
		}
		return b.build(number, key, all)
	}
	first := plain(1, "anna.key", nil)
	b.refuse("sign", plain(1, "ben.key", nil))
	b.refuse("not signed", plain(1, "", nil))
	if out, code := m.Try("bundle", "apply", m.Disk+"/none.tar"); code != 4 || !strings.Contains(out, "no file "+m.Disk+"/none.tar") {
		t.Errorf("a file that does not exist: code %d, %s", code, out)
	}
	if out := m.Islet("bundle", "status"); !strings.Contains(out, "no bundle is in use") {
		t.Error(out)
	}
	if out := m.Islet("bundle", "apply", "--wait", first); !strings.Contains(out, "kiosk number 1 is in use") {
		t.Error(out)
	}
	if out := m.Islet("bundle", "apply", first); !strings.Contains(out, "kiosk number 1 is in use already") {
		t.Error(out)
	}
	was := m.WaitReady("one", "two", "store")
	m.Islet("exec", "store", "--", "/podtool", "write", "/data/kept", "precious")
	same := func() {
		t.Helper()
		now := m.WaitReady("one", "two", "store")
		if got := file(m, "store", "/data/kept"); got != "precious" {
			t.Errorf("the claim of the bundle has %q", got)
		}
		requireSame(t, was["one"], now["one"])
		requireSame(t, was["two"], now["two"])
	}
	gone := func(name string) {
		t.Helper()
		m.WaitPods(name+" to be gone", func(now map[string]machine.Pod) bool { _, found := now[name]; return !found })
	}
	if got := file(m, "two", "/settings/greeting"); got != "hello" {
		t.Errorf("the ConfigMap of the bundle has %q", got)
	}
	if got := file(m, "two", "/all/password"); got != "horse-battery" {
		t.Errorf("the sealed Secret of the bundle has %q", got)
	}
	if out, code := m.Try("images", "rm", "--force", image(t, m)); code == 0 || !strings.Contains(out, "bundle") {
		t.Errorf("an image of the bundle was removed: %d, %s", code, out)
	}
	if out := m.Islet("images", "prune"); strings.Contains(out, "podtool") && !strings.Contains(out, "kept") {
		t.Errorf("islet images prune: %s", out)
	}

	ill := manifest("ill", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}\n", "sleep")
	second := plain(2, "anna.key", map[string]string{"ill": ill})
	var group sync.WaitGroup
	group.Go(func() {
		if out, code := m.Try("bundle", "apply", "--wait", second); code != 1 || !strings.Contains(out, "kiosk number 1 is in use") ||
			!strings.Contains(out, "default/ill") {
			t.Errorf("code %d, %s", code, out)
		}
	})
	m.WaitPods("the trial", func(now map[string]machine.Pod) bool { _, found := now["ill"]; return found })
	m.Islet("exec", "store", "--", "/podtool", "write", "/data/tried", "changed")
	group.Wait()
	gone("ill")
	if got := file(m, "store", "/data/tried"); got != "changed" {
		t.Errorf("what a pod has written during the trial: %q", got)
	}
	same()

	b.refuse("--older", plain(1, "anna.key", map[string]string{"three": manifest("three", "", "sleep")}))
	m.Write("manifests/file.yaml", manifest("file", "", "sleep")) // it waits for its image: the images of a bundle have no tag
	m.WaitPods("the pod of the file", func(now map[string]machine.Pod) bool { _, found := now["file-edge"]; return found })
	b.refuse("manifests/file.yaml", plain(3, "anna.key", map[string]string{"file": manifest("file-edge", "", "sleep")}))
	m.Remove("manifests/file.yaml")
	gone("file-edge")
	third := plain(3, "anna.key", map[string]string{"three": manifest("three", "", "sleep")})
	if out := m.Islet("bundle", "apply", third); !strings.Contains(out, "kiosk number 3 is on trial") {
		t.Error(out)
	}
	m.Kill() // in the trial, which lasts for 2 s at least
	m.StartAgent()
	b.inUse(3)
	m.WaitReady("one", "two", "store", "three")
	requireSame(t, was["one"], m.Pods()["one"])
	if out := m.Islet("bundle", "revert"); !strings.Contains(out, "kiosk number 1 is in use") {
		t.Error(out)
	}
	gone("three")
	same()

	m.PowerOff()
	m.Boot()
	m.StartAgent()
	m.WaitReady("one", "two", "store")
	b.inUse(1)
	if out := m.Islet("status"); !strings.Contains(out, "bundle") {
		t.Errorf("islet status does not show the source: %s", out)
	}

	f := b.followFile()
	f.put(plain(4, "anna.key", map[string]string{"four": manifest("four", "", "sleep")}))
	b.inUse(4)
	m.WaitReady("one", "two", "store", "four")
	f.put("")
	f.awaitRequest("a request without an answer", func(*http.Request) bool { return true })
	m.Await("the problem", func() bool {
		out := m.Islet("bundle", "status")
		return strings.Contains(out, "follows") && strings.Contains(out, "EOF") && strings.Contains(out, "in use     kiosk number 4,")
	})
	f.put(plain(5, "anna.key", map[string]string{"ill": ill}))
	m.Await("the failed trial", func() bool { return strings.Contains(m.Islet("bundle", "status"), "kiosk number 5: failed") })
	b.inUse(4)
	gone("ill")
	m.WaitReady("one", "two", "store", "four")
	failed := m.Islet("bundle", "status", "-o", "json")
	f.awaitRequest("a conditional request", func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" })
	f.awaitRequest("the next one", func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" })
	last := func(text string) string {
		_, after, _ := strings.Cut(text, `"last"`)
		before, _, _ := strings.Cut(after, `"source"`)
		return before
	}
	if now := m.Islet("bundle", "status", "-o", "json"); last(now) != last(failed) || last(now) == "" {
		t.Errorf("a failed bundle is tried again: %s, before %s", now, failed)
	}
	if out, code := m.Try("bundle", "apply", f.URL+"/kiosk.tar", "--wait", "-q"); code != 1 || !strings.Contains(out, "default/ill") {
		t.Errorf("a person tries it again: %d, %s", code, out)
	}
	b.useStick(6, plain(6, "anna.key", map[string]string{"six": manifest("six", "", "sleep")}), "one", "two", "store", "six")
}

// TestBundleConfiguration applies bundles with pods and a configuration. The node tries the configuration first, and keeps or gives up both
// together: after a good bundle, a configuration that fails, pods that fail, a revert, and a loss of power during the trial of a
// configuration. A pod that is the same in all bundles keeps its container while the machine runs.
func TestBundleConfiguration(t *testing.T) {
	t.Parallel()
	b := newBundles(t)
	m := b.m
	m.StartAgent()
	build := func(number int, kubelet string, more map[string]string) string {
		t.Helper()
		if err := os.RemoveAll(m.Disk + "/kiosk/kubelet.yaml"); err != nil {
			t.Fatal(err)
		}
		if kubelet != "" {
			m.Write("kiosk/kubelet.yaml", kubelet)
		}
		pods := map[string]string{"one": manifest("one", "", "count", "100ms")}
		maps.Copy(pods, more)
		return b.build(number, "anna.key", pods)
	}
	maxPods := func(n int) string { return kubeletHead + fmt.Sprintf("maxPods: %d\n", n) }
	var was machine.Pod
	check := func(number int, configuration string, pods ...string) {
		t.Helper()
		b.inUse(number)
		now := m.WaitReady(pods...)
		m.WaitPods("exactly these pods", func(now map[string]machine.Pod) bool { return len(now) == len(pods) })
		if s := awaitShown(m); s.Active != s.LastKnownGood || s.Assigned != nil || s.Trying ||
			!strings.Contains(s.Active.Kubelet, configuration) || configuration == "" && s.Active.ID != "local" {
			t.Errorf("bundle %d: %+v, want %q", number, s, configuration)
		}
		if was.Metadata.UID != "" {
			requireSame(t, was, now["one"])
		}
	}
	put := func(file, want string, code int) {
		t.Helper()
		if out, got := m.Try("bundle", "apply", "--wait", "-q", file); got != code || !strings.Contains(out, want) {
			t.Errorf("code %d, %s, want %d, %q", got, out, code, want)
		}
	}
	put(build(1, "", nil), "kiosk number 1 is in use", 0)
	check(1, "", "one")
	was = m.Pods()["one"]
	two := map[string]string{"two": manifest("two", "", "sleep")}
	put(build(2, maxPods(17), two), "kiosk number 2 is in use", 0)
	check(2, "maxPods: 17", "one", "two")
	if out := m.Islet("bundle", "status"); !strings.Contains(out, "configuration ") || !strings.Contains(out, ", in use") {
		t.Error(out)
	}
	put(build(3, strings.Replace(kubeletHead, "memory.available: 1Mi", "memory.available: 99.99%", 1), nil), "its configuration has failed", 1)
	check(2, "maxPods: 17", "one", "two")
	ill := manifest("ill", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}\n", "sleep")
	put(build(4, maxPods(18), map[string]string{"ill": ill}), "default/ill", 1)
	check(2, "maxPods: 17", "one", "two")
	b.refuse("podCIDR: Forbidden: it belongs to the node", build(5, kubeletHead+"podCIDR: 10.9.0.0/24\n", nil))
	if out := m.Islet("bundle", "revert"); !strings.Contains(out, "kiosk number 1 is in use") {
		t.Error(out)
	}
	check(1, "", "one")
	if out := m.Islet("config", "history"); !strings.Contains(out, "bundle kiosk number 4") || !strings.Contains(out, "given up: its bundle") {
		t.Error(out)
	}
	was = machine.Pod{}
	m.Islet("bundle", "apply", "-q", build(6, maxPods(19), two))
	awaitTrial(m, 1)
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	check(6, "maxPods: 19", "one", "two")
}

// A followedFile is a server on the loopback interface of a machine, with one bundle.
type followedFile struct {
	*httptest.Server
	b    *bundles
	mu   sync.Mutex
	file string // empty: the link is cut
	last *http.Request
	told chan struct{} // of each request
}

// followFile restarts the agent, which follows the bundle of a server from then on.
func (b *bundles) followFile() *followedFile {
	b.Helper()
	f := &followedFile{b: b, told: make(chan struct{}, 100)}
	f.Server = serveTrusted(b, b.m, f)
	b.follow(f.URL + "/kiosk.tar")
	return f
}

// follow restarts the agent, which follows a source from then on.
func (b *bundles) follow(source string) {
	b.Helper()
	b.replaceInEdge("bundle: {", fmt.Sprintf("bundle: {source: %q, every: 5s, ", source))
	b.m.Kill()
	b.m.StartAgent()
}

// replaceInEdge replaces text in edge.yaml, which the agent reads at its next start.
func (b *bundles) replaceInEdge(old, text string) {
	b.Helper()
	edge, err := os.ReadFile(b.m.Disk + "/edge.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.m.Write("edge.yaml", strings.Replace(string(edge), old, text, 1))
}

func (f *followedFile) put(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file = file
}

func (f *followedFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	file := f.file
	f.last = r
	f.mu.Unlock()
	select {
	case f.told <- struct{}{}:
	default:
	}
	if file == "" {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", filepath.Base(file)))
	http.ServeFile(w, r, file)
}

// awaitRequest waits for a request that begins from now on.
func (f *followedFile) awaitRequest(what string, is func(*http.Request) bool) {
	f.b.Helper()
	for len(f.told) > 0 {
		<-f.told
	}
	f.b.m.Await(what, func() bool {
		select {
		case <-f.told:
		default:
			return false
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return is(f.last)
	})
}

// stickLabel returns the label of the sticks of this machine. The nodes of other tests see the same devices and must not read them.
func (b *bundles) stickLabel() string {
	return "T" + strings.TrimPrefix(filepath.Base(b.m.Disk), "islet-")
}

// useStick plugs in a stick with a bundle. The node uses the bundle, and writes its signed state to the stick.
func (b *bundles) useStick(number int64, file string, pods ...string) {
	b.Helper()
	for _, program := range []string{"mkfs.ext4", "losetup", "debugfs"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Log("no stick is tested: ", err)
			return
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		b.Log("no stick is tested: ", err)
		return
	}
	image := filepath.Join(b.m.Disk, "stick.img")
	dir := filepath.Join(b.m.Disk, "stick")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Rename(file, filepath.Join(dir, "kiosk.tar")), os.WriteFile(image, nil, 0o600),
		os.Truncate(image, 64<<20)); err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) string {
		b.Helper()
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			b.Fatalf("%v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-L", b.stickLabel(), "-d", dir, image)
	device := run("losetup", "--find", "--show", image)
	pull := sync.OnceFunc(func() { run("losetup", "-d", device) })
	b.Cleanup(pull)
	b.inUse(int(number))
	b.m.WaitReady(pods...)
	var state struct {
		State struct {
			Node    string
			Current struct{ Number int64 }
			Medium  struct{ Result, File string }
			Pods    []struct{ Name string }
		}
		Signature string
	}
	b.m.Await("the result on the stick", func() bool {
		text := run("debugfs", "-R", "cat islet-edge.json", image)
		return json.Unmarshal([]byte(text), &state) == nil
	})
	pull()
	if s := state.State; s.Node != "edge" || s.Current.Number != number || s.Medium.Result != "kept" || s.Medium.File != "kiosk.tar" ||
		len(s.Pods) < 3 || state.Signature == "" {
		b.Errorf("the result on the stick is %+v", state)
	}
	if out := b.m.Islet("bundle", "status"); !strings.Contains(out, "kiosk.tar") {
		b.Errorf("islet bundle status does not show the stick: %s", out)
	}
}

// image returns the image ID of podtool.
func image(t *testing.T, m *machine.Machine) string {
	t.Helper()
	for line := range strings.Lines(m.Islet("images", "list", "-o", "wide", "--no-headers")) {
		if strings.Contains(line, "podtool") {
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, "localhost/podtool") {
					return word
				}
			}
		}
	}
	t.Fatal("no image of podtool: ", m.Islet("images", "list"))
	return ""
}

package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// This helper creates a tree. The values are the contents of files, or after "-> " the targets of symlinks. The names of directories end
// with a slash.
func makeTree(t *testing.T, base string, tree map[string]string) {
	t.Helper()
	for name, value := range tree {
		at := filepath.Join(base, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if to, ok := strings.CutPrefix(value, "-> "); ok {
			err = errors.Join(err, os.Symlink(to, at))
		} else if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(value), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// This helper returns the path of the file that a subPath opens.
func openedPath(t *testing.T, volume, sub string) (string, error) {
	t.Helper()
	f, err := openSubPath(&v1.VolumeMount{SubPath: sub}, volume)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// TestSubPathThroughAbsoluteLinks checks that a subPath may lead through absolute symlinks whose targets are in the volume, as in a
// kubelet. Other symlinks cannot lead out of the volume.
func TestSubPathThroughAbsoluteLinks(t *testing.T) {
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	app := d + "/srv/app"
	makeTree(t, d, map[string]string{
		"data/srv/app/releases/42/bin/": "", "data/srv/app/releases/42/file": "f", "data/srv/app2/": "", "data/secret/file": "s",
		"srv":                            "-> " + d + "/data/srv",
		"data/srv/app/current":           "-> " + app + "/releases/42",
		"data/srv/app/real":              "-> " + d + "/data/srv/app/releases/42",
		"data/srv/app/slashes":           "-> /" + d + "/srv/.//app//releases/./42/",
		"data/srv/app/self":              "-> " + app,
		"data/srv/app/a/b/rel":           "-> ../../current",
		"data/srv/app/chain":             "-> " + app + "/a/b/rel",
		"data/srv/app/releases/42/up":    "-> " + app + "/releases/42/../43",
		"data/srv/app/releases/43/":      "",
		"data/srv/app/sibling":           "-> " + app + "2",
		"data/srv/app/above":             "-> " + d + "/srv",
		"data/srv/app/outside":           "-> " + d + "/data/secret",
		"data/srv/app/dots":              "-> " + app + "/../../secret",
		"data/srv/app/through":           "-> " + app + "/current/../../../../secret",
		"data/srv/app/root":              "-> /",
		"data/srv/app/dangling":          "-> " + app + "/none",
		"data/srv/app/loop":              "-> " + app + "/loop",
		"data/srv/app/loop1":             "-> " + app + "/loop2",
		"data/srv/app/loop2":             "-> loop1",
		"data/srv/app/releases/42/magic": "-> /proc/self/root",
	})
	for sub, want := range map[string]string{
		"current": "releases/42", "current/bin": "releases/42/bin", "current/file": "releases/42/file", "real": "releases/42",
		"slashes/bin": "releases/42/bin", "self": "", "self/self/current": "releases/42", "a/b/rel": "releases/42",
		"chain/bin":  "releases/42/bin",
		"current/up": "releases/43", "./current//": "releases/42",
		"current/new/deep": "releases/42/new/deep", // the missing directories are created
		"chain/other":      "releases/42/other",
		"releases/44":      "releases/44",
		"sibling":          "refused", "above": "refused", "above/app": "refused", "outside": "refused", "outside/file": "refused",
		"outside/new": "refused", "dots": "refused", "through": "refused", "root": "refused", "root/etc": "refused", "dangling": "refused",
		"dangling/new": "refused", "loop": "refused", "loop1": "refused", "current/file/x": "refused", "current/magic": "refused",
		"current/magic/etc": "refused", "../app": "refused", "/srv": "refused",
	} {
		got, err := openedPath(t, app, sub)
		if want == "refused" {
			if err == nil {
				t.Errorf("subPath %s opens %s", sub, got)
			}
		} else if err != nil || got != filepath.Join(d, "data/srv/app", want) {
			t.Errorf("subPath %s opens %s instead of %s, %v", sub, got, want, err)
		}
	}
	for _, made := range []string{"data/secret/new", "data/srv/app/none", "none"} {
		requireGone(t, filepath.Join(d, made))
	}
	for sub, want := range map[string]string{app + "/current": app + "/releases/42", app + "2": app + "2"} {
		got, err := openedPath(t, "/", sub[1:]) // the volume is the whole host, so each target is in it
		if real, _ := filepath.EvalSymlinks(want); err != nil || got != real {
			t.Errorf("subPath %s of / opens %s, %v", sub, got, err)
		}
	}
	v := volumes(t)
	t.Cleanup(func() { v.Release(context.Background(), "u1") })
	pod := podWith(host("h", app, v1.HostPathDirectory))
	mounts, err := mountsOf(t, v, pod, v1.VolumeMount{Name: "h", MountPath: "/h", SubPath: "current"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(mounts[0].HostPath + "/file"); err != nil || string(b) != "f" {
		t.Errorf("the container gets %q, %v", b, err)
	}
}

// TestSubPathErrorsTellNothing checks that the error for a symlink that leads out of the volume does not depend on the files of the host.
func TestSubPathErrorsTellNothing(t *testing.T) {
	d, outside := t.TempDir(), t.TempDir()
	makeTree(t, outside, map[string]string{"dir/": "", "file": "x", "loop": "-> loop"})
	var texts []string
	for _, name := range []string{"none", "dir", "dir/none", "file", "file/none", "loop"} {
		makeTree(t, d, map[string]string{"link": "-> " + outside + "/" + name})
		_, err := openedPath(t, d, "link")
		if !errors.Is(err, errLeadsOut) {
			t.Errorf("a link to %s: %v", name, err)
			continue
		}
		if texts = append(texts, err.Error()); texts[0] != err.Error() {
			t.Errorf("a link to %s: %v, another link: %s", name, err, texts[0])
		}
		if err := os.Remove(d + "/link"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSubPathLinkBomb checks that the work for hostile symlinks is bounded.
func TestSubPathLinkBomb(t *testing.T) {
	d := t.TempDir()
	long := strings.Repeat("a/../", 700)
	makeTree(t, d, map[string]string{"a/": "", "long": "-> " + d + "/" + long, "twice0": "-> " + d})
	for i := 1; i < 60; i++ { // each link doubles the components
		makeTree(t, d, map[string]string{fmt.Sprint("twice", i): fmt.Sprintf("-> %s/twice%d/twice%d", d, i-1, i-1)})
	}
	for _, sub := range []string{"long", "twice59"} {
		if got, err := openedPath(t, d, sub); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s opens %s, %v", sub, got, err)
		}
	}
	if _, err := openedPath(t, d, "twice4"); err != nil {
		t.Error(err)
	}
}

// TestSubPathLinkSwaps checks that a subPath never leads out of the volume, while a container replaces symlinks and directories.
func TestSubPathLinkSwaps(t *testing.T) {
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	volume := d + "/volume"
	makeTree(t, d, map[string]string{
		"outside/sub/": "", "volume/in/sub/": "", "volume/dir/sub/": "", "volume/x": "-> " + volume + "/dir",
		"volume/good": "-> " + volume + "/dir", "volume/bad": "-> " + d + "/outside", "volume/relative": "-> ../outside",
		"volume/via": "-> " + volume + "/x",
	})
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; ; i++ {
			select {
			case <-done:
				ended <- err
				return
			default:
			}
			with := []string{"good", "bad", "in", "relative"}[i%4]
			err = errors.Join(err, unix.Renameat2(unix.AT_FDCWD, volume+"/x", unix.AT_FDCWD, volume+"/"+with, unix.RENAME_EXCHANGE))
		}
	}()
	opened := 0
	for i := range 4000 {
		got, err := openedPath(t, volume, []string{"x", "x/sub", "via", "via/sub", "x/new/deep"}[i%5])
		if err == nil && got != volume && !strings.HasPrefix(got, volume+"/") {
			t.Fatalf("opened %s", got)
		}
		if err == nil {
			opened++
		}
	}
	close(done)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	requireGone(t, d+"/outside/new")
	if opened == 0 {
		t.Error("no subPath was opened")
	}
}

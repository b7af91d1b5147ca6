package setup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/setuprecord"
)

const edgeHead = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"

// beside returns a board that has applied an islet.yaml which names two files, and a function that writes one of these files.
func beside(t *testing.T, joined bool) (b *board, write func(name, text string)) {
	t.Helper()
	b = newBoard(t)
	ca := newCA(t)
	write = func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(b.boot, name), []byte(text), 0o644))
	}
	write("kube.yaml", kubeletHead+"maxPods: 7\n")
	write("more.yaml", edgeHead+"bridgeName: own0\n")
	b.write(joining(ca) + "kubeletConfiguration: kube.yaml\nedgeConfiguration: more.yaml\n")
	b.inUse()
	if joined {
		b.join(ca, "https://192.0.2.1:6443", "kiosk-10000000abcdef01")
		r, err := load(b.State)
		must(t, err)
		r.Joined = true
		must(t, r.removeSecrets(), r.store(b.State))
	}
	return b, write
}

// TestBesideEdited checks that the files that islet.yaml names are a part of it: an edit of one of them is applied, or its mistake is
// reported until it is corrected, also on a board that has joined.
func TestBesideEdited(t *testing.T) {
	for _, joined := range []bool{false, true} {
		b, write := beside(t, joined)
		if out := b.inUse(); out.Applied {
			t.Error("applied again without an edit")
		}
		secrets := b.made(bootstrapFile)
		for _, c := range []struct{ name, made, text, mistake, want string }{
			{"kube.yaml", kubeletFile, kubeletHead + "maxPods: 8\n", "maxPods: x\n", "maxPods: 8"},
			{"more.yaml", edgeFile, edgeHead + "bridgeName: own1\n", edgeHead + "shimPods: -1\n", "own1"},
		} {
			before := contents(t, b.Dir)
			path := filepath.Join(b.boot, c.name)
			old, err := os.ReadFile(path)
			must(t, err)
			for what, spoil := range map[string]func(){
				"a mistake":   func() { write(c.name, c.mistake) },
				"no file":     func() { must(t, os.Remove(path)) },
				"a large one": func() { write(c.name, string(old)+strings.Repeat("#", maxBeside)) },
			} {
				spoil()
				for range 2 {
					if got := b.refused(); !strings.Contains(got, c.name) || contents(t, b.Dir) != before {
						t.Errorf("%s in %s: %s", what, c.name, got)
					}
				}
				write(c.name, string(old))
				out := b.inUse()
				if r, err := load(b.State); err != nil || r.Refused != nil || out.Applied {
					t.Errorf("%s in %s is corrected: %+v, %+v, %v", what, c.name, out, r.Refused, err)
				}
			}
			write(c.name, c.text)
			if out := b.inUse(); !out.Applied || !strings.Contains(b.made(c.made), c.want) {
				t.Errorf("%s was not applied: %s", c.name, b.made(c.made))
			}
			if out := b.inUse(); out.Applied {
				t.Errorf("%s was applied again", c.name)
			}
		}
		if got := b.made(bootstrapFile); got != secrets {
			t.Errorf("joined %v: the credentials have changed: %s", joined, got)
		}
		if r, err := load(b.State); err != nil || r.Joined != joined {
			t.Errorf("joined %v: %+v, %v", joined, r, err)
		}
	}
}

// TestBesideOfOlderVersion checks the record of a version that did not compare the files next to islet.yaml. After an upgrade nothing is
// applied or refused, whatever the files are. Later edits are found.
func TestBesideOfOlderVersion(t *testing.T) {
	for what, change := range map[string]func(b *board, write func(name, text string)){
		"as before": func(*board, func(string, string)) {},
		"edited":    func(_ *board, write func(string, string)) { write("kube.yaml", kubeletHead+"maxPods: 9\n") },
		"a mistake": func(_ *board, write func(string, string)) { write("kube.yaml", "x") },
		"removed":   func(b *board, _ func(string, string)) { must(b.t, os.Remove(filepath.Join(b.boot, "kube.yaml"))) },
	} {
		b, write := beside(t, true)
		path := filepath.Join(b.State, setuprecord.File)
		text, err := os.ReadFile(path)
		must(t, err)
		var fields map[string]any
		must(t, json.Unmarshal(text, &fields))
		delete(fields, "beside")
		text, err = json.Marshal(fields)
		must(t, err, os.WriteFile(path, text, 0o600))
		change(b, write)
		before := contents(t, b.Dir)
		for range 2 {
			if out := b.inUse(); out.Applied || contents(t, b.Dir) != before {
				t.Errorf("%s: applied again", what)
			}
		}
		write("kube.yaml", kubeletHead+"maxPods: 8\n")
		if out := b.inUse(); !out.Applied || !strings.Contains(b.made(kubeletFile), "maxPods: 8") {
			t.Errorf("%s: a later edit was not applied: %s", what, b.made(kubeletFile))
		}
	}
}

// TestEditedBlock checks that the lines of islet setup in the file of flags are replaced after a person has edited them, and also if the
// record is lost. Other flags stay.
func TestEditedBlock(t *testing.T) {
	const own, below = "--node-labels=a=b\n", "--v=2\n"
	for what, edit := range map[string]func(b *board, text string) string{
		"a name": func(_ *board, text string) string { return strings.Replace(text, "=two", "=mine", 1) },
		"an underscore": func(_ *board, text string) string {
			return strings.Replace(text, "--hostname-override", " --hostname_override", 1)
		},
		"a line less": func(_ *board, text string) string { return strings.Replace(text, "--hostname-override=two\n", "", 1) },
		"a line more": func(_ *board, text string) string {
			return strings.Replace(text, "=two\n", "=two\n--hostname-override=mine\n", 1)
		},
		"no record": func(b *board, text string) string {
			must(b.t, os.Remove(filepath.Join(b.State, setuprecord.File)))
			return text
		},
	} {
		b := newBoard(t)
		must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/flags", []byte(own), 0o644))
		b.write(head + "name: two\n")
		b.inUse()
		must(t, os.WriteFile(b.Dir+"/flags", []byte(edit(b, b.made("flags"))+below), 0o600))
		b.write(head + "name: three\n")
		b.inUse()
		want := own + below + blockBegin + b.file() + blockEnd + "\n--hostname-override=three\n"
		if got := b.made("flags"); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		b.write(head)
		b.inUse()
		if got := b.made("flags"); got != own+below {
			t.Errorf("%s, and no name any more: %q", what, got)
		}
	}
	b := newBoard(t)
	b.write(head + "name: two\n")
	b.inUse()
	must(t, os.WriteFile(b.Dir+"/flags", []byte(strings.Replace(b.made("flags"), "=two", "=mine", 1)), 0o600))
	b.write(head)
	if b.inUse(); b.exists("flags") {
		t.Errorf("left: %q", b.made("flags"))
	}
	b = newBoard(t)
	b.write(head + "name: two\n")
	b.inUse()
	const persons = "--kubeconfig=/x\n"
	edited := strings.Replace(b.made("flags"), "--hostname-override", "# mine\n--hostname-override", 1) + persons
	must(t, os.WriteFile(b.Dir+"/flags", []byte(edited), 0o600))
	b.write(head + "name: three\n")
	b.inUse()
	if got, want := b.made("flags"), "# mine\n"+persons+blockBegin+b.file()+blockEnd+"\n--hostname-override=three\n"; got != want {
		t.Errorf("a person's kubeconfig and comment: %q, want %q", got, want)
	}
	b = newBoard(t)
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/flags", nil, 0o644))
	b.write(head + "led: x\n")
	if b.inUse(); !b.exists("flags") {
		t.Error("the empty file of the image is gone")
	}
}

package source

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutated returns a damaged copy of a manifest. The damage imitates editors, disks and users.
func mutated(r *rand.Rand, data []byte) []byte {
	data = slices.Clone(data)
	for range 1 + r.IntN(4) {
		if len(data) < 2 {
			break
		}
		at := r.IntN(len(data))
		to := at + r.IntN(min(40, len(data)-at))
		switch r.IntN(6) {
		case 0:
			data = data[:at]
		case 1:
			data[at] ^= 1 << r.IntN(8)
		case 2:
			data = slices.Delete(data, at, to)
		case 3:
			data = slices.Insert(data, at, data[at:to]...)
		case 4:
			data = slices.Insert(data, at, []byte{'{', '[', '"', '\n', '\t', ':', '-', '&', '*', 0, 0xff}[r.IntN(11)])
		default:
			clear(data[at:to])
		}
	}
	return data
}

// TestHostileManifestsDisturbNone reads five hundred invalid manifests beside a valid pod, at the start and later. It checks that the
// source does not crash and that the valid pod is not affected.
func TestHostileManifestsDisturbNone(t *testing.T) {
	good := podYAML("good", "v1") + "  restartPolicy: Always\n  volumes: [{name: v, emptyDir: {}}]\n"
	h := newHost(t, never)
	h.write("a.yaml", good)
	h.until("good=v1", "")
	uid := h.List()[0].Pod.UID
	r := rand.New(rand.NewPCG(1, 2))
	check := func(when string) {
		t.Helper()
		for _, p := range h.List() {
			if p.Pod.UID == uid && !p.Deleting && p.Predecessor == "" {
				return
			}
		}
		t.Fatalf("%s: the good pod is gone: %s", when, h.pods())
	}
	for i := range 500 {
		data := mutated(r, []byte(strings.Replace(good, "name: good", fmt.Sprintf("name: p%d", i), 1)))
		switch i % 4 {
		case 0: // random bytes
			for j := range data {
				data[j] = byte(r.Uint32())
			}
		case 1: // the name of the valid pod
			data = mutated(r, []byte(good))
		}
		h.write(fmt.Sprintf("m%03d.yaml", i), string(data))
		if i%100 == 99 {
			h.write("z.yaml", podYAML("z", fmt.Sprint("v", i)))
			for !strings.Contains(h.pods()+" ", fmt.Sprintf("z=v%d ", i)) {
				<-h.told
			}
			check("written")
		}
	}
	h.stop()
	h.start(h.dir, never)
	<-h.told
	check("started anew")

	files, err := filepath.Glob(filepath.Join(h.dir, "m*.yaml"))
	h.must(err)
	for _, f := range files {
		h.must(os.Remove(f))
	}
	h.until(fmt.Sprintf("good=v1 z=v%d", 499), "")
	check("removed")
}

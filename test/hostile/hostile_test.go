package hostile_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/islet-edge/islet/test/hostile"
)

func TestManifests(t *testing.T) {
	options := hostile.Options{Seed: 1, Count: 500, Victim: "good"}
	all, again := hostile.Manifests(options), hostile.Manifests(options)
	names, kinds := map[string]bool{}, map[string]int{}
	for i, m := range all {
		if m.Name != again[i].Name || !bytes.Equal(m.Data, again[i].Data) {
			t.Errorf("%q differs the second time", m.Name)
		}
		if names[m.Name] {
			t.Errorf("%q occurs twice", m.Name)
		}
		names[m.Name] = true
		kinds[m.Kind]++
	}
	if len(all) != 500 || len(kinds) != 8 {
		t.Errorf("got %d manifests: %v", len(all), kinds)
	}
	options.Seed = 2
	if other := hostile.Manifests(options); bytes.Equal(other[0].Data, all[0].Data) {
		t.Error("another seed gives the same bytes")
	}
	for _, m := range hostile.Manifests(hostile.Options{Count: 70}) {
		if m.Kind == "another pod's" {
			t.Error("a manifest claims another pod's name without a victim")
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := hostile.Write(dir, hostile.Manifests(hostile.Options{Seed: 3, Count: 500, Victim: "good"})); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 500 {
		t.Errorf("got %d files, %v", len(files), err)
	}
}

package figures_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/islet-edge/islet/test/figures"
)

func TestParseHeap(t *testing.T) {
	const text = `heap profile: 4: 464 [9: 900] @ heap/1
2: 64 [2: 64] @ 0x1 0x2
#	0x1	strings.(*Builder).grow+0x1	/go/strings/builder.go:1
#	0x2	github.com/islet-edge/islet/edge/store.(*DB).read+0x2	store.go:2
#	0x3	github.com/islet-edge/islet/agent.open+0x2	open.go:2

1: 200 [3: 300] @ 0x1 0x2
#	0x1	k8s.io/api/core/v1.(*Pod).Unmarshal+0x1	generated.go:1
#	0x2	github.com/islet-edge/islet/edge/store.(*DB).read+0x2	store.go:2

0: 0 [3: 300] @ 0x1
#	0x1	github.com/islet-edge/islet/edge/desired.New+0x1	desired.go:1

1: 200 [1: 200] @ 0x1
#	0x1	runtime.malg+0x1	/go/runtime/proc.go:1

# runtime.MemStats
# Alloc = 464
`
	h, err := figures.ParseHeap(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := (figures.Heap{"edge/store": 64, "edge/store (k8s.io/api/core/v1)": 200, "runtime": 200}); !maps.Equal(h, want) {
		t.Errorf("got %v, want %v", h, want)
	}
	want := []string{"edge/store (k8s.io/api/core/v1)", "runtime", "edge/store"}
	if h.Sum() != 464 || !slices.Equal(figures.SortOwners(h), want) {
		t.Errorf("sum %d, owners %q", h.Sum(), figures.SortOwners(h))
	}
	for _, wrong := range []string{"", "<html>", "heap profile: x\n1: x [1: 2] @ 0x1\n"} {
		if _, err := figures.ParseHeap(wrong); err == nil {
			t.Errorf("no error for %q", wrong)
		}
	}
}

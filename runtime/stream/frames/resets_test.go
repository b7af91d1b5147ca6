package frames

import (
	"strings"
	"testing"
)

type stream uint32

func (s stream) Identifier() uint32 { return uint32(s) }

// TestResets checks that a client cannot make the record of its resets large. After too many resets, every stream counts as reset.
func TestResets(t *testing.T) {
	var r Resets
	r.add(1)
	if !r.Has(stream(1)) || r.Has(stream(3)) || r.Has(strings.NewReader("")) {
		t.Error("one stream was reset")
	}
	for i := range uint32(1000) {
		r.add(5 + 2*i)
	}
	if !r.Has(stream(1)) || !r.Has(stream(3)) || r.Has(strings.NewReader("")) || len(r.streams) > maxResets+1 {
		t.Errorf("%d resets are recorded", len(r.streams))
	}
}

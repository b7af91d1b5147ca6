package update

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/release"
)

// TestPrevious checks that the kept program can be tried without an archive or keys. A kept program that does not run is rejected. Its file
// stays in both cases.
func TestPrevious(t *testing.T) {
	s, _ := stager(t)
	s.Keys, s.Version = nil, "0.3.0"
	offered := ""
	u := New(Config{Stager: *s, StagedPath: func() string { return offered }, Offer: func(p *StagedProgram, from string, anew bool) (string, bool, error) {
		if !anew || from != filepath.Join(filepath.Dir(s.Program), release.KeptFile("0.2.0")) || len(p.Sum) != 128 {
			t.Errorf("offered from %s, anew %v, sum %q", from, anew, p.Sum)
		}
		offered = p.Program
		return "islet-" + p.Version, true, nil
	}})
	if _, err := u.Update(t.Context(), "", api.UpdateOptions{Back: true}, nil); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("without a kept program: %v", err)
	}
	kept := filepath.Join(filepath.Dir(s.Program), release.KeptFile("0.2.0"))
	for _, c := range []struct {
		how string
		dry bool
		bad string
	}{{how: "other", bad: "fails its self-test"}, {how: "good", dry: true}, {how: "good"}} {
		os.Remove(kept)
		if err := os.WriteFile(kept, []byte(program(t, c.how)), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := u.Update(t.Context(), "ignored", api.UpdateOptions{Back: true, Dry: c.dry}, nil)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: %v", c.how, err)
			}
		} else if err != nil || out.Version != "0.2.0" || (out.ID != "") == c.dry {
			t.Errorf("%s: %+v, %v", c.how, out, err)
		}
		want := "islet islet-0.2.0.previous"
		if offered != "" {
			want = "islet islet-0.2.0.previous " + filepath.Base(offered)
		}
		if got := strings.TrimSpace(left(t, s)); got != want {
			t.Errorf("%s: files %s, want %s", c.how, got, want)
		}
	}
	if b, err := os.ReadFile(s.Program); err != nil || string(b) != "old" {
		t.Errorf("the installed program: %q, %v", b, err)
	}
}

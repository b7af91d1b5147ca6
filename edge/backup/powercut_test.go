package backup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/twin"
)

// TestPowerCuts ends a restore at each step, also a restore over another node, and the recovery too. The recovery leaves either the board
// as it was or the whole node.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]bool{"an empty board": false, "over another node": true} {
		var whole map[string]string
		var recovered []map[string]string
		for cut := 1; ; cut++ {
			w := newWorld(t)
			w.write("state/update/index.json", "{}")
			w.write("state/k3s/a/client-kubelet.pem", "pair")
			if err := os.Symlink("a", w.dirs.State+"/k3s/current"); err != nil {
				t.Fatal(err)
			}
			s := w.source()
			s.Bundles = true
			data := w.archive(s)
			if !over {
				w.empty()
			} else {
				w.write("state/store.key", "another key")
			}
			before := w.files()
			steps, decided := 0, false
			crash := func(step string) error {
				if step == "decided" {
					decided = true
				}
				if steps++; steps == cut {
					return errCrash
				}
				return nil
			}
			q := w.request()
			q.SetAside, q.Step = over, crash
			_, err := Restore(t.Context(), bytes.NewReader(data), q)
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			for more := cut + 1; Pending(w.dirs.State); more += 2 { // the recovery is cut, too
				cut, again := more, 0
				rerr := recoverDirs(w.dirs.State, func(string) error {
					if again++; again == cut {
						return errCrash
					}
					return nil
				})
				if rerr != nil && !errors.Is(rerr, errCrash) {
					t.Fatal(rerr)
				}
			}
			now := w.files()
			delete(now, "state/islet.db") // its bytes differ from run to run
			delete(before, "state/islet.db")
			keys := func(m map[string]string) string {
				return strings.ReplaceAll(fmt.Sprint(slices.Sorted(maps.Keys(m))), w.root, "")
			}
			switch {
			case !decided && !maps.Equal(now, before):
				t.Errorf("%s: after a cut at step %d the board has changed: %s", name, cut, keys(now))
			case err == nil:
				whole = now
			}
			if err == nil {
				if cut < 6 || steps < 10 {
					t.Errorf("%s: %d steps", name, steps)
				}
				break
			}
			if decided {
				if w.meta(twin.MetaKey) == "" || now["state/store.key"] == "another key" {
					t.Errorf("%s: after a cut at step %d the node is not whole: %s", name, cut, keys(now))
				}
				recovered = append(recovered, now)
			}
		}
		if len(whole) == 0 {
			t.Errorf("%s: no restore was complete", name)
		}
		for i, now := range recovered {
			if !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(whole))) {
				t.Errorf("%s: recovery %d: %q instead of %q", name, i, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(whole)))
			}
		}
	}
}

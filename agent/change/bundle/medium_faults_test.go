package bundle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/agent/change/bundle/medium"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// A lent layout ignores Close, so that several readers can use it and the test can count all files that they open.
type lent struct{ format.Layout }

func (lent) Close() error { return nil }

// TestMediumFaults applies the bundle of a stick that is pulled out, or answers differently, at each file that the node opens: while it
// chooses a bundle, verifies the bundle, and unpacks the images. The node keeps the bundle in force and has nothing of the new one, and the
// stick works when it is plugged in again. A different answer that changes nothing that is signed may be accepted, with the right result.
func TestMediumFaults(t *testing.T) {
	files := newWorld(t)
	one, two := files.bundle(1, nil), files.bundle(2, second("more"))
	good, err := format.OpenLayout(two)
	files.must(err)
	defer good.Close()
	for _, lie := range []bool{false, true} {
		refused, opens := 0, 1
		for at := 0; at < opens; at++ {
			what := fmt.Sprintf("lie %v, file %d", lie, at)
			w := newWorld(t)
			w.reads = true
			n := w.boot(nil)
			_, err := apply(n, one, false)
			w.must(err)
			keep(n)
			record, meta := n.now(), w.meta[seenKey]
			clear(w.imported)
			f := &bundletest.Faulty{Layout: good, At: at, Lie: lie}
			try := func() error {
				offer := medium.Offer{Name: "kiosk.tar", Open: func() (format.Layout, error) { return lent{f}, nil }}
				_, _, err := n.ApplyNewest(t.Context(), []medium.Offer{offer})
				return err
			}
			if err = try(); err != nil {
				refused++
				if errors.Is(err, syscall.EIO) == lie {
					t.Errorf("%s: %v", what, err)
				}
				clear(w.imported) // of complete images, which are not in use
				for _, names := range record.Images {
					for _, name := range names {
						w.imported[name] = true
					}
				}
				if got := n.now(); !reflect.DeepEqual(got, record) || w.meta[seenKey] != meta {
					t.Errorf("%s: %+v, want %+v, database %s", what, got, record, w.meta[seenKey])
				}
				w.check(n, what)
				f = &bundletest.Faulty{Layout: good, At: 1 << 30}
				err = try()
			}
			if err != nil {
				t.Fatalf("%s, then plugged in again: %v", what, err)
			}
			opens = max(opens, f.Opens)
			keep(n)
			(&loop{Node: n}).round(t.Context())
			w.check(n, what+", then plugged in again")
			if !slices.Equal(w.names(), []string{"more", "web"}) || n.now().Current.Number != 2 {
				t.Errorf("%s, then plugged in again: %v, %+v", what, w.names(), n.now())
			}
		}
		if refused < 15 || !lie && refused < opens {
			t.Errorf("lie %v: %d of %d faults were noticed", lie, refused, opens)
		}
	}
}

package doctor

import (
	"fmt"
	"io"

	"github.com/islet-edge/islet/internal/printable"
)

// A remedy removes an object that is the cause of a finding. A finding has a remedy only if this object is
// certainly not in use. The remedy checks this again before it removes the object.
type remedy struct {
	target string // name of the object to remove, such as "interface cni0"
	remove func() error
}

// Fix applies the remedies of findings and prints each of them. If dryRun is true, it only prints them. Fix returns the
// number of remedies, and the first error.
func Fix(w io.Writer, findings []Finding, dryRun bool) (n int, err error) {
	for _, f := range findings {
		if f.remedy == nil {
			continue
		}
		n++
		target, what := printable.Line(f.remedy.target), printable.Line(f.What)
		if dryRun {
			fmt.Fprintf(w, "would remove %s: %s\n", target, what)
			continue
		}
		if e := f.remedy.remove(); e != nil {
			fmt.Fprintf(w, "could not remove %s: %s\n", target, printable.Line(e.Error()))
			if err == nil {
				err = e
			}
			continue
		}
		fmt.Fprintf(w, "removed %s: %s\n", target, what)
	}
	return n, err
}

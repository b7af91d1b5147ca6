package doctor

import (
	"fmt"
	"io"
)

// A remedy removes an object that is the cause of a finding. A finding has a remedy only if this object is
// certainly not in use. The remedy checks this again before it removes the object.
type remedy struct {
	target string // name of the object to remove, such as "interface cni0"
	remove func() error
}

// Fix applies the remedies of findings and prints each of them. With dryRun it only prints them. Fix returns
// the number of remedies, and the first error.
func Fix(w io.Writer, findings []Finding, dryRun bool) (n int, err error) {
	for _, f := range findings {
		if f.remedy == nil {
			continue
		}
		n++
		if dryRun {
			fmt.Fprintf(w, "would remove %s: %s\n", f.remedy.target, f.What)
			continue
		}
		if e := f.remedy.remove(); e != nil {
			fmt.Fprintf(w, "could not remove %s: %v\n", f.remedy.target, e)
			if err == nil {
				err = e
			}
			continue
		}
		fmt.Fprintf(w, "removed %s: %s\n", f.remedy.target, f.What)
	}
	return n, err
}

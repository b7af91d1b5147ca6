package doctor

import (
	"fmt"
	"io"
)

// A remedy takes away what a finding is about. It is only given where that is
// certainly nobody's, and looks once more before it acts.
type remedy struct {
	what string // what it removes, as "interface cni0"
	do   func() error
}

// Fix carries out the remedies of findings and writes what it did, or with dryRun
// what it would do. It returns how many there were, and the first that failed.
func Fix(w io.Writer, findings []Finding, dryRun bool) (n int, err error) {
	for _, f := range findings {
		if f.remedy == nil {
			continue
		}
		n++
		if dryRun {
			fmt.Fprintf(w, "would remove %s: %s\n", f.remedy.what, f.What)
			continue
		}
		if e := f.remedy.do(); e != nil {
			fmt.Fprintf(w, "could not remove %s: %v\n", f.remedy.what, e)
			if err == nil {
				err = e
			}
			continue
		}
		fmt.Fprintf(w, "removed %s: %s\n", f.remedy.what, f.What)
	}
	return n, err
}

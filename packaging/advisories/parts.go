package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// partsFile lists the advisories for the parts of the OCI runtime. There is no offline database for these parts, so people review the
// advisories for one version of each part.
const partsFile = "oci.txt"

// checkParts returns the number of reviewed advisories. It returns an error if a source package or the C library has a version that was not
// reviewed, or if a patch is missing. A line of partsFile has one of these forms:
//
//	version NAME VERSION DATE            this version of NAME was reviewed on this day
//	ID NAME patched FILE                 a patch of islet fixes it
//	ID NAME fixed VERSION                this version of NAME has the fix, and the shipped version is not older
//	ID NAME unreachable REASON           the code is not linked, or not called
func (c checker) checkParts() (int, error) {
	reviewed, n := map[string]string{}, 0
	err := eachLine(filepath.Join(c.dir, partsFile), func(line string) error {
		words := strings.Fields(line)
		if len(words) < 4 {
			return errors.New("want at least four words: version NAME VERSION DATE, or ID NAME patched|fixed|unreachable WHY")
		}
		if words[0] == "version" {
			reviewed[words[1]] = words[2]
			return nil
		}
		n++
		if _, ok := reviewed[words[1]]; !ok {
			return fmt.Errorf("%s is for %s, but no version of it was reviewed", words[0], words[1])
		}
		switch words[2] {
		case "patched":
			_, err := os.Stat(filepath.Join(c.patches, words[3]))
			return err
		case "fixed", "unreachable":
			return nil
		}
		return fmt.Errorf("%s: %q is none of patched, fixed, unreachable", words[0], words[2])
	})
	if err != nil {
		return 0, err
	}
	return n, eachLine(c.sources, func(line string) error {
		words := strings.Fields(line)
		if len(words) < 4 {
			return errors.New("want a name, a version, a file and its SHA-256")
		}
		name, _, binary := strings.Cut(words[0], ":")
		if binary && !strings.Contains(words[2], "_"+words[1]+"_") {
			return fmt.Errorf("%s is not of version %s of %s", words[2], words[1], words[0])
		}
		if binary && name != "glibc" { // only headers
			return nil
		}
		if reviewed[name] != words[1] {
			return fmt.Errorf("%s %s was not reviewed for advisories (%s has %q): search for advisories since then, and update the file",
				name, words[1], partsFile, reviewed[name])
		}
		return nil
	})
}

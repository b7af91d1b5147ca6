package update

import (
	"fmt"

	"github.com/islet-edge/islet/internal/release"
)

// chooseArchive returns the archive with the newest version for this machine, or nil if none is newer than the running version. It does not
// verify signatures.
func (s *Stager) chooseArchive(list []Archive) (newest *Archive, err error) {
	version := s.Version
	for i := range list {
		a := &list[i]
		r, err := release.Parse(a.Release)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		if r.Arch != s.Arch {
			continue
		}
		newer, err := IsNewer(r.Version, version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		if newer {
			newest, version = a, r.Version
		}
	}
	return newest, nil
}

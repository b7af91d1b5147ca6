package userns

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/internal/sorting"
)

// The length of each range is a multiple of unit.
const unit = 65536

// A Range consists of Count IDs of the host, starting with First.
type Range struct{ First, Count uint32 }

func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Count) }

// numIDs is the number of valid IDs. The last 32-bit value is not valid, because the kernel uses it
// for "no ID".
const numIDs = 1<<32 - 1

// validate returns an error if a pod cannot use the range.
func (r Range) validate() error {
	switch {
	case r.Count == 0:
		return errors.New("the range is empty")
	case r.First == 0:
		return errors.New("the range has the host's root in it")
	case r.end() > numIDs:
		return fmt.Errorf("the range ends beyond the last ID, %d", uint32(numIDs-1))
	}
	return nil
}

func (r Range) overlaps(o Range) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

// A Space contains the IDs from which pods get their ranges. Each range has PerPod IDs.
type Space struct {
	Range
	PerPod uint32
}

// allOf returns the space of a host that reserves no IDs for pods. It contains all IDs that are not below perPod.
func allOf(perPod uint32) Space {
	return Space{Range{perPod, uint32(numIDs - uint64(perPod) + 1)}, perPod}
}

// check applies a kubelet's rules to the IDs that a host reserves.
func (s Space) check(maxPods int) error {
	switch {
	case s.PerPod == 0 || s.PerPod%unit != 0:
		return fmt.Errorf("kubelet user namespace length %d is not a multiple of %d", s.PerPod, unit)
	case s.First%s.PerPod != 0:
		return fmt.Errorf("kubelet user assigned ID %d is not a multiple of %d", s.First, s.PerPod)
	case s.First < s.PerPod: // otherwise a pod would get the host's root ID
		return fmt.Errorf("kubelet user assigned ID %d must be greater or equal to %d", s.First, s.PerPod)
	case s.Count%s.PerPod != 0:
		return fmt.Errorf("kubelet user assigned IDs length %d is not a multiple of %d", s.Count, s.PerPod)
	case int64(s.Count/s.PerPod) < int64(maxPods):
		return fmt.Errorf("kubelet user assigned IDs are not enough to support %d pods", maxPods)
	}
	return nil
}

// lowestFree returns the lowest range that does not overlap any taken range. Taken ranges may have any
// position and length, because they may come from an earlier configuration of the space.
func (s Space) lowestFree(taken []Range) (Range, bool) {
	taken = slices.Clone(taken)
	sorting.By(taken, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	r := Range{s.First, s.PerPod}
	next := uint64(s.First)
	for {
		if next+uint64(s.PerPod) > min(s.end(), numIDs) {
			return Range{}, false
		}
		r.First = uint32(next)
		i := slices.IndexFunc(taken, r.overlaps)
		if i < 0 {
			return r, true
		}
		// Continue at the first multiple of PerPod after the taken range.
		next += (taken[i].end() - next + uint64(s.PerPod) - 1) / uint64(s.PerPod) * uint64(s.PerPod)
		taken = taken[i+1:]
	}
}

// parseSubIDs parses the output of getsubids for a user, such as "0: kubelet 65536 7208960".
func parseSubIDs(text string) (Range, error) {
	line := strings.TrimRight(text, "\n")
	if strings.Contains(line, "\n") {
		return Range{}, fmt.Errorf("%.200q has more than one line", line)
	}
	f := strings.Fields(line)
	if len(f) != 4 {
		return Range{}, fmt.Errorf("%.200q is not the output of getsubids", line)
	}
	first, err1 := strconv.ParseUint(f[2], 10, 32)
	count, err2 := strconv.ParseUint(f[3], 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return Range{}, fmt.Errorf("%.200q: %w", line, err)
	}
	return Range{uint32(first), uint32(count)}, nil
}

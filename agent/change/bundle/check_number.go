package bundle

import "fmt"

// Check returns an error if a bundle cannot be tried now. If older is true, the bundle's number may be lower than the highest number that
// this node has used.
func (r *Record) Check(b Bundle, older bool) error {
	switch highest := r.Highest[b.Name]; {
	case r.Trial != nil && r.Trial.Digest == b.Digest:
		return fmt.Errorf("%s: %w (islet bundle status shows it)", b, ErrInUse)
	case r.Trial != nil:
		return fmt.Errorf("%s: %w: wait for its end (islet bundle status), or end it with islet bundle revert", r.Trial.Bundle, ErrTrial)
	case r.Current != nil && r.Current.Digest == b.Digest:
		return fmt.Errorf("%s: %w", b, ErrInUse)
	case b.Number < highest && !older:
		return fmt.Errorf("%w: number %d is lower than %d, the highest number of %q on this node: use --older if this is intended",
			ErrOlder, b.Number, highest, b.Name)
	}
	return nil
}

// A rule returns an error if a bundle cannot be tried now.
type rule func(r *Record, b Bundle) error

// unrequested is the rule for a bundle that no user has requested, such as one on a USB stick. The node tries each number only once, so it
// does not repeat a bundle that has failed or was reverted. The parameter own is the record before it is merged with the database. The
// number in the database may belong to a bundle that never came into force, if the power failed at that moment.
func unrequested(own, r *Record, b Bundle) error {
	if err := r.Check(b, false); err != nil {
		return err
	}
	if b.Number == own.Highest[b.Name] || r.HasFailed(b.Digest) {
		return fmt.Errorf("%s: %w: the node has had number %d before, and tries a number by itself only once: "+
			"build the bundle with a higher number, or use islet bundle apply", b, ErrTried, r.Highest[b.Name])
	}
	return nil
}

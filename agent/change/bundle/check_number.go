package bundle

import "fmt"

// Check returns an error if a bundle cannot be tried now. If older is true, its number may be lower than the highest one.
func (r *Record) Check(b Bundle, older bool) error {
	switch highest := r.Highest[b.Name]; {
	case r.Trial != nil && r.Trial.Digest == b.Digest:
		return fmt.Errorf("%s: %w: islet bundle status", b, ErrInUse)
	case r.Trial != nil:
		return fmt.Errorf("%s: %w: wait for its end (islet bundle status), or end it with islet bundle revert", r.Trial.Bundle, ErrTrial)
	case r.Current != nil && r.Current.Digest == b.Digest:
		return fmt.Errorf("%s: %w", b, ErrInUse)
	case b.Number < highest && !older:
		return fmt.Errorf("number: %d: %w than number %d, the highest of %q on this node: use --older if this is intended",
			b.Number, ErrOlder, highest, b.Name)
	}
	return nil
}

// A rule returns an error if a bundle cannot be tried now.
type rule func(r *Record, b Bundle) error

// unrequested is the rule for a bundle that nobody has requested, such as one on a stick. The node tries each number once. So it does not
// try a bundle again that has failed or was reverted. The parameter own is the record without its copy in the database: a power cut can
// leave the number of a bundle there that was never in force.
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

package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/untrusted"
)

// ApplyNewest starts the trial of the newest bundle among offers that nobody has requested. A bundle counts only if it is signed and for
// this node. Of bundles with the same name, the bundle with the highest number is the newest. Among names, the bundle that was signed last
// is the newest. ApplyNewest returns the name of that offer, also after an error. If no offer counts, the error gives the reason for each
// one.
func (n *Node) ApplyNewest(ctx context.Context, offers []medium.Offer) (string, api.Bundle, error) {
	if err := n.check(); err != nil {
		return "", api.Bundle{}, err
	}
	newest := map[string]*candidate{} // by the name of the bundle
	var errs []error
	for _, o := range offers {
		c, err := n.inspect(o)
		switch {
		case ctx.Err() != nil:
			return "", api.Bundle{}, ctx.Err()
		case err != nil:
			errs = append(errs, fmt.Errorf("%.100s: %w", o.Name, err))
		case newest[c.Name] == nil || c.Number > newest[c.Name].Number:
			newest[c.Name] = c
		}
	}
	var best *candidate
	for _, c := range newest {
		if best == nil || c.signed.After(best.signed) || c.signed.Equal(best.signed) && c.Name < best.Name {
			best = c
		}
	}
	if best == nil {
		return "", api.Bundle{}, errors.Join(errs...)
	}
	if len(errs) > 0 {
		n.c.Log.Warn("some bundles cannot be used", "error", errors.Join(errs...))
	}
	// The offer is read again, so it can be another bundle by then.
	same := func(r *Record, b Bundle) error {
		if b != best.Bundle {
			return fmt.Errorf("it was %s at first, and %s now: the medium is defective or hostile", best.Bundle, b)
		}
		own := n.now()
		return unrequested(&own, r, b)
	}
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	open := func() (format.Layout, error) {
		l, err := best.offer.Open()
		if err != nil {
			return nil, err
		}
		return interruptedLayout{l, ctx}, nil
	}
	q := request{open: open, rule: same, interrupt: func() { interrupt(medium.ErrBusy) }}
	b, err := n.apply(ctx, q, func(string, int64, int64) {})
	if err != nil && errors.Is(context.Cause(ctx), medium.ErrBusy) {
		err = medium.ErrBusy
	}
	if err != nil {
		return best.offer.Name, describeBundle(best.Bundle), err
	}
	return best.offer.Name, b, nil
}

// An interruptedLayout is a layout on a medium. When its context ends, the next read fails, so that a slow medium does not delay others.
type interruptedLayout struct {
	format.Layout
	ctx context.Context // a field, because the methods of a format.Layout have no context as a parameter
}

func (l interruptedLayout) Open(name string) (io.ReadCloser, int64, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, 0, err
	}
	r, size, err := l.Layout.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{untrusted.CancelableReader(l.ctx, r), r}, size, nil
}

// A candidate is a bundle of an offer that is signed and for this node.
type candidate struct {
	staged // only with the fields Bundle and signed
	offer  medium.Offer
}

// inspect verifies the signatures of an offer, and whether it is for this node.
func (n *Node) inspect(o medium.Offer) (*candidate, error) {
	l, err := o.Open()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	b, err := format.Open(l, &n.c.Policy)
	if err != nil {
		return nil, err
	}
	if err := n.checkTarget(b.Contents); err != nil {
		return nil, err
	}
	return &candidate{staged{Bundle: Bundle{b.Contents.Name, b.Contents.Number, b.ID}, signed: b.Signature.Time}, o}, nil
}

// AwaitTrial waits until no bundle is on trial, and returns the last outcome. It may be nil.
func (n *Node) AwaitTrial(ctx context.Context) (*api.BundleOutcome, error) {
	for {
		n.mu.Lock()
		r, changed := n.record, n.changed
		n.mu.Unlock()
		if r.Trial == nil {
			return r.Last.describe(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

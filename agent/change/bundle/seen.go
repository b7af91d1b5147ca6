package bundle

import (
	"context"
	"encoding/json"
	"fmt"
)

// seenKey is the key of that copy in the Store.
const seenKey = "bundle.seen"

// storeSeen writes what the record has seen to the database.
func (n *Node) storeSeen(ctx context.Context, r *Record) error {
	text, err := json.Marshal(seen{r.Highest, r.Signed, r.Failed})
	if err != nil {
		return err
	}
	return n.c.Store.SetMeta(ctx, seenKey, string(text))
}

// ResetClock forgets that a bundle was signed at a time that is later than the present time. The signer's clock was wrong, and the clock of
// the node was not set then.
func (n *Node) ResetClock(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	now := n.c.Now()
	r, err := n.complete(ctx)
	if n.err != nil || err != nil || !r.Signed.After(now) {
		return err
	}
	r.Signed = now.UTC()
	if err := n.storeSeen(ctx, &r); err != nil || !n.now().Signed.After(now) {
		return err
	}
	return n.change(func(to *Record) error {
		to.Signed = r.Signed
		return nil
	})
}

// complete returns the record, raised to its copy in the database.
func (n *Node) complete(ctx context.Context) (Record, error) {
	r := n.now()
	text, found, err := n.c.Store.Meta(ctx, seenKey)
	if err != nil || !found {
		return r, err
	}
	var stored seen
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return r, fmt.Errorf("the numbers of bundles in the database: %w", err)
	}
	r.raise(stored)
	return r, nil
}

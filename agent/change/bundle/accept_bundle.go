package bundle

import (
	"fmt"
	"strings"
	"time"

	format "github.com/islet-edge/islet/internal/bundle"
)

// accept returns an error if this node must not use a bundle whose signatures are right.
func (n *Node) accept(b *format.Bundle, id Bundle, r Record, q request) error {
	if err := q.allows(&r, id); err != nil {
		return err
	}
	if q.repair == id.Digest { // it is in use, whatever it is for, and also if it has expired since
		return nil
	}
	c := b.Contents
	if err := n.checkTarget(c); err != nil {
		return err
	}
	if isNew := r.Highest[id.Name] == 0; isNew && q.byNode() && r.Current != nil && !b.Signature.Time.After(r.Signed) {
		return fmt.Errorf("name: %q: another name than the bundle in use has, and signed earlier: "+
			"use islet bundle apply if this is intended", id.Name)
	}
	now := n.c.Now()
	for _, t := range []time.Time{r.Signed, b.Signature.Time} { // the current time cannot be earlier
		if t.After(now) {
			now = t
		}
	}
	if c.IsExpired(now) {
		return fmt.Errorf("expires: the bundle has expired on %s, and it is %s: build one with a later time",
			c.Expires, format.FormatTime(now))
	}
	for _, f := range b.Files {
		if f.MediaType == format.MediaManifest && strings.HasSuffix(f.Name, format.SealedSuffix) {
			return fmt.Errorf("file %s: it has the name of a sealed Secret, but it is a manifest", f.Name)
		}
	}
	return nil
}

// checkTarget returns an error if a bundle is for other nodes.
func (n *Node) checkTarget(c *format.Contents) error {
	if !c.For.Matches(n.c.Name, n.c.Labels()) {
		return fmt.Errorf("for: the bundle is for other nodes than %s: %s (islet bundle node shows the name and labels of this node)",
			n.c.Name, c.For.Text())
	}
	return nil
}
